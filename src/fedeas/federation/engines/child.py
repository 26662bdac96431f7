"""A worker process that trains clients: both ends of its pipe.

It keeps nothing between two jobs: each job names the places of its data, the broadcast and the client's state. So a
process that dies can be replaced at any time.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, SupportsFloat

import torch

from fedeas.algorithms.base import Arrays
from fedeas.core.errors import FedEASError, RunError
from fedeas.core.own_code import current_folder_first
from fedeas.data.client import ClientData, Normaliser
from fedeas.federation.engines.base import Task
from fedeas.federation.engines.blocks import Block, Places
from fedeas.federation.worker import Worker


class Job(NamedTuple):
    """A client's part of a round, as sent to a worker process."""

    client: int
    round: int
    num_real: int
    data: Places
    broadcast: Places
    state: Places
    answer_at: int


class Answer(NamedTuple):
    """The result of a job, as sent back by a worker process."""

    weight: int
    metrics: Mapping[str, SupportsFloat]
    arrays: Places
    state: Places


class Child:
    """A worker process, the pipe to it, and the block in which it reads states and writes answers.

    `subprocess` starts it, since `multiprocessing` would run the caller's script again unless that is guarded. It has
    its own session, so that Ctrl-C reaches only this process; the worker exits when its pipe is closed.
    """

    def __init__(self, blocks: Sequence[Block], setup: Places, threads: int) -> None:
        self.block, self.client = Block(), -1
        self.pipe, theirs = multiprocessing.Pipe()
        shared = [theirs.fileno(), *(block.descriptor for block in (*blocks, self.block))]
        command = [sys.executable, "-P", "-c", "from fedeas.federation.engines.child import serve; serve()"]
        path = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        self.popen = subprocess.Popen(
            [*command, *map(str, shared)], env={**os.environ, "PYTHONPATH": path}, pass_fds=shared,
            stdin=subprocess.DEVNULL, stdout=sys.__stderr__, start_new_session=True,
        )  # fmt: skip
        theirs.close()
        self._send((setup, threads))

    def give(self, job: Job) -> None:
        """Send it a job whose state is in its block."""
        self.client = job.client
        self._send(job)

    def take(self) -> Answer | Exception | None:
        """Receive its answer, which may be an error; None if it has died."""
        try:
            answer: Answer | Exception = self.pipe.recv()
        except (EOFError, OSError):
            return None
        self.client = -1
        return answer

    def kill(self) -> None:
        """Let it end soon; it holds no state."""
        self.popen.kill()

    def end(self) -> None:
        """Kill it and wait for its end."""
        self.kill()
        self.popen.wait()
        self.pipe.close()

    def _send(self, message: object) -> None:
        with suppress(OSError):  # `take` notices that the process has died
            self.pipe.send(message)


def serve() -> None:
    """The main function of a worker process: do jobs until its pipe is closed."""
    pipe = Connection(int(sys.argv[1]))
    data, broadcast, own = (Block(int(descriptor)) for descriptor in sys.argv[2:])
    jobs: SimpleQueue[Any] = SimpleQueue()
    Thread(target=_listen, args=(pipe, jobs), daemon=True).start()
    setup, threads = jobs.get()
    torch.set_num_threads(threads)
    with current_folder_first():  # where a user's own model or algorithm may lie
        worker: Worker = pickle.loads(data.read(setup)["worker"].numpy().data)
    while True:
        job: Job = jobs.get()
        worker.clients = {job.client: client_data(data.read(job.data), job.num_real)}
        pipe.send(_answer(worker, job, broadcast.read(job.broadcast), own))


def _listen(pipe: Connection, jobs: SimpleQueue[Any]) -> None:
    """Receive jobs in a separate thread, so that the process notices a closed pipe even during a job."""
    with suppress(EOFError, OSError):
        while True:
            jobs.put(pipe.recv())
    os._exit(0)


def _answer(worker: Worker, job: Job, broadcast: Arrays, own: Block) -> Answer | Exception:
    try:
        reply, state = worker.run(Task.TRAIN, job.client, job.round, broadcast, own.read(job.state))
        assert reply is not None  # training always has a reply
        return Answer(reply.weight, reply.metrics, own.write(reply.arrays, job.answer_at), own.append(state))
    except Exception as error:
        if not isinstance(error, FedEASError):
            error.add_note(traceback.format_exc())  # a pickled error has no traceback
        return error if _can_be_pickled(error) else RunError(f"client {job.client}, round {job.round + 1}: {error!r}")


def _can_be_pickled(error: Exception) -> bool:
    try:
        return isinstance(pickle.loads(pickle.dumps(error)), Exception)
    except Exception:
        return False


def client_data(arrays: Arrays, num_real: int) -> ClientData:
    """A client's data in shared memory."""
    return ClientData(arrays["images"], arrays["labels"], num_real, Normaliser(arrays["scale"], arrays["shift"]))
