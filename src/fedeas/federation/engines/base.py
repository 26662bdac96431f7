"""The protocol of an engine."""

from __future__ import annotations

from collections.abc import Sequence
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
