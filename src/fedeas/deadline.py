"""A time limit that is kept at the boundaries of rounds."""

from __future__ import annotations

import time
from collections.abc import Callable


class Deadline:
    """Called after each round, says whether to pause: the next would probably not be over in time.

    >>> Deadline(minutes=60)()
    False
    """

    def __init__(self, minutes: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.last = clock()
        self.end = self.last + 60 * minutes

    def __call__(self) -> bool:
        """Whether another round as long as the last one would end too late."""
        now = self.clock()
        another, self.last = now - self.last, now
        return now + another > self.end

    @property
    def left(self) -> float:
        """Seconds until the end; below zero after it."""
        return self.end - self.clock()
