"""Several clients at once on the cores of a CPU: worker processes train them, and tensors are in shared memory.

Replies come in the order of client ids and states are kept in this process. So results do not depend on which
process trains a client, on whether one dies, or on whether processes are used at all.

A worker process keeps nothing between two jobs: each job names the places of its data, the broadcast and the client's
state. So a process that dies can be replaced at any time.
"""

from __future__ import annotations

import math
import mmap
import multiprocessing
import os
import pickle
import subprocess
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedeas.algorithms.base import Arrays, Reply
from fedeas.algorithms.fedavg import FedAvg
from fedeas.config.sections import EngineConfig
from fedeas.core.errors import FedEASError, RunError, log
from fedeas.core.spec import current_folder_first
from fedeas.data.client import ClientData, Normaliser
from fedeas.federation.engines.base import Engine, Task, add_up_to
from fedeas.federation.metrics import Evaluation
from fedeas.federation.rounds import OnRound, Probes, Schedule, federate
from fedeas.federation.worker import LocalEngine, Worker

START_SECONDS = 3.0  # seconds to start worker processes, mostly for importing torch

SHORT_ROUND = 0.05  # seconds of training below which a round is too short for processes

MOST_DEATHS = 2  # deaths in a row for each process, after which the run continues without processes


def divided_cores(settings: EngineConfig, participants: int) -> tuple[int, int]:
    """The number of worker processes and the threads of each client, given the clients of a round.

    The cores that torch may use are divided among the clients, whether these are trained at once or not: the last bits
    of a result depend on the threads of a client.
    """
    cores = torch.get_num_threads()
    at_once = min(cores, participants)
    inside = multiprocessing.parent_process() is not None  # the parent process divides the cores
    alone = settings.name == "local" or (inside and not settings.processes)
    return 1 if alone else min(settings.processes or at_once, participants), cores // at_once


def plain_engine(
    worker: Worker, shape: tuple[int, int, int], normalise: Normaliser, capacity: int,
    chosen: EngineConfig, participants: int,
) -> LocalEngine:  # fmt: skip
    """Several clients at once on the cores of a CPU; on other devices one after the other."""
    if normalise.scale.device.type != "cpu":
        return LocalEngine(worker)
    processes, threads = divided_cores(chosen, participants)
    if processes == 1:
        return LocalEngine(worker, threads)
    return ProcessesEngine(worker, processes, threads, given=chosen.processes > 0)


MakeEngine = Callable[[Worker, tuple[int, int, int], Normaliser, int, EngineConfig, int], Engine]
"""Takes the worker, the shape and the normaliser of images, the samples of the largest client, the config's choice, and
the clients in a round."""

Federate = Callable[[FedAvg, Engine, Arrays, Schedule, Evaluation, Probes, OnRound], Arrays]
"""A loop over rounds that computes the same as `rounds.federate`."""


@dataclass(frozen=True)
class Backend:
    """The parts that train and test a run; a caller may pass faster ones than these.

    Args:
        engine: makes the engine.
        evaluation: makes the test of the server's model.
        federate: the loop over rounds.
        waking: the context in which data are loaded and parts are built.
    """

    engine: MakeEngine = plain_engine
    evaluation: type[Evaluation] = Evaluation
    federate: Federate = federate
    waking: Callable[[], AbstractContextManager[object]] = nullcontext


PLAIN = Backend()
BackendFor = Callable[[torch.device], Backend]  # returns what trains and tests on this device


def pays(seconds: float, participants: int, jobs: int, processes: int) -> bool:
    """Whether processes save clearly more time than their start costs, if a client takes `seconds`.

    >>> pays(0.02, participants=10, jobs=2000, processes=2), pays(0.02, participants=10, jobs=150, processes=2)
    (True, False)
    """
    saved = seconds * jobs * (1 - 1 / processes)
    return seconds * participants >= SHORT_ROUND and saved >= 2 * START_SECONDS


