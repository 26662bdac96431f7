"""How many messages are under way at once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

AHEAD = 0.25
"""The window is twice the number of replies in this many seconds."""


class MessageWindow:
    """A limit on messages under way that follows the pace of the replies.

    It is twice the number of replies of the last quarter of a second, so that clients always have a message waiting,
    and `least` for clients that take longer.
    """

    def __init__(self, least: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.least = self.size = least
        self._clock = clock
        self._arrivals = deque[float]()

    def note_replies(self, count: int) -> None:
        """Adapt to replies that have just come."""
        if not count:
            return
        now = self._clock()
        self._arrivals.extend([now] * count)
        while self._arrivals[0] < now - AHEAD:
            self._arrivals.popleft()
        self.size = max(self.least, 2 * len(self._arrivals))
