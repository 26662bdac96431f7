"""Several clients at once on one GPU: each lane has its own stream, model and recorded steps.

All lanes compute alike and replies come in the order of client ids, so that a result does not depend on which lane
trains which client.
"""

import copy
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn

from fedeas.algorithms.base import Arrays, Reply
from fedeas.core.errors import log
from fedeas.data.client import Normaliser
from fedeas.fast.captured import CapturedSGD, StepContext, keep_list_of_tensors
from fedeas.fast.fused_layers import can_be_doubled, double, fuse_norms, norms_can_be_masked, shortened
from fedeas.federation.engines.base import Task, add_up_to
from fedeas.federation.worker import LocalEngine, Worker
from fedeas.gpu import free_memory

MOST_LANES = 8
"""Most lanes; more are not faster, since the GPU is fully used."""

PRIORITIES = 3
"""Number of lanes whose streams have priority over the others."""

REHEARSALS = 20
"""Steps of each lane to measure the speed of a number of lanes."""

USEFUL = 1.02
"""More lanes are kept if they are faster by this factor."""

RESERVE = 0.2
"""Share of the GPU's memory that stays free."""

Answer = tuple[Reply | None, Arrays]
Result = TypeVar("Result")


class Lane:
    """A workspace for clients that are trained one after the other: a copy of the model, and a stream on its device.

    The first lanes get the largest clients, which determine when a round ends, so their streams have priority. Each
    lane has its own thread: libraries create a handle in each thread, and that cannot be recorded.
    """

    def __init__(self, worker: Worker, normalise: Normaliser, capacity: int, compiled: bool, place: int) -> None:
        device, own = normalise.scale.device, copy.deepcopy(worker.model)
        self.model, self.thread = own, ThreadPoolExecutor(1)
        self.stream: torch.cuda.Stream | None = None
        around: StepContext = nullcontext
        fills = False
        if device.type == "cuda":
            own.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            if compiled:
                compile_for(own, worker.train.batch_size)
            elif not worker.algorithm.differentiates_twice or can_be_doubled(own):
                fuse_norms(own)
                if worker.algorithm.differentiates_twice:
                    double(own)
                around = partial(shortened, own) if worker.precision == "bf16" else nullcontext
                fills = worker.algorithm.stacks and norms_can_be_masked(own)
            keep_list_of_tensors(own)
            self.stream = torch.cuda.Stream(device, priority=min(0, place - PRIORITIES))  # type: ignore[no-untyped-call]
        self.trainer = CapturedSGD(own, normalise, capacity, around, fills)

    def start(self, work: Callable[..., Result], *arguments: object) -> Future[Result]:
        """Run `work` in the lane's thread and on its stream."""

        def inside() -> Result:
            with nullcontext() if self.stream is None else torch.cuda.stream(self.stream):
                return work(*arguments)

        return self.thread.submit(inside)

    @property
    def preparing(self) -> float:
        """Seconds spent so far on compiling and recording."""
        return self.trainer.preparing


def compile_for(model: nn.Module, batch_size: int) -> None:
    """Compile the model's training on full batches; last batches have too many sizes to be worth it."""
    plain, quick = model.forward, torch.compile(model.forward, dynamic=False)

    def forward(images: Tensor) -> Tensor:
        chosen = quick if model.training and len(images) == batch_size else plain
        result: Tensor = chosen(images)
        return result

    model.forward = forward