class ProcessesEngine(LocalEngine):
    """Trains the clients of a round in worker processes; set-up exchanges and states are as in the reference engine.

    Data are loaded and images made in this process. Processes are used from the start if their number is `given`, else
    as soon as the time of the first clients shows that they pay.
    """

    def __init__(self, worker: Worker, processes: int, threads: int = 1, given: bool = True) -> None:
        super().__init__(worker, threads)
        self.processes, self.given = processes, given
        self.team: list[Child] = []
        self.deaths = 0
        self.data, self.broadcast = Block(), Block()
        self.setup: Places = {}
        self.samples: dict[int, Places] = {}
        self.seconds: list[float] = []

    def close(self) -> None:
        """End the processes, all at once; later jobs start new ones."""
        for process in self.team:
            process.popen.kill()
        while self.team:
            self.team.pop().end()

    def _run_some(
        self, task: Task, broadcast: Arrays, clients: Sequence[int], round: int
    ) -> Mapping[int, Reply | None]:
        """Train all these clients in processes if these pay, else the first one here."""
        if task is not Task.TRAIN:
            return super()._run_some(task, broadcast, clients, round)
        warm = self.seconds[1:]  # without the first client, which finds all caches cold
        if warm and not self.given:
            jobs = len(clients) + self.count.of * (self.worker.total_rounds - round - 1)
            self.given = pays(sum(warm) / len(warm), self.count.of, jobs, self.processes)
        if self.given and self.processes > 1:
            return self._train_in_processes(broadcast, clients, round)
        start = time.perf_counter()
        replies = super()._run_some(task, broadcast, clients[:1], round)
        self.seconds.append(time.perf_counter() - start)
        return replies

    def _train_in_processes(self, broadcast: Arrays, clients: Sequence[int], round: int) -> dict[int, Reply]:
        """The replies, only some of them if processes keep dying. Raises the same error as the reference."""
        start = time.perf_counter()
        waiting = deque(sorted(clients, key=lambda client: (-self.worker.size(client), client)))
        answers: dict[int, Reply | Exception] = {}
        try:
            sent = self.broadcast.write(broadcast)
            while len(answers) < len(clients) and self.processes > 1:
                idle = [process for process in self.team if process.client < 0]
                while waiting and (idle or len(self.team) < self.processes):
                    self._give_job(idle.pop() if idle else None, waiting.popleft(), sent, round)
                self._take_answers(waiting, answers)
        except OSError as error:
            self._give_up(f"worker processes cannot be used ({error})")
        except BaseException:
            self.close()  # unfinished jobs must not answer in the next round
            raise
        for _, answer in sorted(answers.items()):
            if isinstance(answer, Exception):
                raise answer
        replies = [answer for answer in answers.values() if isinstance(answer, Reply)]
        return {reply.client: reply for reply in add_up_to(time.perf_counter() - start, replies)}

    def _give_job(self, process: Child | None, client: int, broadcast: Places, round: int) -> None:
        """Give a client's job to a process, or to a new one; the first time, move its data to shared memory."""
        own = self.worker.clients[client]
        if not self.setup:  # all processes read the worker from there; a job names the place of its client's data
            none: dict[int, ClientData] = {}
            worker = replace(self.worker, load_client=none.__getitem__, generator=None, clients=none)
            content = bytearray(pickle.dumps((worker, own.normalise, self.threads)))
            self.setup = self.data.append({"content": torch.frombuffer(content, dtype=torch.uint8)})
            log.info("training %d clients at once, each in a worker process", self.processes)
        if process is None:
            process = Child(self.data, self.broadcast)
            self.team.append(process)
        if client not in self.samples:
            self.samples[client] = self.data.append({"images": own.images, "labels": own.labels})
            shared = self.data.read(self.samples[client])
            self.worker.clients[client] = replace(own, images=shared["images"], labels=shared["labels"])
        state, end = process.block.write(self.states.get(client, {})), process.block.end
        process.give(Job(client, round, own.num_real, self.setup, self.samples[client], broadcast, state, end))

    def _take_answers(self, waiting: deque[int], answers: dict[int, Reply | Exception]) -> None:
        """Wait for the next answers; the client of a process that died waits for another process."""
        busy: dict[Any, Child] = {process.pipe: process for process in self.team if process.client >= 0}
        for pipe in wait(list(busy)):
            if (process := busy[pipe]) not in self.team:  # all processes were given up in the meantime
                continue
            client, answer = process.client, process.take()
            self.deaths = 0 if answer is not None else self.deaths + 1
            if isinstance(answer, Answer):
                # Tensors are copied, since the block is used again.
                read = (process.block.read(places) for places in (answer.arrays, answer.state))
                arrays, state = ({name: tensor.clone() for name, tensor in part.items()} for part in read)
                if state:
                    self.states[client] = state
                spent = {"generate_seconds": self.worker.generation_seconds.pop(client, 0.0)}
                metrics = {**answer.reply.metrics, **spent}
                answers[client] = replace(answer.reply, arrays=arrays, metrics=metrics)
                self.count.add()
            elif answer is not None:
                answers[client] = answer
            else:
                waiting.appendleft(client)
                process.end()
                self.team.remove(process)
                code = process.popen.returncode
                log.warning("a worker process ended with code %d; its client is trained again", code)
                if self.deaths >= MOST_DEATHS * self.processes:
                    self._give_up("worker processes keep ending")

    def _give_up(self, reason: str) -> None:
        log.warning("%s; from now on clients are trained one after the other", reason)
        self.close()
        self.processes = 1


