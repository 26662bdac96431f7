"""Several clients at once on one GPU: each lane is a stream with a model and recorded steps of its own.

Which lane trains which client is decided before the round by the clients' sizes alone, and replies come in the order of
client ids, so that a result does not depend on which lane happens to be faster.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import nn

from fedeas.algorithms.base import Arrays, Reply
from fedeas.algorithms.captured import CapturedSGD
from fedeas.data.client import Normaliser
from fedeas.engines.base import Task
from fedeas.engines.local import LocalEngine
from fedeas.worker import Worker

MOST_LANES = 8
"""More than these bring nothing: the chip is full."""

RESERVE = 0.2
"""Share of the GPU's memory that lanes leave free."""

log = logging.getLogger("fedeas")

Answer = tuple[Reply | None, Arrays]


@dataclass(eq=False)
class Lane:
    """A workspace for clients that are trained one after the other."""

    model: nn.Module
    trainer: CapturedSGD
    stream: torch.cuda.Stream | None

    @staticmethod
    def of(model: nn.Module, normalise: Normaliser, capacity: int, compiled: bool) -> Lane:
        """A copy of the model in the layout that convolutions prefer, and a stream on its device."""
        device, own = normalise.scale.device, copy.deepcopy(model)
        if device.type != "cuda":
            return Lane(own, CapturedSGD(own, normalise, capacity), None)
        own = own.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if compiled:
            own.compile(dynamic=False)
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        return Lane(own, CapturedSGD(own, normalise, capacity), stream)

    def entered(self) -> AbstractContextManager[object]:
        """The context in which this lane's work is given to the GPU."""
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)


class LanesEngine(LocalEngine):
    """Trains the clients of a round in lanes; set-up exchanges and states are the reference engine's.

    Args:
        worker: what does a client's job.
        normalise: of the images; its device is where the lanes are.
        capacity: samples of the largest client.
        lanes: how many, or 0 to choose by the memory that a first client takes.
        compiled: compile the model of every lane, which takes minutes and pays for long runs.
    """

    def __init__(
        self, worker: Worker, normalise: Normaliser, capacity: int, lanes: int = 0, compiled: bool = False
    ) -> None:
        super().__init__(worker)
        self.normalise, self.capacity, self.compiled = normalise, capacity, compiled
        self.wanted = lanes
        self.lanes = self._opened(lanes or 1)

    def map(self, task: Task, broadcast: Arrays, clients: Sequence[int], round: int) -> list[Reply]:
        """All clients, longest first, as many at a time as there are lanes."""
        if task is not Task.TRAIN:
            return super().map(task, broadcast, clients, round)
        self.worker.prepare(clients)
        answers: dict[int, Answer] = {}
        if not self.wanted:  # the first client shows what a lane takes
            first = max(clients, key=self.worker.size)
            answers[first] = self._measured(broadcast, first, round)
        while len(answers) < len(clients):
            left = [client for client in clients if client not in answers]
            answers.update(self._at_once(broadcast, left, round))
        self.states.update({client: state for client, (_, state) in answers.items() if state})
        return [reply for client in sorted(answers) if (reply := answers[client][0]) is not None]

    def _at_once(self, broadcast: Arrays, clients: Sequence[int], round: int) -> dict[int, Answer]:
        """What the lanes got done; out of memory, there are fewer of them and some clients left."""
        loads = assigned({client: self.worker.size(client) for client in clients}, len(self.lanes))
        done: dict[int, Answer] = {}

        def work(lane: Lane, load: list[int]) -> None:
            for client in load:
                done[client] = self._one(lane, broadcast, client, round)

        self._wait_for_each_other()
        with ThreadPoolExecutor(len(self.lanes)) as pool:
            jobs = [pool.submit(work, lane, load) for lane, load in zip(self.lanes, loads, strict=True)]
        self._wait_for_each_other()
        errors = [error for job in jobs if (error := job.exception()) is not None]
        for error in errors:
            if not isinstance(error, torch.OutOfMemoryError) or len(self.lanes) == 1:
                raise error
        if errors:
            self._fewer()
        return done

    def _one(self, lane: Lane, broadcast: Arrays, client: int, round: int) -> Answer:
        with lane.entered():
            return self.worker.run(Task.TRAIN, client, round, broadcast, self.states.get(client, {}), lane)

    def _measured(self, broadcast: Arrays, client: int, round: int) -> Answer:
        """Train one client alone, and open as many lanes as the memory it took allows."""
        device = self.normalise.scale.device
        if device.type != "cuda":
            self.wanted = 1
            return self._one(self.lanes[0], broadcast, client, round)
        self._wait_for_each_other()
        before = torch.cuda.memory_reserved(device)
        answer = self._one(self.lanes[0], broadcast, client, round)
        torch.cuda.synchronize(device)
        taken = max(1, torch.cuda.memory_reserved(device) - before)
        free, whole = torch.cuda.mem_get_info(device)
        self.wanted = lanes_for(taken, free, whole)
        self.lanes += self._opened(self.wanted - 1)
        log.info("%d lanes, %.1f GB each", self.wanted, taken / 1e9)
        return answer

    def _opened(self, count: int) -> list[Lane]:
        return [Lane.of(self.worker.model, self.normalise, self.capacity, self.compiled) for _ in range(count)]

    def _fewer(self) -> None:
        self.wanted = len(self.lanes) // 2
        self.lanes = []  # with their graphs and buffers, before the new ones are made
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        self.lanes = self._opened(self.wanted)
        log.warning("out of memory; going on with %d clients at once", self.wanted)

    def _wait_for_each_other(self) -> None:
        """What lanes read has been written before they begin, and what they wrote is there before it is read."""
        streams = [lane.stream for lane in self.lanes if lane.stream is not None]
        for stream in streams:
            stream.wait_stream(torch.cuda.current_stream(stream.device))
            torch.cuda.current_stream(stream.device).wait_stream(stream)


def assigned(sizes: dict[int, int], lanes: int) -> list[list[int]]:
    """Which lane trains which clients: the longest first, each to the lane with the least work.

    >>> assigned({0: 5, 1: 9, 2: 4, 3: 1}, 2)
    [[1, 3], [0, 2]]
    """
    loads: list[list[int]] = [[] for _ in range(lanes)]
    work = [0] * lanes
    for client in sorted(sizes, key=lambda client: (-sizes[client], client)):
        lane = work.index(min(work))
        loads[lane].append(client)
        work[lane] += sizes[client]
    return loads


def lanes_for(taken: int, free: int, whole: int) -> int:
    """How many lanes fit beside the first, which took so many bytes, in the free part of the memory.

    >>> lanes_for(taken=2, free=9, whole=10)
    4
    """
    spare = max(0.0, free - RESERVE * whole)
    return min(MOST_LANES, 1 + int(spare // taken))
