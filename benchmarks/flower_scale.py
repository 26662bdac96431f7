"""How long does a round take on Flower's simulation as the number of clients grows, all of them in every round?

A small CNN on digits, split evenly. Clients get fewer images as they become more, so that what grows is messages.
"""

from __future__ import annotations

import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

from measure import save

from fedeas.config import load_config
from fedeas.flower.app import simulate
from fedeas.runs.store import RunStore

SIZES, ROUNDS = (50, 200, 500, 1000), 4


def seconds_a_round(clients: int) -> float:
    """The median over all rounds but the first, in which processes start."""
    settings = [f"partition.clients={clients}", "partition.scheme=iid", f"rounds.total={ROUNDS}", "train.epochs=1",
                "rounds.participation=1.0", "rounds.gamma_hat=false", "engine.name=flower",
                f"rounds.eval_every={ROUNDS}"]  # fmt: skip
    ends: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        simulate(load_config(None, settings), RunStore(Path(folder)), lambda record: ends.append(time.perf_counter()))
    return median(after - before for before, after in pairwise(ends))


if __name__ == "__main__":
    measured = {clients: seconds_a_round(clients) for clients in SIZES}
    rows: list[dict[str, object]] = [
        {"clients": clients, "s a round": round(each, 2), "ms a client": round(1000 * each / clients, 1)}
        for clients, each in measured.items()
    ]
    save("flower-scale", "A round on Flower's simulation as clients grow: small CNN on digits, all clients", rows)
