"""End the server's part of a simulation that was interrupted.

Flower runs it in a thread that no signal reaches. It would wait for replies that never come, and the
process with it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

from flwr.app import Message
from flwr.serverapp import Grid

from fedeas.core.errors import StoppedError


class StoppableGrid:
    """The part of Flower's grid that a server uses; once `stopped` is set, each use of it ends the run."""

    def __init__(self, grid: Grid, stopped: threading.Event) -> None:
        self._grid, self._stopped = grid, stopped

    def get_node_ids(self) -> Iterable[int]:
        """The nodes that are connected."""
        return self._running().get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages."""
        return self._running().push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Fetch replies."""
        return self._running().pull_messages(message_ids)

    def _running(self) -> Grid:
        if self._stopped.is_set():
            raise StoppedError("the simulation was stopped")
        return self._grid


@contextmanager
def set_at_the_end(stopped: threading.Event) -> Iterator[None]:
    """Set `stopped` at the end, and on Ctrl-C before the clients are ended: the server would report that they died."""

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.set()
        raise KeyboardInterrupt

    in_main_thread = threading.current_thread() is threading.main_thread()  # no other thread gets signals
    before = signal.getsignal(signal.SIGINT) if in_main_thread else None
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        stopped.set()
        if before is signal.default_int_handler:
            signal.signal(signal.SIGINT, before)
