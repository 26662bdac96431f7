"""Flower's grid as the server of a run uses it: a limit on messages under way, a way to stop it, and its traffic.

The traffic and the state of the run go to a file for Prometheus, which its node exporter reads
(``--collector.textfile.directory``).
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from flwr.app import Message
from flwr.serverapp import Grid

from fedeas.core.errors import FedEASError, StoppedError, log
from fedeas.core.files import write_bytes
from fedeas.runs.store import Record, trained

METRICS = "FEDEAS_METRICS"  # environment variable of the server: the file to write

READABLE = 0o644

AHEAD = 0.25  # the window is twice the number of replies in this many seconds


class WatchedGrid:
    """The part of Flower's grid that a server uses; it counts the bytes of its messages, without Flower's framing.

    Once `stopped` is set, each use of it ends the run. Flower runs the server's part of a simulation in a thread that
    no signal reaches: it would wait for replies that never come, and the process with it.
    """

    def __init__(self, grid: Grid, stopped: threading.Event | None = None) -> None:
        self._grid, self._stopped = grid, stopped
        self.sent = self.received = 0

    def get_node_ids(self) -> Iterable[int]:
        """The nodes that are connected."""
        return self._running().get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages."""
        kept = list(messages)
        self.sent += sum(map(size_of, kept))
        return self._running().push_messages(kept)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterator[Message]:
        """Fetch replies."""
        for reply in self._running().pull_messages(message_ids):
            self.received += size_of(reply)
            yield reply

    def _running(self) -> Grid:
        if self._stopped is not None and self._stopped.is_set():
            raise StoppedError("the simulation was stopped")
        return self._grid


def size_of(message: Message) -> int:
    """Bytes of a message's arrays, texts and other values."""
    if message.has_error():
        return len((message.error.reason or "").encode())
    content = message.content
    arrays = sum(len(array.data) for record in content.array_records.values() for array in record.values())
    values = (value for record in content.config_records.values() for value in record.values())
    return arrays + sum(len(value if isinstance(value, bytes) else str(value).encode()) for value in values)


@dataclass(frozen=True)
class MetricsFile:
    """Writes the numbers of a run to `path` after each of its `rounds`, labelled with the name of the `run`."""

    path: Path
    run: str
    rounds: int
    traffic: WatchedGrid
    clock: Callable[[], float] = time.time

    @staticmethod
    def of(run: str, rounds: int, traffic: WatchedGrid) -> MetricsFile | None:
        """The file that the server's environment names, if it does."""
        path = os.environ.get(METRICS)
        return MetricsFile(Path(path), run, rounds, traffic) if path else None

    def write(self, record: Record) -> None:
        """Write the numbers after a round; the file is replaced as a whole. If that fails, the run continues."""
        came = len(trained(record))
        metrics = {
            "round": ("Last finished round.", record["round"]),
            "rounds": ("Rounds of the run.", self.rounds),
            "participants": ("Clients that took part in the last round.", came),
            "missing": ("Clients that were missing from the last round.", len(record["clients"]) - came),
            "round_seconds": ("Duration of the last round.", sum(record["seconds"].values())),
            "sent_bytes_total": ("Bytes sent to clients.", self.traffic.sent),
            "received_bytes_total": ("Bytes received from clients.", self.traffic.received),
            "updated_seconds": ("When the last round ended, as Unix time.", self.clock()),
        }
        if "accuracy" in record:
            metrics["accuracy"] = "Accuracy on the test images.", record["accuracy"]
        lines = ""
        for name, (meaning, value) in metrics.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += f"# HELP fedeas_{name} {meaning}\n# TYPE fedeas_{name} {kind}\n"
            lines += f'fedeas_{name}{{run="{self.run}"}} {value:.17g}\n'
        try:
            write_bytes(self.path, lines.encode(), READABLE)
        except FedEASError as error:
            log.warning("%s", error)


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
