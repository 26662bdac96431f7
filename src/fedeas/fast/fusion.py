"""All clients of a round trained together on one GPU, as one stacked model.

Every client has a thread, which runs its part of the algorithm. The threads wait for each other where they train:
the last one trains all clients, then each continues with its own result. Algorithms need no change for this.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

import torch
from torch import nn

from fedeas.algorithms.base import Arrays, ClientJob, Reply
from fedeas.algorithms.local_sgd import LocalResult, Objective
from fedeas.core.errors import log
from fedeas.data.client import Normaliser
from fedeas.fast.fused import Awaited, FusedSGD
from fedeas.fast.stacked import Stack
from fedeas.federation.engines.base import Task, add_up_to
from fedeas.federation.worker import LocalEngine, Worker
from fedeas.gpu import free_memory

MOST = 32
"""Most clients that are trained together; more are not faster, since the GPU is fully used."""


class JointTraining:
    """A barrier where clients wait until all are ready to train; then all are trained together."""

    def __init__(self, clients: Sequence[int], fused: FusedSGD, thread: ThreadPoolExecutor) -> None:
        self.clients, self.fused, self.thread = clients, fused, thread
        self.present: dict[int, tuple[ClientJob, Objective]] = {}
        self.results: dict[int, LocalResult] = {}
        self.barrier = threading.Barrier(len(clients), action=self._train_all)
        self.turn = threading.Lock()  # one thread at a time: competing for the interpreter would slow all down
        self.launched = threading.Event()

    def join(self, job: ClientJob, objective: Objective) -> LocalResult:
        """Wait for the other clients and be trained with them; a waiting thread lets the next one run.

        The training may still run on the GPU when this returns.
        """
        self.present[job.client] = job, objective
        self.turn.release()
        try:
            self.barrier.wait()
        finally:
            self.turn.acquire()
        return self.results[job.client]

    def _train_all(self) -> None:
        jobs, objectives = zip(*(self.present[client] for client in self.clients), strict=True)
        # Always in the same thread: libraries create a handle in each thread, and that cannot be recorded.
        results = self.thread.submit(self.fused, jobs, objectives).result()
        self.results.update(zip(self.clients, results, strict=True))
        self.launched.set()


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
        """The client's share of the seconds spent so far on compiling and recording."""
        return self.training.fused.preparing / len(self.training.clients)


class FusionEngine(LocalEngine):
    """Trains the clients of a round together; set-up exchanges and states are handled as in the reference engine.

    On a GPU it overlaps: `map` calls `work_meanwhile` when the training has begun, and returns before its end; metrics
    of the replies are then `Awaited`.

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
        self.clients, self.training = ThreadPoolExecutor(self.together), ThreadPoolExecutor(1)
        self.overlaps = normalise.scale.is_cuda
        self.meanwhile: Callable[[], None] | None = None
        self.fused: FusedSGD | None = None

    def map(self, task: Task, broadcast: Arrays, clients: Sequence[int], round: int) -> list[Reply]:
        """Train all clients, largest first, as many at a time as can be trained together."""
        if task is not Task.TRAIN:
            return super().map(task, broadcast, clients, round)
        self.count.start(len(clients))
        if self.worker.makes_images_for(clients):
            self.work_meanwhile()  # this takes long, and its time is measured apart
        self.worker.prepare(clients)
        start, replies = time.perf_counter(), list[Reply]()
        waiting = sorted(clients, key=lambda client: (-self.worker.size(client), client))
        while waiting:
            together = waiting[: self.together]
            try:
                replies += self._train_together(broadcast, together, round)
            except torch.OutOfMemoryError:
                if self.together == 1:
                    raise
            else:
                waiting = waiting[len(together) :]
                self.count.add(len(together))
                continue
            self.together //= 2  # out of the handler, because the error holds on to memory
            self.fused = None  # free its memory before a new one is made
            free_memory()
            log.warning("out of memory; continuing with %d clients at once", self.together)
        replies.sort(key=lambda reply: reply.client)
        return replies if self.overlaps else add_up_to(time.perf_counter() - start, replies)

    def work_meanwhile(self) -> None:
        """Do the work of `meanwhile`, unless it is done: the host reads the results of the round before."""
        work, self.meanwhile = self.meanwhile, None
        if work is not None:
            work()

    def close(self) -> None:
        """End the threads, and free the memory of the stacked model and its recorded steps."""
        self.clients.shutdown()
        self.training.shutdown()
        self.fused = None
        free_memory()

    def _train_together(self, broadcast: Arrays, clients: Sequence[int], round: int) -> list[Reply]:
        own = self.worker
        if self.fused is None:
            stack = Stack(own.model, self.together, self.shape, whole=own.train.weight_decay > 0)
            if own.precision == "bf16" and self.normalise.scale.is_cuda:
                stack.shorten()
            self.fused = FusedSGD(stack, own.train, self.normalise, self.capacity)
        fused = self.fused
        joint = JointTraining(clients, fused, self.training)

        def work(client: int, model: nn.Module) -> tuple[Reply | None, Arrays]:
            try:
                with joint.turn:
                    space, state = JointWorkspace(model, joint), self.states.get(client, {})
                    reply, state = own.run(Task.TRAIN, client, round, broadcast, state, space)
                    return reply if reply is None or self.overlaps else awaited(reply), state
            except BaseException:
                joint.barrier.abort()  # the others must not wait for this one
                raise
            finally:
                joint.launched.set()  # if clients fail or do not train, it is not set yet

        jobs = {
            client: self.clients.submit(work, client, model)
            for client, model in zip(clients, fused.models, strict=False)
        }
        joint.launched.wait()
        try:
            self.work_meanwhile()
        finally:
            wait(jobs.values())
        errors = [error for job in jobs.values() if (error := job.exception()) is not None]
        for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
            raise error  # the original one rather than those of threads that waited for it
        answers = {client: job.result() for client, job in jobs.items()}
        self.states.update({client: state for client, (_, state) in answers.items() if state})
        return [reply for reply, _ in answers.values() if reply is not None]


def awaited(reply: Reply) -> Reply:
    """The same reply when all metrics are known."""
    known = {name: float(each) if isinstance(each, Awaited) else each for name, each in reply.metrics.items()}
    return replace(reply, metrics=known)
