"""All clients of a round trained together on one GPU, as one stacked model.

Every client does its part of the algorithm in a thread of its own. They meet where they train: the last to arrive
trains them all, then each goes on with its own result. Algorithms need not know.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

from torch import nn

from fedeas.algorithms.base import Arrays, ClientJob, Reply
from fedeas.algorithms.fused import FusedSGD
from fedeas.algorithms.local_sgd import LocalResult, Objective
from fedeas.engines.base import Task
from fedeas.engines.local import LocalEngine
from fedeas.worker import Worker


class Meeting:
    """Where clients wait until all of them are about to train."""

    def __init__(self, clients: int, fused: FusedSGD) -> None:
        self.fused = fused
        self.present: dict[int, tuple[ClientJob, Objective]] = {}
        self.results: dict[int, LocalResult] = {}
        self.barrier = threading.Barrier(clients, action=self._train_all)
        self.turn = threading.Lock()  # threads that compete for the interpreter would only slow each other down

    def join(self, job: ClientJob, objective: Objective) -> LocalResult:
        """Be trained together with the others; whoever waits gives its turn to the next."""
        self.present[job.client] = job, objective
        self.turn.release()
        try:
            self.barrier.wait()
        finally:
            self.turn.acquire()
        return self.results[job.client]

    def _train_all(self) -> None:
        clients = sorted(self.present)  # whoever came first, the result is the same
        jobs, objectives = zip(*(self.present[client] for client in clients), strict=True)
        self.results.update(zip(clients, self.fused(jobs, objectives), strict=True))


@dataclass(frozen=True, eq=False)
class Seat:
    """What a client brings to a meeting: a model of its own, and the way to train it."""

    model: nn.Module
    meeting: Meeting

    def trainer(self, job: ClientJob, objective: Objective) -> LocalResult:
        """In place of the plain training loop."""
        return self.meeting.join(job, objective)

    @property
    def preparing(self) -> float:
        """Seconds spent so far on compiling and recording."""
        return self.meeting.fused.preparing


class FusionEngine(LocalEngine):
    """Trains the clients of a round together; set-up exchanges and states are the reference engine's."""

    def __init__(self, worker: Worker, fused: FusedSGD) -> None:
        super().__init__(worker)
        self.fused = fused
        self.models = [copy.deepcopy(worker.model) for _ in range(fused.clients)]
        self.pool = ThreadPoolExecutor(fused.clients)

    def map(self, task: Task, broadcast: Arrays, clients: Sequence[int], round: int) -> list[Reply]:
        """All clients together, or as many at a time as can be trained together."""
        if task is not Task.TRAIN:
            return super().map(task, broadcast, clients, round)
        self.worker.prepare(clients)
        replies: list[Reply] = []
        waiting = sorted(clients)
        while waiting:
            together, waiting = waiting[: self.fused.clients], waiting[self.fused.clients :]
            replies += self._together(broadcast, together, round)
        return replies

    def _together(self, broadcast: Arrays, clients: Sequence[int], round: int) -> list[Reply]:
        meeting = Meeting(len(clients), self.fused)

        def work(client: int, model: nn.Module) -> tuple[Reply | None, Arrays]:
            try:
                with meeting.turn:
                    state = self.states.get(client, {})
                    return self.worker.run(Task.TRAIN, client, round, broadcast, state, Seat(model, meeting))
            except BaseException:
                meeting.barrier.abort()  # the others must not wait for this one
                raise

        jobs = {client: self.pool.submit(work, client, model) for client, model in zip(clients, self.models)}
        wait(jobs.values())
        _raise_first([job.exception() for job in jobs.values()])
        answers = {client: job.result() for client, job in jobs.items()}
        self.states.update({client: state for client, (_, state) in answers.items() if state})
        return [reply for reply, _ in answers.values() if reply is not None]


def _raise_first(errors: Sequence[BaseException | None]) -> None:
    """What went wrong itself, rather than what others say who waited for it."""
    found = [error for error in errors if error is not None]
    for error in sorted(found, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error