class Job(NamedTuple):
    """A client's part of a round, as sent to a worker process."""

    client: int
    round: int
    num_real: int
    setup: Places
    data: Places
    broadcast: Places
    state: Places
    answer_at: int


class Answer(NamedTuple):
    """The result of a job, as sent back by a worker process."""

    reply: Reply  # without its tensors
    arrays: Places
    state: Places


class Child:
    """A worker process, the pipe to it, and the block in which it reads states and writes answers.

    `subprocess` starts it, since `multiprocessing` would run the caller's script again unless that is guarded. It has
    its own session, so that Ctrl-C reaches only this process; the worker exits when its pipe is closed.
    """

    def __init__(self, data: Block, broadcast: Block) -> None:
        self.block, self.client = Block(), -1
        self.pipe, theirs = multiprocessing.Pipe()
        shared = [theirs.fileno(), data.descriptor, broadcast.descriptor, self.block.descriptor]
        command = [sys.executable, "-P", "-c", "from fedeas.federation.engines.processes import serve; serve()"]
        path = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        self.popen = subprocess.Popen(
            [*command, *map(str, shared)], env={**os.environ, "PYTHONPATH": path}, pass_fds=shared,
            stdin=subprocess.DEVNULL, stdout=sys.__stderr__, start_new_session=True,
        )  # fmt: skip
        theirs.close()

    def give(self, job: Job) -> None:
        """Send it a job whose state is in its block."""
        self.client = job.client
        with suppress(OSError):  # `take` notices that the process has died
            self.pipe.send(job)

    def take(self) -> Answer | Exception | None:
        """Receive its answer, which may be an error; None if it has died."""
        try:
            answer: Answer | Exception = self.pipe.recv()
        except (EOFError, OSError):
            return None
        self.client = -1
        return answer

    def end(self) -> None:
        """Kill it, since it holds no state, and wait for its end."""
        self.popen.kill()
        self.popen.wait()
        self.pipe.close()


def serve() -> None:
    """The main function of a worker process: do jobs until its pipe is closed."""
    pipe = Connection(int(sys.argv[1]))
    data, broadcast, own = (Block(int(descriptor)) for descriptor in sys.argv[2:])
    jobs: SimpleQueue[Job] = SimpleQueue()

    def listen() -> None:
        with suppress(EOFError, OSError):
            while True:
                jobs.put(pipe.recv())
        os._exit(0)

    Thread(target=listen, daemon=True).start()  # so that the process notices a closed pipe even during a job
    job = jobs.get()
    with current_folder_first():  # where a user's own model or algorithm may lie
        worker, normalise, threads = pickle.loads(data.read(job.setup)["content"].numpy().data)
    torch.set_num_threads(threads)
    while True:
        worker.clients = {job.client: ClientData(num_real=job.num_real, normalise=normalise, **data.read(job.data))}
        pipe.send(answer_to(job, worker, broadcast.read(job.broadcast), own))
        job = jobs.get()


