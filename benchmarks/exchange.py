"""What does it cost to share the clients of a round among worker processes, apart from their training?

Clients that only sleep need no core, so that a small machine shows the exchange of many processes: sending the global
model and jobs, and taking over the replies. Its few cores do the work of all processes for it, which makes it rather
too expensive.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import torch
from measure import save

from fedeas.algorithms import FedAvg
from fedeas.algorithms.base import Arrays, ClientJob, Reply, load_model, model_arrays
from fedeas.config import TrainConfig
from fedeas.data.client import ClientData, Normaliser
from fedeas.federation.engines.base import Task
from fedeas.federation.engines.processes import ProcessesEngine
from fedeas.federation.worker import Worker
from fedeas.models.build import build_model

CLIENTS, SHAPE = 32, (3, 32, 32)


@dataclass(frozen=True)
class Sleeping(FedAvg):
    """FedAvg whose clients sleep instead of training."""

    seconds: float = 0.1

    def client_update(self, job: ClientJob) -> tuple[Reply, Arrays]:
        """Take over the global model, sleep, and send it back."""
        load_model(job.model, job.broadcast)
        time.sleep(self.seconds)
        return Reply(job.client, job.data.num_real, model_arrays(job.model)), {}


def seconds_a_round(name: str, asleep: float, processes: int, rounds: int = 5) -> float:
    """Mean seconds of a round, without the first, in which the processes start."""
    model = build_model(name, SHAPE, 10, seed=0)
    data = ClientData.of(np.zeros((2, *SHAPE), np.uint8), np.array([0, 1]), Normaliser.of((0.5,) * 3, (0.25,) * 3))
    nothing = np.zeros((CLIENTS, 10), dtype=np.int64)
    worker = Worker(Sleeping(asleep), model, lambda _: data, nothing, None, TrainConfig(), 0, rounds)
    with closing(ProcessesEngine(worker, processes)) as engine:
        broadcast = model_arrays(model)
        engine.map(Task.TRAIN, broadcast, range(CLIENTS), 0)
        start = time.perf_counter()
        for number in range(rounds):
            engine.map(Task.TRAIN, broadcast, range(CLIENTS), number + 1)
        return (time.perf_counter() - start) / rounds


def main() -> None:
    torch.set_num_threads(1)
    rows = []
    for name, asleep in (("small-cnn", 0.1), ("resnet18", 1.0)):
        for processes in (2, 4, 8, 16):
            least, spent = asleep * CLIENTS / processes, seconds_a_round(name, asleep, processes)
            rows.append(
                {
                    "model": name,
                    "seconds a client sleeps": asleep,
                    "processes": processes,
                    "seconds a round": round(spent, 3),
                    "least": round(least, 3),
                    "times one process": round(asleep * CLIENTS / spent, 2),
                }
            )
            print(rows[-1], flush=True)
    save("exchange", f"A round of {CLIENTS} clients that sleep, in worker processes", rows)


if __name__ == "__main__":
    import exchange  # the processes find the class by the name of its module

    exchange.main()
