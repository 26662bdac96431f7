"""The plain reference engine: clients one after the other in this process."""

from __future__ import annotations

from collections.abc import Sequence

from fedeas.algorithms.base import Arrays, Reply
from fedeas.engines.base import Task
from fedeas.worker import Worker


class LocalEngine:
    """Runs every client in this process; the fast engines are held against it."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.states: dict[int, Arrays] = {}

    def map(self, task: Task, broadcast: Arrays, clients: Sequence[int], round: int) -> list[Reply]:
        """One client after the other, in the order of their ids."""
        replies = []
        if task is Task.TRAIN:
            self.worker.prepare(clients)
        for client in sorted(clients):
            reply, state = self.worker.run(task, client, round, broadcast, self.states.get(client, {}))
            if state:
                self.states[client] = state
            if reply is not None:
                replies.append(reply)
        return replies

    def client_states(self) -> dict[int, Arrays]:
        """The states of all clients that have one."""
        return self.states

    def restore(self, states: dict[int, Arrays]) -> None:
        """Go on from these states."""
        self.states = dict(states)
