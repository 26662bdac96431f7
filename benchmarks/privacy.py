"""What do clipping and noise cost in accuracy and time, what epsilon do they give, and do they stop the attack by bias?

Ten digits clients clip their updates and add noise, as a node with `dp-clip` and `dp-noise` does. The epsilon is that
of one client's answers in all rounds. The attack is the one of leakage.py on a single update.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import mean, median

import numpy as np
from leakage import bias_correlation
from measure import save
from numpy.typing import NDArray

from fedeas.algorithms.base import Arrays, Reply
from fedeas.config import RunConfig, load_config
from fedeas.core.arrays import IntArray
from fedeas.core.errors import RunError
from fedeas.data.sources import load_dataset
from fedeas.federation.clients import LocalClients
from fedeas.federation.engines.base import Task
from fedeas.federation.run import execute
from fedeas.federation.split import split_data
from fedeas.federation.worker import LocalEngine, Worker
from fedeas.flower.client import Participant
from fedeas.flower.node_settings import NodeSettings, Privacy
from fedeas.flower.privacy import epsilon_of, protect
from fedeas.flower.wire import About
from fedeas.runs.store import RunStore

CLIENTS, ROUNDS, SEEDS, DELTA = 10, 10, (0, 1, 2), 1e-5
CLIP = 0.5
NOISES = (1e-9, 0.03, 0.1, 1.0, 10.0)
"""The first is too small to be seen: clipping alone."""

BASE = [f"partition.clients={CLIENTS}", "partition.alpha=0.5", "engine.threads=1", "train.steps=5", "train.lr=0.1",
        "rounds.participation=1.0", f"rounds.total={ROUNDS}", f"rounds.eval_every={ROUNDS}"]  # fmt: skip


class PrivateEngine(LocalEngine):
    """Clients that protect their replies; counts answers and seconds."""

    privacy: Privacy
    spent: list[float]

    def map(self, task: Task, broadcast: Arrays, clients: Sequence[int], round: int) -> list[Reply]:
        replies, start = super().map(task, broadcast, clients, round), time.perf_counter()
        private = [replace(reply, arrays=protect(reply.arrays, broadcast, self.privacy)) for reply in replies]
        self.spent.append((time.perf_counter() - start) / len(replies))
        return private


def accuracy(config: RunConfig, privacy: Privacy | None, folder: Path) -> tuple[float, float]:
    """The accuracy after the last round, and milliseconds for each answer's noise."""
    spent: list[float] = []

    class PrivateClients(LocalClients):
        def make_engine(self, worker: Worker) -> LocalEngine:
            if privacy is None:
                return LocalEngine(worker)
            engine = PrivateEngine(worker)
            engine.privacy, engine.spent = privacy, spent
            return engine

    try:
        run = execute(config, RunStore(folder), make_clients=lambda parts: PrivateClients(parts, folder / "bank"))
    except RunError:  # the loss is not a number
        return math.nan, 1e3 * median(spent)
    return float(run.rounds()[-1]["accuracy"]), 1e3 * median(spent or [0.0])


def correlations(privacy: Privacy | None, folder: Path) -> float:
    """The median correlation that the attack by bias finds over all clients."""
    about, config = About.of(load_dataset("digits")), load_config(None, BASE)
    found = []
    for client in range(CLIENTS):
        asked = Participant(config, client, about, NodeSettings(folder, privacy=privacy))
        asked.samples = _samples(client)  # each run would split the dataset again
        found.append(bias_correlation(asked))
    return median(found)


@cache
def _samples(client: int) -> tuple[NDArray[np.uint8], IntArray]:
    config = load_config(None, BASE)
    data = split_data(config, load_dataset("digits"))
    mine = data.partition.indices[client]
    return data.images[mine], data.labels[mine]


def row(noise: float | None, folder: Path) -> dict[str, object]:
    privacy = None if noise is None else Privacy(CLIP, noise, DELTA)
    configs = [load_config(None, [*BASE, f"seed={seed}"]) for seed in SEEDS]
    found = [accuracy(config, privacy, folder / f"{seed}") for seed, config in zip(SEEDS, configs, strict=True)]
    epsilon = math.inf if noise is None or noise < 1e-6 else epsilon_of({noise: ROUNDS}, DELTA)
    values = [value for value, _ in found]
    told = {"accuracy (mean)": mean(values), "lowest": min(values), "highest": max(values)}
    return {
        "updates": "as they are" if noise is None else "clipped" if noise < 1e-6 else f"clipped, noise {noise:g}",
        "epsilon": "none" if math.isinf(epsilon) else f"{epsilon:,.4g}",
        **{name: "loss not finite" if math.isnan(sum(values)) else f"{value:.1%}" for name, value in told.items()},
        "correlation of bias and counts": round(correlations(privacy, folder / "attack"), 2),
        "ms an answer": round(median(spent for _, spent in found), 1),
    }


def main() -> None:
    """Measure updates as they are, clipped, and with more and more noise."""
    with tempfile.TemporaryDirectory() as name:
        rows = [row(noise, Path(name) / str(noise)) for noise in (None, *NOISES)]
    words = f"{CLIENTS} digits clients, clip {CLIP:g}, {ROUNDS} rounds, {len(SEEDS)} seeds, delta {DELTA:g}"
    save("privacy", f"Differential privacy of updates: {words}", rows)


if __name__ == "__main__":
    main()
