"""The work of one client, the same for every engine, and the plain engine: one client after the other."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from fedeas.algorithms.base import Arrays, ClientJob, Reply
from fedeas.algorithms.fedavg import FedAvg
from fedeas.config.sections import TrainConfig
from fedeas.core.arrays import IntArray, stream_seed
from fedeas.core.devices import torch_threads
from fedeas.core.errors import InputError
from fedeas.data.client import ClientData
from fedeas.federation.engines.base import ClientCount, Engine, Task
from fedeas.generators.base import Generator, plan_addresses

LoadClient = Callable[[int], ClientData]

BATCHES = 8  # the least number of batches in a request to a generator: the last one is filled up, which costs time


class Workspace(Protocol):
    """A model and a trainer for one client, from an engine that trains several clients at once."""

    model: nn.Module

    @property
    def trainer(self) -> Callable[[ClientJob, Any], Any]:
        """Replaces the plain training loop."""

    @property
    def preparing(self) -> float:
        """Seconds spent so far on compiling and recording, which are not needed again for later clients."""


@dataclass
class Worker:
    """The shared parts of the clients of one process: algorithm, model, generator, and the data prepared so far.

    `upcoming` has clients in the order in which they will train, perhaps several times; their images are made ahead.
    """

    algorithm: FedAvg
    model: nn.Module
    load_client: LoadClient
    allocation: IntArray
    generator: Generator | None
    train: TrainConfig
    seed: int
    total_rounds: int
    precision: str = "fp32"
    upcoming: Iterator[int] = field(default_factory=lambda: iter(()))
    clients: dict[int, ClientData] = field(default_factory=dict)
    generation_seconds: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        batch_norm = nn.modules.batchnorm._BatchNorm
        if self.train.batch_size == 1 and any(isinstance(module, batch_norm) for module in self.model.modules()):
            raise InputError("train.batch_size=1: batch norm needs more images; raise it or set model.norm=group")

    def prepare(self, clients: Iterable[int]) -> None:
        """Load the data and make the images of those clients that are not prepared yet, all together.

        If images must be made, so are those of clients of later rounds, until the request is large enough.
        """
        newcomers = sorted(set(clients) - self.clients.keys())
        start, chosen = time.perf_counter(), list(newcomers)
        enough = BATCHES * self.generator.batch_size if self.generator is not None else 0
        while 0 < self.allocation[chosen].sum() < enough and (client := next(self.upcoming, None)) is not None:
            if client not in self.clients and client not in chosen:
                chosen.append(client)
        loaded = {client: self.load_client(client) for client in chosen}
        if self.generator is not None and self.allocation[chosen].any():
            addresses = [plan_addresses(client, self.allocation[client]) for client in chosen]
            labels, index = (np.concatenate(column) for column in zip(*addresses, strict=True))
            images = self.generator.sample(labels, index)  # in one request, so that the generator's batches are full
            for client, (own, _) in zip(chosen, addresses, strict=True):
                loaded[client] = loaded[client].joined(images[: len(own)], own)
                images = images[len(own) :]
        self.clients.update(loaded)
        spent = time.perf_counter() - start
        self.generation_seconds.update({client: spent / len(newcomers) for client in newcomers})

    def makes_images_for(self, clients: Iterable[int]) -> bool:
        """Whether images must be made before these clients can train."""
        newcomers = sorted(set(clients) - self.clients.keys())
        return self.generator is not None and bool(self.allocation[newcomers].any())

    def run(
        self, task: Task, client: int, round: int, broadcast: Arrays, state: Arrays,
        workspace: Workspace | None = None,
    ) -> tuple[Reply | None, Arrays]:  # fmt: skip
        """Do one client's job and return its reply and state; `workspace` replaces the worker's model and trainer."""
        if task is Task.TRAIN:
            self.prepare([client])  # does nothing if the engine has prepared all clients of the round
        data = self.clients[client] if task is Task.TRAIN else self.load_client(client)
        model, trainer = (workspace.model, workspace.trainer) if workspace else (self.model, None)
        start, before = time.perf_counter(), workspace.preparing if workspace else 0.0
        job = ClientJob(
            client, round, self.seed, self.total_rounds, model, data, broadcast, state, self.train, self.precision,
            trainer,
        )  # fmt: skip
        with random_numbers_of(job):
            if task is Task.SETUP:
                return self.algorithm.setup_client(job), state
            reply, state = self.algorithm.client_update(job)
        prepared = workspace.preparing - before if workspace else 0.0
        spent = {"prepare_seconds": prepared, "train_seconds": time.perf_counter() - start - prepared}
        spent["generate_seconds"] = self.generation_seconds.pop(client, 0.0)
        return replace(reply, metrics={**spent, **reply.metrics}), state

    def size(self, client: int) -> int:
        """Number of samples of a prepared client, real and synthetic."""
        return len(self.clients[client])


@contextmanager
def random_numbers_of(job: ClientJob) -> Iterator[None]:
    """Take torch's global random numbers, as of dropout, from the job's own stream; afterwards restore their state.

    Nothing is changed if an engine trains several clients at once: their threads share the global state.
    """
    if job.trainer is not None:
        yield
        return
    device = job.data.labels.device
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        torch.default_generator.manual_seed(stream_seed("training", job.seed, job.round, job.client))
        if on_gpu:
            torch.cuda.manual_seed(stream_seed("training-gpu", job.seed, job.round, job.client))
        yield


class LocalEngine(Engine):
    """Runs every client in this process, on `threads` threads; the fast engines are tested against it."""

    def __init__(self, worker: Worker, threads: int | None = None) -> None:
        self.worker, self.threads = worker, threads or torch.get_num_threads()
        self.states: dict[int, Arrays] = {}
        self.count = ClientCount()

    def map(self, task: Task, broadcast: Arrays, clients: Sequence[int], round: int) -> list[Reply]:
        """Run one client after the other, in the order of client ids."""
        self.count.start(len(clients))
        if task is Task.TRAIN:
            self.worker.prepare(clients)
        left, replies = sorted(clients), dict[int, Reply | None]()
        while left:
            replies |= self._run_some(task, broadcast, left, round)
            left = [client for client in left if client not in replies]
        return [reply for _, reply in sorted(replies.items()) if reply is not None]

    def _run_some(
        self, task: Task, broadcast: Arrays, clients: Sequence[int], round: int
    ) -> Mapping[int, Reply | None]:
        """Run at least one of these clients, here all of them."""
        replies = dict[int, Reply | None]()
        with torch_threads(self.threads):
            for client in clients:
                state = self.states.get(client, {})
                replies[client], state = self.worker.run(task, client, round, broadcast, state)
                if state:
                    self.states[client] = state
                self.count.add()
        return replies

    def client_states(self) -> dict[int, Arrays]:
        """The states of all clients that have one."""
        return self.states

    def restore(self, states: dict[int, Arrays]) -> None:
        """Set these states."""
        self.states = dict(states)
