"""How long does a round take on Flower's simulation as the number of clients grows, all of them in every round?

A small CNN on digits, split evenly. Clients get fewer images as they become more, so that what grows is messages.
Seconds of processors count all processes of the simulation; unlike the others, they hardly change on a busy machine.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import psutil
from measure import save

from fedeas.config import load_config
from fedeas.flower.app import simulate
from fedeas.runs.store import RunStore

SIZES, ROUNDS = (10, 50, 200, 500, 1000), 4


@dataclass(frozen=True)
class Moment:
    """Seconds of the clock, and of the processors in this process and its children."""

    clock: float
    processors: float

    @staticmethod
    def now() -> Moment:
        """The present moment."""
        here = psutil.Process()
        times = [each.cpu_times() for each in (here, *here.children(recursive=True))]
        return Moment(time.perf_counter(), sum(each.user + each.system for each in times))


def moments(clients: int) -> list[Moment]:
    """The start of a run, and the end of each of its rounds."""
    settings = [f"partition.clients={clients}", "partition.scheme=iid", f"rounds.total={ROUNDS}", "train.epochs=1",
                "rounds.participation=1.0", "rounds.gamma_hat=false", "engine.name=flower",
                f"rounds.eval_every={ROUNDS}"]  # fmt: skip
    ends = [Moment.now()]
    with tempfile.TemporaryDirectory() as folder:
        simulate(load_config(None, settings), RunStore(Path(folder)), lambda record: ends.append(Moment.now()))
    return ends


def row(clients: int) -> dict[str, object]:
    """The first round apart, because processes start and clients introduce themselves in it."""
    start, *ends = moments(clients)
    clock = median(after.clock - before.clock for before, after in pairwise(ends))
    processors = median(after.processors - before.processors for before, after in pairwise(ends))
    return {
        "clients": clients,
        "s to the end of the first round": round(ends[0].clock - start.clock, 1),
        "s a round": round(clock, 2),
        "ms a client": round(1000 * clock / clients, 1),
        "s of processors a round": round(processors, 2),
    }


if __name__ == "__main__":
    question = "A round on Flower's simulation as clients grow: small CNN on digits, all clients"
    save("flower-scale", question, [row(clients) for clients in SIZES])
