"""A time limit that is kept at the boundaries of rounds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

ONCE = ("generate", "prepare")
"""What a round takes only for clients and sizes that are new."""


class Deadline:
    """Told of each round, says whether to pause: the next would probably not be over in time.

    >>> Deadline(minutes=60)({"seconds": {"train": 2.0}})
    False
    """

    def __init__(self, minutes: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.end = clock() + 60 * minutes

    def __call__(self, record: dict[str, Any]) -> bool:
        """Whether another round like this one, with nothing to be generated or recorded first, would end too late."""
        another = sum(spent for name, spent in record["seconds"].items() if name not in ONCE)
        return bool(self.left < another)

    @property
    def left(self) -> float:
        """Seconds until the end; below zero after it."""
        return self.end - self.clock()
