"""What does a round of each algorithm cost, against FedAvg's?"""

from __future__ import annotations

import time

import numpy as np
import torch
from measure import save

from fedeas.algorithms import parse_algorithm
from fedeas.algorithms.base import Fleet
from fedeas.config import TrainConfig
from fedeas.data.client import ClientData, Normaliser
from fedeas.federation.rounds import Schedule, federate, set_up
from fedeas.federation.worker import LocalEngine, Worker
from fedeas.models.build import build_model

SPECS = ["fedavg", "fedprox", "scaffold", "scaffold(option=I)", "moon", "fedmix", "fedgen"]
CLIENTS, ROUNDS, SIZE = 10, 5, 72


def seconds_a_round(spec: str) -> float:
    """Ten clients of digits' size, five local epochs, without set-up and evaluation."""
    rng = np.random.default_rng(0)
    normalise = Normaliser.of((0.5,), (0.25,))
    images, labels = rng.integers(0, 256, (SIZE, 1, 8, 8), dtype=np.uint8), np.arange(SIZE) % 10
    algorithm, model = parse_algorithm(spec), build_model("small-cnn", (1, 8, 8), 10, seed=0)
    train, nothing = TrainConfig(lr=0.05, epochs=5), np.zeros((CLIENTS, 10), dtype=np.int64)

    def data(client: int) -> ClientData:
        return ClientData.of(images, labels, normalise)

    engine = LocalEngine(Worker(algorithm, model, data, nothing, None, train, 0, ROUNDS))
    server = set_up(algorithm, engine, algorithm.init(model, Fleet(np.full(CLIENTS, SIZE), 10)), CLIENTS)
    server = federate(algorithm, engine, server, Schedule(2, CLIENTS, CLIENTS, 0), lambda state: {})
    start = time.perf_counter()
    federate(algorithm, engine, server, Schedule(2 + ROUNDS, CLIENTS, CLIENTS, 0, start=2), lambda state: {})
    return (time.perf_counter() - start) / ROUNDS


def main() -> None:
    torch.set_num_threads(1)
    spent = {spec: seconds_a_round(spec) for spec in SPECS}
    rows: list[dict[str, object]] = [
        {"algorithm": spec, "ms a round": round(1e3 * each), "times FedAvg": round(each / spent["fedavg"], 2)}
        for spec, each in spent.items()
    ]
    save("algorithms", "A round of each algorithm: ten clients of 72 digits, five local epochs, one thread", rows)


if __name__ == "__main__":
    main()
