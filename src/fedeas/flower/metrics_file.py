"""The state of a run as a file for Prometheus, which its node exporter reads (``--collector.textfile.directory``)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fedeas.core.files import write_bytes
from fedeas.core.log import log
from fedeas.errors import FedEASError
from fedeas.flower.traffic import MeteredGrid
from fedeas.runs.store import Record, trained

METRICS = "FEDEAS_METRICS"
"""Environment variable of the server: the file to write."""

READABLE = 0o644


class Metric(NamedTuple):
    """A number with its name, its kind for Prometheus, and what it is."""

    name: str
    kind: str
    help: str
    value: float


@dataclass(frozen=True)
class MetricsFile:
    """Writes the numbers of a run after each of its rounds.

    Args:
        path: the file, whose name must end in ``.prom``.
        run: what the numbers are labelled with.
        rounds: how many rounds the run has.
        traffic: counts the bytes.
    """

    path: Path
    run: str
    rounds: int
    traffic: MeteredGrid
    clock: Callable[[], float] = time.time

    @staticmethod
    def of(run: str, rounds: int, traffic: MeteredGrid) -> MetricsFile | None:
        """The file that the server's environment names, if it does."""
        path = os.environ.get(METRICS)
        return MetricsFile(Path(path), run, rounds, traffic) if path else None

    def write(self, record: Record) -> None:
        """Write the numbers after a round; the file is replaced as a whole. A run goes on if that fails."""
        try:
            write_bytes(self.path, "".join(map(self._lines, self._metrics(record))).encode(), READABLE)
        except FedEASError as error:
            log.warning("%s", error)

    def _metrics(self, record: Record) -> list[Metric]:
        came = len(trained(record))
        found = [
            Metric("round", "gauge", "Last finished round.", record["round"]),
            Metric("rounds", "gauge", "Rounds of the run.", self.rounds),
            Metric("participants", "gauge", "Clients that took part in the last round.", came),
            Metric("missing", "gauge", "Clients that were missing from the last round.", len(record["clients"]) - came),
            Metric("round_seconds", "gauge", "Duration of the last round.", sum(record["seconds"].values())),
            Metric("sent_bytes_total", "counter", "Bytes sent to clients.", self.traffic.sent),
            Metric("received_bytes_total", "counter", "Bytes received from clients.", self.traffic.received),
            Metric("updated_seconds", "gauge", "When the last round ended, as Unix time.", self.clock()),
        ]
        if "accuracy" in record:
            found.append(Metric("accuracy", "gauge", "Accuracy on the test images.", record["accuracy"]))
        return found

    def _lines(self, metric: Metric) -> str:
        name = f"fedeas_{metric.name}"
        about = f"# HELP {name} {metric.help}\n# TYPE {name} {metric.kind}\n"
        return f'{about}{name}{{run="{self.run}"}} {metric.value:.17g}\n'
