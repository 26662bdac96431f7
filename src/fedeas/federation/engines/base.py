"""The protocol of an engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Protocol

from fedeas.algorithms.base import Arrays, Reply


class Task(StrEnum):
    """A task for clients."""

    SETUP = "setup"
    TRAIN = "train"


class Engine(Protocol):
    """Lets clients do a task and collects their replies."""

    def map(self, task: Task, broadcast: Arrays, clients: Sequence[int], round: int) -> list[Reply]:
        """Do the task; the clients' replies in the order of client ids. A client may have no reply."""

    def client_states(self) -> dict[int, Arrays]:
        """The clients' states between rounds, for a checkpoint; empty if clients store them themselves."""

    def on_checkpoint(self) -> None:
        """Note that a checkpoint has been written: a run that is resumed starts from here, and not earlier."""

    def restore(self, states: dict[int, Arrays]) -> None:
        """Set the clients' states from a checkpoint."""

    def close(self) -> None:
        """End threads and processes; the engine may be used again."""


def add_up_to(seconds: float, replies: Iterable[Reply]) -> list[Reply]:
    """Scale what clients that worked at the same time report, so that it adds up to `seconds`."""
    kinds, replies = ("prepare_seconds", "train_seconds"), list(replies)
    busy = sum(reply.metrics.get(kind, 0.0) for reply in replies for kind in kinds)
    share = min(1.0, seconds / busy) if busy else 1.0
    return [
        replace(reply, metrics={key: value * share if key in kinds else value for key, value in reply.metrics.items()})
        for reply in replies
    ]
