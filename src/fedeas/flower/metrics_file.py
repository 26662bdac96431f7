"""The state of a run as a file for Prometheus, which its node exporter reads (``--collector.textfile.directory``)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedeas.core.errors import FedEASError
from fedeas.core.files import write_bytes
from fedeas.core.log import log
from fedeas.flower.grid import WatchedGrid
from fedeas.runs.store import Record, trained

METRICS = "FEDEAS_METRICS"
"""Environment variable of the server: the file to write."""

READABLE = 0o644


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
        metrics = [
            ("round", "gauge", "Last finished round.", record["round"]),
            ("rounds", "gauge", "Rounds of the run.", self.rounds),
            ("participants", "gauge", "Clients that took part in the last round.", came),
            ("missing", "gauge", "Clients that were missing from the last round.", len(record["clients"]) - came),
            ("round_seconds", "gauge", "Duration of the last round.", sum(record["seconds"].values())),
            ("sent_bytes_total", "counter", "Bytes sent to clients.", self.traffic.sent),
            ("received_bytes_total", "counter", "Bytes received from clients.", self.traffic.received),
            ("updated_seconds", "gauge", "When the last round ended, as Unix time.", self.clock()),
        ]
        if "accuracy" in record:
            metrics.append(("accuracy", "gauge", "Accuracy on the test images.", record["accuracy"]))
        lines = ""
        for name, kind, meaning, value in metrics:
            head = f"# HELP fedeas_{name} {meaning}\n# TYPE fedeas_{name} {kind}\n"
            lines += f'{head}fedeas_{name}{{run="{self.run}"}} {value:.17g}\n'
        try:
            write_bytes(self.path, lines.encode(), READABLE)
        except FedEASError as error:
            log.warning("%s", error)
