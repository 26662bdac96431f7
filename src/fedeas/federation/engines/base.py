"""What every engine does."""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import StrEnum

from fedeas.algorithms.base import Arrays, Reply


class Task(StrEnum):
    """A task for clients."""

    SETUP = "setup"
    TRAIN = "train"


OnClient = Callable[[int, int], None]
"""Called with the number of clients of a round that are done, and of all its clients."""


class ClientCount:
    """Counts the clients of a round as they are done, in any thread; `tell` gets each new number."""

    def __init__(self) -> None:
        self.tell: OnClient | None = None
        self.done = self.of = 0
        self.lock = threading.Lock()

    def start(self, of: int) -> None:
        """Begin to count the clients of a round."""
        self.done, self.of = 0, of

    def add(self, clients: int = 1) -> None:
        """Count clients that are done."""
        with self.lock:
            self.done += clients
            if self.tell is not None:
                self.tell(self.done, self.of)


class Engine:
    """Lets clients do a task and collects their replies. By default, nothing has to be kept or closed."""

    count: ClientCount

    def map(self, task: Task, broadcast: Arrays, clients: Sequence[int], round: int) -> list[Reply]:
        """Do the task; the clients' replies in the order of client ids. A client may have no reply."""
        raise NotImplementedError

    def client_states(self) -> dict[int, Arrays]:
        """The clients' states between rounds, for a checkpoint; empty if clients store them themselves."""
        return {}

    def on_checkpoint(self) -> None:
        """Note that a checkpoint has been written: a run that is resumed starts from here, and not earlier."""

    def restore(self, states: dict[int, Arrays]) -> None:
        """Set the clients' states from a checkpoint."""

    def close(self) -> None:
        """End threads and processes, and free what they used; the engine has no more work."""


def add_up_to(seconds: float, replies: Iterable[Reply]) -> list[Reply]:
    """Scale what clients that worked at the same time report, so that it adds up to `seconds`."""
    kinds, replies = ("prepare_seconds", "train_seconds"), list(replies)
    busy = sum(float(reply.metrics.get(kind, 0.0)) for reply in replies for kind in kinds)
    share = min(1.0, seconds / busy) if busy else 1.0

    def scaled(reply: Reply) -> Reply:
        known = {kind: float(reply.metrics[kind]) * share for kind in kinds if kind in reply.metrics}
        return replace(reply, metrics={**reply.metrics, **known})

    return [scaled(reply) for reply in replies]