def answer_to(job: Job, worker: Worker, broadcast: Arrays, own: Block) -> Answer | Exception:
    """Do a job; its tensors are in this process's own block."""
    try:
        reply, state = worker.run(Task.TRAIN, job.client, job.round, broadcast, own.read(job.state))
        assert reply is not None  # training always has a reply
        return Answer(replace(reply, arrays={}), own.write(reply.arrays, job.answer_at), own.append(state))
    except Exception as error:
        if not isinstance(error, FedEASError):
            error.add_note(traceback.format_exc())  # a pickled error has no traceback
        with suppress(Exception):  # not every error can be pickled
            if isinstance(pickle.loads(pickle.dumps(error)), Exception):
                return error
        return RunError(f"client {job.client}, round {job.round + 1}: {error!r}")


ALIGNMENT = 64  # alignment in bytes, the same as torch's, since the last bits of a matrix product may depend on it

MOST_TENSORS = 1000
"""A block remembers so many tensors: those of a model are read in every round, those of a client's data rarely."""


Place = tuple[torch.dtype, tuple[int, ...], int]  # type, shape and position of a tensor in a block

Places = dict[str, Place]


class Block:
    """A file without a name, mapped into the memory of every process that has its descriptor.

    The system frees it with the last of these processes, even if all are killed, so that nothing is left behind. It is
    not in /dev/shm, which `multiprocessing` and torch use and which many containers limit to 64 MB.

    >>> block = Block()
    >>> places = block.write({"weight": torch.eye(2)})
    >>> Block(os.dup(block.descriptor)).read(places)["weight"].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    def __init__(self, descriptor: int | None = None) -> None:
        if descriptor is None and hasattr(os, "memfd_create"):  # Linux
            descriptor = os.memfd_create("fedeas")
        elif descriptor is None:
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        self.descriptor = descriptor
        self.map: mmap.mmap | None = None
        self.tensors: dict[Place, Tensor] = {}
        self.end = 0

    def write(self, arrays: Mapping[str, Tensor], start: int = 0) -> Places:
        """Write tensors one after the other from `start` on; sets `end` to the first free byte."""
        places, self.end = {}, start
        for name, tensor in arrays.items():
            places[name] = tensor.dtype, tuple(tensor.shape), self.end
            self.end += math.ceil(tensor.numel() * tensor.itemsize / ALIGNMENT) * ALIGNMENT
        if self.end > os.fstat(self.descriptor).st_size:
            os.ftruncate(self.descriptor, 2 * self.end)  # parts that are never written take no memory
        for name, there in self.read(places).items():
            there.copy_(arrays[name].detach())
        return places

    def append(self, arrays: Arrays) -> Places:
        """Write tensors after those that were written last."""
        return self.write(arrays, self.end)

    def read(self, places: Places) -> Arrays:
        """The tensors at these places, without a copy."""
        arrays = {}
        for name, place in places.items():
            dtype, shape, start = place
            count = math.prod(shape)
            if count == 0:
                arrays[name] = torch.empty(shape, dtype=dtype)
                continue
            if place not in self.tensors:
                if self.map is None or start + count * dtype.itemsize > len(self.map):
                    self.map = mmap.mmap(self.descriptor, 0)  # the whole file; earlier tensors keep the earlier map
                if len(self.tensors) >= MOST_TENSORS:
                    self.tensors.clear()
                self.tensors[place] = torch.frombuffer(self.map, dtype=dtype, count=count, offset=start).view(shape)
            arrays[name] = self.tensors[place]
        return arrays

    def __del__(self) -> None:
        os.close(self.descriptor)
