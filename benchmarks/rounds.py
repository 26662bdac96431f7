"""How do rounds compare with Flower's simulation, what do they cost beside local SGD, and how do they grow with K?

Both sides train ten clients a round with the same local loop (`local_sgd`), batch size and one thread for each client.
On one core ours takes one client after the other and Flower has one actor on its Ray backend; on more, both have a
process for each core. What these take to start is left out on both sides. The more local epochs, the more both sides
do the same thing: one epoch shows what the runtimes themselves cost.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import torch
from flower_simulation import seconds_a_round
from measure import medians, save

from fedeas.algorithms import FedAvg
from fedeas.algorithms.base import Arrays, Fleet, model_arrays
from fedeas.config import PartitionConfig, RoundsConfig, RunConfig, TrainConfig
from fedeas.core.arrays import cores
from fedeas.data.client import ClientData, Normaliser
from fedeas.federation.checkpoint import save_checkpoint
from fedeas.federation.clients import LocalClients
from fedeas.federation.engines.processes import ProcessesEngine
from fedeas.federation.metrics import gamma_hat
from fedeas.federation.parts import Parts
from fedeas.federation.rounds import Schedule, federate
from fedeas.federation.worker import LocalEngine, Worker
from fedeas.models.build import build_model, parameter_names

CLIENTS, PARTICIPANTS, ROUNDS = 20, 10, 10
CPU = torch.device("cpu")
CONFIG = RunConfig(
    partition=PartitionConfig(clients=CLIENTS, min_size=10),
    rounds=RoundsConfig(total=ROUNDS, participation=PARTICIPANTS / CLIENTS),
)


def training(epochs: int) -> TrainConfig:
    return TrainConfig(lr=0.05, batch_size=64, epochs=epochs)


def ours(epochs: int, cores: int, rounds: int = 3 * ROUNDS) -> float:
    """Seconds a round; evaluation and Gamma-hat are left out on both sides."""
    parts = Parts.of(CONFIG.model_copy(update={"train": training(epochs)}), CPU)
    worker = LocalClients(parts).worker
    server = FedAvg().init(parts.model, Fleet(parts.data.counts.sizes, 10))

    def run(engine: LocalEngine, rounds: int) -> float:
        start = time.perf_counter()
        federate(FedAvg(), engine, server, Schedule(rounds, CLIENTS, PARTICIPANTS, 0), lambda state: {})
        return (time.perf_counter() - start) / rounds

    with closing(ProcessesEngine(worker, cores) if cores > 1 else LocalEngine(worker)) as engine:
        run(engine, 2)  # processes start, clients load their data
        return run(engine, rounds)


def flowers(epochs: int, cores: int) -> float:
    """The same on Flower's simulation."""
    return seconds_a_round(new_worker, CLIENTS, PARTICIPANTS, epochs, cores, ROUNDS)


def new_worker() -> Worker:
    return LocalClients(Parts.of(CONFIG.model_copy(update={"train": training(epochs=1)}), CPU)).worker


def overhead() -> dict[str, object]:
    """The share of a ResNet-18 round that is not local SGD: choosing, loading, aggregating, Gamma-hat, saving."""
    model = build_model("resnet18", (3, 32, 32), 10, seed=0)
    rng = np.random.default_rng(0)
    normalise = Normaliser.of((0.5,) * 3, (0.25,) * 3)
    data = ClientData.of(rng.integers(0, 256, (256, 3, 32, 32), dtype=np.uint8), rng.integers(0, 10, 256), normalise)
    clients = 4
    nothing = np.zeros((clients, 10), dtype=np.int64)
    worker = Worker(FedAvg(), model, lambda client: data, nothing, None, training(epochs=1), 0, 1)
    records: list[dict[str, object]] = []
    probes = {"gamma_hat": partial(gamma_hat, trainable=parameter_names(model))}
    with tempfile.TemporaryDirectory() as folder:

        def keep(record: dict[str, object], state: Arrays) -> None:
            start = time.perf_counter()
            save_checkpoint(Path(folder) / "checkpoint.safetensors", "benchmark", 1, state, {})
            records.append({**record, "save": time.perf_counter() - start})

        engine, schedule = LocalEngine(worker), Schedule(1, clients, clients, 0)
        federate(FedAvg(), engine, model_arrays(model), schedule, lambda state: {}, probes, keep)
    seconds: dict[str, float] = {**records[0]["seconds"], "save": records[0]["save"]}  # type: ignore[dict-item]
    rest = sum(value for name, value in seconds.items() if name not in ("train", "evaluate"))
    return {
        "model": "resnet18, 4 clients of 256 images, 1 epoch",
        "local SGD, s": round(seconds["train"], 2),
        "the rest, s": round(rest, 3),
        "share of the rest": f"{rest / (rest + seconds['train']):.1%}",
    }


def growth() -> list[dict[str, object]]:
    """Seconds a round for ever more clients, ten of which train."""
    rng = np.random.default_rng(0)
    normalise = Normaliser.of((0.5,), (0.25,))
    data = ClientData.of(rng.integers(0, 256, (72, 1, 8, 8), dtype=np.uint8), rng.integers(0, 10, 72), normalise)
    rows: list[dict[str, object]] = []
    for clients in (20, 1_000, 100_000):
        model = build_model("small-cnn", (1, 8, 8), 10, seed=0)
        nothing = np.zeros((clients, 10), dtype=np.int64)
        worker = Worker(FedAvg(), model, lambda client: data, nothing, None, training(epochs=1), 0, 1)
        schedule = Schedule(15, clients, PARTICIPANTS, 0)
        start = time.perf_counter()
        federate(FedAvg(), LocalEngine(worker), model_arrays(model), schedule, lambda state: {})
        rows.append({"clients": clients, "ms a round": round((time.perf_counter() - start) / 15 * 1e3)})
    return rows


def against_flower(epochs: list[int], numbers: list[int]) -> list[dict[str, object]]:
    """A row for each number of local epochs on each number of cores."""
    cases = [(each, number) for each in epochs for number in numbers]
    spent = medians({(run, *case): partial(run, *case) for case in cases for run in (ours, flowers)})
    return [
        {
            "local epochs": each,
            "cores": number,
            "fedeas, rounds a second": round(1 / spent[ours, each, number], 2),
            "times one core": round(spent[ours, each, 1] / spent[ours, each, number], 2),
            "Flower, rounds a second": round(1 / spent[flowers, each, number], 2),
            "times faster": round(spent[flowers, each, number] / spent[ours, each, number], 1),
        }
        for each, number in cases
    ]


def main() -> None:
    torch.set_num_threads(1)
    rows = against_flower([1, 5], [number for number in (1, 2, 4, 8, PARTICIPANTS) if number <= cores()])
    question = "Rounds on digits: small CNN, 20 clients, 10 a round, the same local loop on both sides"
    save("rounds", question, rows)
    save("rounds-overhead", "What a round costs beside local SGD, evaluation apart", [overhead()])
    save("rounds-growth", "A round with ten participants as the federation grows", growth())


if __name__ == "__main__":
    main()
