"""The plain reference engine: clients one after the other in this process."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fedeas.algorithms.base import Arrays, Reply
from fedeas.core.devices import torch_threads
from fedeas.federation.engines.base import ClientCount, Engine, Task
from fedeas.federation.worker import Worker


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
        with torch_threads(self.threads):
            replies = [self._run_one(task, broadcast, client, round) for client in sorted(clients)]
        return [reply for reply in replies if reply is not None]

    def client_states(self) -> dict[int, Arrays]:
        """The states of all clients that have one."""
        return self.states

    def restore(self, states: dict[int, Arrays]) -> None:
        """Set these states."""
        self.states = dict(states)

    def _run_one(self, task: Task, broadcast: Arrays, client: int, round: int) -> Reply | None:
        reply, state = self.worker.run(task, client, round, broadcast, self.states.get(client, {}))
        if state:
            self.states[client] = state
        self.count.add()
        return reply