class LanesEngine(LocalEngine):
    """Trains the clients of a round in lanes; set-up exchanges and states are handled as in the reference engine.

    Args:
        worker: does a client's job.
        normalise: normalises the images; the lanes use its device.
        capacity: samples of the largest client.
        lanes: number of lanes, or 0 to choose: as many as fit by the memory that the first client takes, then only
            as many of these as make training faster.
        compiled: compile the model, which takes a while and pays for long runs.
    """

    def __init__(
        self, worker: Worker, normalise: Normaliser, capacity: int, lanes: int = 0, compiled: bool = False
    ) -> None:
        super().__init__(worker)
        self.normalise, self.capacity, self.compiled = normalise, capacity, compiled
        self.device = normalise.scale.device
        self.given = lanes > 0
        self.lanes: list[Lane] = []
        self._open(lanes or 1)

    def map(self, task: Task, broadcast: Arrays, clients: Sequence[int], round: int) -> list[Reply]:
        """Train all clients, largest first, as many at a time as there are lanes."""
        if task is not Task.TRAIN:
            return super().map(task, broadcast, clients, round)
        self.count.start(len(clients))
        self.worker.prepare(clients)
        start, answers = time.perf_counter(), dict[int, Answer]()
        choosing = not self.given and self.device.type == "cuda"
        if choosing:  # the first client shows how much memory a lane takes
            first = max(clients, key=self.worker.size)
            answers[first] = self._train_first(broadcast, first, round)
        while len(answers) < len(clients):
            left = [client for client in clients if client not in answers]
            done, out_of_memory = self._train_in_lanes(broadcast, left, round)
            answers.update(done)
            if out_of_memory:
                number = len(self.lanes) // 2
                self.lanes = []  # free their graphs and buffers before new lanes are made
                free_memory()
                self._open(number)
                log.warning("out of memory; continuing with %d clients at once", number)
        if choosing:
            self._close_useless()
        self.states.update({client: state for client, (_, state) in answers.items() if state})
        replies = [reply for client in sorted(answers) if (reply := answers[client][0]) is not None]
        return add_up_to(time.perf_counter() - start, replies)

    def close(self) -> None:
        """End the threads, and free the memory of the lanes' models and recorded steps."""
        while self.lanes:
            self.lanes.pop().thread.shutdown()
        free_memory()

    def _train_in_lanes(self, broadcast: Arrays, clients: Sequence[int], round: int) -> tuple[dict[int, Answer], bool]:
        """Train clients in the lanes; the second value tells whether memory ran out, and some clients are left.

        The caller makes fewer lanes: only after this has returned does nothing refer to the old ones.
        """
        waiting = deque(sorted(clients, key=lambda client: (-self.worker.size(client), client)))
        done: dict[int, Answer] = {}

        def work(lane: Lane, client: int | None) -> None:
            while client is not None:
                done[client] = self._train_one(lane, broadcast, client, round)
                client = _first(waiting)

        self._wait_for_each_other()
        busy = self.lanes[: len(clients)]
        firsts = [_first(waiting) for _ in busy]
        jobs = [lane.start(work, lane, client) for lane, client in zip(busy, firsts, strict=True)]
        wait(jobs)
        self._wait_for_each_other()
        errors = [error for job in jobs if (error := job.exception()) is not None]
        for error in errors:
            if not isinstance(error, torch.OutOfMemoryError) or len(self.lanes) == 1:
                raise error
        return done, bool(errors)

    def _train_one(self, lane: Lane, broadcast: Arrays, client: int, round: int) -> Answer:
        answer = self.worker.run(Task.TRAIN, client, round, broadcast, self.states.get(client, {}), lane)
        self.count.add()
        return answer

    def _train_first(self, broadcast: Arrays, client: int, round: int) -> Answer:
        """Train one client alone, and open as many lanes as the memory it took allows."""
        self._wait_for_each_other()
        before = torch.cuda.memory_reserved(self.device)
        answer = self.lanes[0].start(self._train_one, self.lanes[0], broadcast, client, round).result()
        torch.cuda.synchronize(self.device)
        taken = max(1, torch.cuda.memory_reserved(self.device) - before)
        lanes = lanes_for(taken, *torch.cuda.mem_get_info(self.device))
        self._open(lanes)
        log.info("room for %d lanes of %.1f GB", lanes, taken / 1e9)
        return answer

    def _close_useless(self) -> None:
        """Close the lanes that do not make training faster; once, after a round in which all have recorded."""
        self.given = True
        numbers = sorted({1, 2, 4, 6, len(self.lanes)} & set(range(1, len(self.lanes) + 1)))
        speeds = {number: self._steps_per_second(number) for number in numbers}
        self.lanes = self.lanes[: fewest_useful(speeds)]
        free_memory()
        found = ", ".join(f"{number}: {speed:,.0f}" for number, speed in speeds.items())
        log.info("%d lanes chosen; steps a second by lanes: %s", len(self.lanes), found)

    def _steps_per_second(self, lanes: int) -> float:
        torch.cuda.synchronize(self.device)
        start = time.perf_counter()
        for _ in range(REHEARSALS):
            for lane in self.lanes[:lanes]:
                lane.start(lane.trainer.rehearse)
        wait([lane.start(lambda: None) for lane in self.lanes[:lanes]])
        torch.cuda.synchronize(self.device)
        return lanes * REHEARSALS / (time.perf_counter() - start)

    def _open(self, lanes: int) -> None:
        for place in range(len(self.lanes), lanes):
            self.lanes.append(Lane(self.worker, self.normalise, self.capacity, self.compiled, place))

    def _wait_for_each_other(self) -> None:
        """Synchronise the streams: lanes start after their inputs are written, and results are read after they end."""
        streams = [lane.stream for lane in self.lanes if lane.stream is not None]
        for stream in streams:
            stream.wait_stream(torch.cuda.current_stream(stream.device))
            torch.cuda.current_stream(stream.device).wait_stream(stream)


def _first(waiting: deque[int]) -> int | None:
    try:
        return waiting.popleft()
    except IndexError:  # another lane took the last one
        return None


def fewest_useful(speeds: dict[int, float]) -> int:
    """The fewest lanes that are about as fast as the fastest number.

    >>> fewest_useful({1: 400.0, 2: 600.0, 4: 770.0, 8: 780.0})
    4
    """
    best = max(speeds.values())
    return min(number for number, speed in speeds.items() if speed * USEFUL >= best)


def lanes_for(taken: int, free: int, whole: int) -> int:
    """How many lanes fit into memory, if the first took `taken` bytes and `free` of `whole` bytes are free.

    >>> lanes_for(taken=2, free=9, whole=10)
    4
    """
    spare = max(0.0, free - RESERVE * whole)
    return min(MOST_LANES, 1 + int(spare // taken))
