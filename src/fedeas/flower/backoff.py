"""How often to ask for work: often while there is some, less and less often while there is none."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pace:
    """Pauses of a tenth of the wait so far, within bounds.

    After a long wait a longer pause does not matter, and it leaves the cores to processes that compute.
    """

    def __init__(self, shortest: float, longest: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.shortest = shortest
        self.longest = longest
        self.clock = clock
        self.reset()

    def reset(self) -> None:
        """Restart with the shortest pause, because there was work."""
        self._since = self.clock()

    @property
    def next(self) -> float:
        """How long the next pause will be, in seconds."""
        return min(max(self.shortest, (self.clock() - self._since) / 10), self.longest)

    def pause(self) -> None:
        """Sleep until it is time to ask again."""
        time.sleep(self.next)
