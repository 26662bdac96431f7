"""One client's work, the same for every engine: its data, its one-time generation, its part of a round."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from torch import nn

from fedeas.algorithms.base import Algorithm, Arrays, ClientJob, Reply
from fedeas.arrays import IntArray
from fedeas.config import TrainConfig
from fedeas.data.client import ClientData
from fedeas.engines.base import Task
from fedeas.generators.base import Generator, image_index

LoadClient = Callable[[int], ClientData]


@dataclass
class Worker:
    """Holds what clients share in one process: algorithm, model workspace, generator, and their data once made."""

    algorithm: Algorithm
    model: nn.Module
    load_client: LoadClient
    allocation: IntArray
    generator: Generator | None
    train: TrainConfig
    seed: int
    total_rounds: int
    clients: dict[int, ClientData] = field(default_factory=dict)

    def run(self, task: Task, client: int, round: int, broadcast: Arrays, state: Arrays) -> tuple[Reply | None, Arrays]:
        """Do one client's job and give back its reply and its state."""
        if task is Task.SETUP:
            real = self.load_client(client)
            return self.algorithm.setup_client(self._job(client, round, broadcast, state, real)), state
        start = time.perf_counter()
        if client not in self.clients:  # generation happens once, at the client's first participation
            self.clients[client] = self._with_synthetic(self.load_client(client), client)
        data, ready = self.clients[client], time.perf_counter()
        reply, state = self.algorithm.client_update(self._job(client, round, broadcast, state, data))
        spent = {"generate_seconds": ready - start, "train_seconds": time.perf_counter() - ready}
        return replace(reply, metrics={**reply.metrics, **spent}), state

    def _job(self, client: int, round: int, broadcast: Arrays, state: Arrays, data: ClientData) -> ClientJob:
        return ClientJob(client, round, self.seed, self.total_rounds, self.model, data, broadcast, state, self.train)

    def _with_synthetic(self, data: ClientData, client: int) -> ClientData:
        row = self.allocation[client]
        if self.generator is None or not row.any():
            return data
        labels = np.repeat(np.arange(row.size), row)
        index = np.concatenate([image_index(client, int(count)) for count in row])
        return data.joined(self.generator.sample(labels, index), labels)
