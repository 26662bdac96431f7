"""What an engine is."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from fedeas.algorithms.base import Arrays, Reply


class Task(StrEnum):
    """What clients can be asked to do."""

    SETUP = "setup"
    TRAIN = "train"


class Engine(Protocol):
    """Carries one task to some clients."""

    def map(self, task: Task, broadcast: Arrays, clients: Sequence[int], round: int) -> list[Reply]:
        """The clients' replies, in the order of their ids; a client with nothing to say sends none."""

    def client_states(self) -> dict[int, Arrays]:
        """What the clients keep between rounds, for a checkpoint; empty where they keep it themselves."""

    def restore(self, states: dict[int, Arrays]) -> None:
        """Give the clients back what a checkpoint kept."""

    def close(self) -> None:
        """End what was started for the run; it may be used again."""
