"""All clients of a round trained together on one GPU, as one stacked model.

Every client runs its part of the algorithm in a thread of its own. The threads wait for each other where they train:
the last one trains all clients, then each continues with its own result. Algorithms need no change for this.

The clients may be split into groups that are trained at the same time, each as a stacked model of its own. The largest
clients train longest; in a group of their own they need not wait for the others at every step.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise

import torch
from torch import nn

from fedeas.algorithms.base import Arrays, ClientJob, Reply
from fedeas.algorithms.batch_order import batch_sizes
from fedeas.algorithms.fused import FusedSGD
from fedeas.algorithms.local_sgd import LocalResult, Objective
from fedeas.data.client import Normaliser
from fedeas.federation.engines.base import Task, add_up_to
from fedeas.federation.engines.local import LocalEngine
from fedeas.federation.worker import Worker
from fedeas.gpu.devices import free_memory
from fedeas.models.stacked import Stack

MOST = 32
"""Most clients that are trained together; more are not faster, since the GPU is fully used."""

GROUPS = 1
"""Groups of clients that are trained at the same time; 1 until more are measured to be faster."""

STARTING = 5
"""A step of n clients takes about as long as `STARTING` + n units of time (`gpu_rounds.py`)."""

Answer = tuple[Reply | None, Arrays]

log = logging.getLogger("fedeas")


class Group:
    """A stacked model, and the thread and the stream in which its clients are trained; `place` 0 has priority."""

    def __init__(self, fused: FusedSGD, place: int) -> None:
        # Always the same thread: libraries create a handle in each thread, and that cannot be recorded.
        self.fused, self.thread = fused, ThreadPoolExecutor(1)
        apart = fused.device.type == "cuda" and GROUPS > 1
        priority = min(0, place + 1 - GROUPS)
        self.stream = torch.cuda.Stream(fused.device, priority=priority) if apart else None  # type: ignore[no-untyped-call]

    def train(self, jobs: Sequence[ClientJob], objectives: Sequence[Objective]) -> list[LocalResult]:
        """Train these clients, after all that the current stream does now and before all that it does later."""
        work = self.fused if self.stream is None else partial(self._beside, torch.cuda.current_stream())
        return self.thread.submit(work, jobs, objectives).result()

    def _beside(
        self, current: torch.cuda.Stream, jobs: Sequence[ClientJob], objectives: Sequence[Objective]
    ) -> list[LocalResult]:
        assert self.stream is not None
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            results = self.fused(jobs, objectives)
        current.wait_stream(self.stream)
        return results


class JointTraining:
    """A barrier where the clients of a group wait until all are ready to train; then all are trained together.

    `turn` is a lock for all groups: one thread at a time, because competing for the interpreter would slow all down.
    """

    def __init__(self, clients: Sequence[int], group: Group, turn: threading.Lock) -> None:
        self.clients, self.group, self.turn = clients, group, turn
        self.present: dict[int, tuple[ClientJob, Objective]] = {}
        self.results: dict[int, LocalResult] = {}
        self.barrier = threading.Barrier(len(clients), action=self._train_all)

    def join(self, job: ClientJob, objective: Objective) -> LocalResult:
        """Wait for the other clients and be trained with them; a waiting thread lets the next one run."""
        self.present[job.client] = job, objective
        self.turn.release()
        try:
            self.barrier.wait()
        finally:
            self.turn.acquire()
        return self.results[job.client]

    def _train_all(self) -> None:
        jobs, objectives = zip(*(self.present[client] for client in self.clients), strict=True)
        self.results.update(zip(self.clients, self.group.train(jobs, objectives), strict=True))


@dataclass(eq=False)
class JointWorkspace:
    """One client's model in a joint training; its trainer waits for the other clients."""

    model: nn.Module
    training: JointTraining

    def trainer(self, job: ClientJob, objective: Objective) -> LocalResult:
        """Replaces the plain training loop."""
        return self.training.join(job, objective)

    @property
    def preparing(self) -> float:
        """Seconds spent so far on compiling and recording."""
        return self.training.group.fused.preparing


