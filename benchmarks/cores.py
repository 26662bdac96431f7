"""How do rounds grow with the cores of a CPU, here and on Flower's simulation?

Small networks cannot use several cores for one client. 32 clients of 640 samples train five epochs in a round: one
after the other on one core, in a process for each core on more, and the same on Flower, whose actors train with the
same local loop. What the processes take to start and to end is left out on both sides. Processes that exchange nothing
and never wait for each other show what the machine itself allows: cores that are threads of one core, or slow down
together, are worth less than one each. All of this is measured in turn, and Flower, which is slow to start, once.
"""

from __future__ import annotations

import multiprocessing
import time
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
import torch
from flower_simulation import seconds_a_round
from measure import medians, save

from fedeas.algorithms import FedAvg
from fedeas.algorithms.base import model_arrays
from fedeas.config import TrainConfig
from fedeas.core.arrays import cores
from fedeas.data.client import ClientData, Normaliser
from fedeas.federation.engines.base import Task
from fedeas.federation.engines.processes import ProcessesEngine
from fedeas.federation.rounds import Schedule, federate
from fedeas.federation.worker import LocalEngine, Worker
from fedeas.models.build import build_model

CLIENTS, ROUNDS, EPOCHS, SHAPE, SAMPLES = 32, 3, 5, (1, 8, 8), 640


def new_worker() -> Worker:
    rng, model = np.random.default_rng(0), build_model("small-cnn", SHAPE, 10, seed=0)
    images, labels = rng.integers(0, 256, (SAMPLES, *SHAPE), dtype=np.uint8), rng.integers(0, 10, SAMPLES)
    data = ClientData.of(images, labels, Normaliser.of((0.5,), (0.25,)))
    train, nothing = TrainConfig(lr=0.05, batch_size=64, epochs=EPOCHS), np.zeros((CLIENTS, 10), dtype=np.int64)
    return Worker(FedAvg(), model, lambda client: data, nothing, None, train, 0, ROUNDS)


def seconds(number: int) -> float:
    """Seconds a round on this number of cores."""
    worker = new_worker()
    with closing(ProcessesEngine(worker, number) if number > 1 else LocalEngine(worker)) as engine:
        initial = model_arrays(worker.model)
        engine.map(Task.TRAIN, initial, range(number), 0)  # the processes start
        start = time.perf_counter()
        federate(FedAvg(), engine, initial, Schedule(ROUNDS, CLIENTS, CLIENTS, 0), lambda state: {})
        return (time.perf_counter() - start) / ROUNDS


def seconds_apart(number: int) -> float:
    """Seconds a round if this number of processes share the clients and exchange nothing."""
    context = multiprocessing.get_context("spawn")
    together, spent = context.Barrier(number), context.SimpleQueue()
    processes = [context.Process(target=train_apart, args=(CLIENTS // number, together, spent)) for _ in range(number)]
    for process in processes:
        process.start()
    slowest = max(spent.get() for _ in processes)
    for process in processes:
        process.join()
    return float(slowest) / ROUNDS


def train_apart(clients: int, together: Any, spent: Any) -> None:
    torch.set_num_threads(1)
    worker = new_worker()
    engine, initial = LocalEngine(worker), model_arrays(worker.model)
    engine.map(Task.TRAIN, initial, range(1), 0)
    together.wait()
    start = time.perf_counter()
    for number in range(ROUNDS):
        engine.map(Task.TRAIN, initial, range(clients), number)
    spent.put(time.perf_counter() - start)


def main() -> None:
    torch.set_num_threads(1)
    numbers = [number for number in (1, 2, 4, 8, 16) if number <= cores()]
    spent = medians({(run, number): partial(run, number) for run in (seconds, seconds_apart) for number in numbers})
    print("our rounds are measured; now Flower", flush=True)
    flowers = {number: seconds_a_round(new_worker, CLIENTS, CLIENTS, EPOCHS, number, ROUNDS) for number in numbers}
    rows = [
        {
            "cores": number,
            "fedeas, rounds a second": round(1 / spent[seconds, number], 2),
            "times one core": round(spent[seconds, 1] / spent[seconds, number], 2),
            "times one core, exchanging nothing": round(spent[seconds, 1] / spent[seconds_apart, number], 2),
            "Flower, rounds a second": round(1 / flowers[number], 2),
            "times Flower": round(flowers[number] / spent[seconds, number], 1),
        }
        for number in numbers
    ]
    save("cores", f"Rounds of {CLIENTS} clients of {SAMPLES} samples, small CNN, five epochs", rows)


if __name__ == "__main__":
    main()