class FusionEngine(LocalEngine):
    """Trains the clients of a round together; set-up exchanges and states are handled as in the reference engine.

    Args:
        worker: does a client's job.
        shape: channels, height and width of the images.
        normalise: normalises the images; training uses its device.
        capacity: samples of the largest client.
        together: number of clients at once; halved if memory runs out.
    """

    def __init__(
        self, worker: Worker, shape: tuple[int, int, int], normalise: Normaliser, capacity: int, together: int
    ) -> None:
        super().__init__(worker)
        self.shape, self.normalise, self.capacity, self.together = shape, normalise, capacity, min(together, MOST)
        self.turn, self.clients = threading.Lock(), ThreadPoolExecutor(self.together)
        self.groups: list[Group] = []

    def map(self, task: Task, broadcast: Arrays, clients: Sequence[int], round: int) -> list[Reply]:
        """Train all clients, largest first, as many at a time as can be trained together."""
        if task is not Task.TRAIN:
            return super().map(task, broadcast, clients, round)
        self.count.start(len(clients))
        self.worker.prepare(clients)
        start, replies = time.perf_counter(), list[Reply]()
        waiting = sorted(clients, key=lambda client: (-self.worker.size(client), client))
        while waiting:
            together = waiting[: self.together]
            try:
                answers = self._train_together(broadcast, together, round)
            except torch.OutOfMemoryError:
                if self.together == 1:
                    raise
            else:
                self.states.update({client: state for client, (_, state) in answers.items() if state})
                replies += [reply for reply, _ in answers.values() if reply is not None]
                waiting = waiting[len(together) :]
                self.count.add(len(together))
                continue
            self._halve()  # out of the handler, because the error holds on to memory
        return add_up_to(time.perf_counter() - start, sorted(replies, key=lambda reply: reply.client))

    def close(self) -> None:
        """End the threads."""
        self.clients.shutdown()
        for group in self.groups:
            group.thread.shutdown()

    def _open(self, groups: int) -> None:
        """Make these groups, if they are needed for the first time."""
        own = self.worker
        for place in range(len(self.groups), groups):
            stack = Stack(own.model, self.together, self.shape, whole=own.train.weight_decay > 0)
            if own.precision == "bf16" and self.normalise.scale.is_cuda:
                stack.shorten()
            self.groups.append(Group(FusedSGD(stack, own.train, self.normalise, self.capacity), place))

    def _halve(self) -> None:
        self.together //= 2
        for group in self.groups:
            group.thread.shutdown()
        self.groups = []  # free their memory before new ones are made
        free_memory()
        log.warning("out of memory; continuing with %d clients at once", self.together)

    def _train_together(self, broadcast: Arrays, clients: Sequence[int], round: int) -> dict[int, Answer]:
        """Train clients, largest first, in groups at the same time; their answers."""
        steps = [len(batch_sizes(self.worker.size(client), self.worker.train)) for client in clients]
        parts = [clients[part] for part in split(steps, GROUPS)]
        self._open(len(parts))
        jobs = list[Future[Answer]]()
        for group, part in zip(self.groups, parts, strict=False):
            own = self._start(JointTraining(part, group, self.turn), broadcast, round)
            jobs += own
            if group.fused.will_compile:
                wait(own)  # processes are forked for it, which must not happen in the middle of other work
        wait(jobs)
        _raise_first([job.exception() for job in jobs])
        return {client: job.result() for client, job in zip(clients, jobs, strict=True)}

    def _start(self, joint: JointTraining, broadcast: Arrays, round: int) -> list[Future[Answer]]:
        """Let each client of a group do its part in a thread of its own."""

        def work(client: int, model: nn.Module) -> Answer:
            try:
                with joint.turn:
                    state = self.states.get(client, {})
                    return self.worker.run(Task.TRAIN, client, round, broadcast, state, JointWorkspace(model, joint))
            except BaseException:
                joint.barrier.abort()  # the others must not wait for this one
                raise

        models = joint.group.fused.models
        return [self.clients.submit(work, *each) for each in zip(joint.clients, models, strict=False)]


def split(steps: Sequence[int], groups: int) -> list[slice]:
    """Split clients, those with the most steps first, into groups such that the slowest group ends soonest.

    >>> split([100, 30, 20, 10], 2)
    [slice(0, 1, None), slice(1, 4, None)]
    """
    number = min(groups, len(steps))
    ways = (
        [slice(*ends) for ends in pairwise((0, *cuts, len(steps)))]
        for cuts in combinations(range(1, len(steps)), number - 1)
    )
    return min(ways, key=lambda parts: max(duration(steps[part]) for part in parts))


def duration(steps: Sequence[int]) -> int:
    """About how long clients train together, those with the most steps first: a step lasts longer with more clients."""
    return STARTING * steps[0] + sum(steps)


def _raise_first(errors: Sequence[BaseException | None]) -> None:
    """Raise the original error rather than those of threads that waited for it."""
    found = [error for error in errors if error is not None]
    for error in sorted(found, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error
