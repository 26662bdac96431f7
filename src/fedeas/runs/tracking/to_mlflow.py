"""MLflow: a run in a folder of files, or on a tracking server."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

from fedeas.runs.store import Run
from fedeas.runs.tracking.base import Image

EXPERIMENT = "fedeas"
TAG = "fedeas.run"
LONGEST_VALUE = 500
SERVERS_BY_NAME = ("databricks", "databricks-uc")
"""Servers that MLflow knows by name; all its other addresses have ``://``."""


class MLflow:
    """Writes to PLACE, a folder or a server by its address or name; ``mlruns`` by default."""

    def __init__(self, place: str) -> None:
        self.place = place or "mlruns"

    def start(self, run: Run, settings: Mapping[str, str], first_round: int) -> None:
        """Open the run of this directory's name, or a new one."""
        self.client = MlflowClient(tracking_uri=_address(self.place))
        found = self.client.get_experiment_by_name(EXPERIMENT)
        experiment = found.experiment_id if found else self.client.create_experiment(EXPERIMENT)
        name = run.path.name
        earlier = self.client.search_runs([experiment], f"tags.`{TAG}` = '{name}'", max_results=1)
        made = earlier[0] if earlier else self.client.create_run(experiment, tags={TAG: name}, run_name=name)
        self.id = made.info.run_id
        if not earlier:
            parameters = [Param(key, value[:LONGEST_VALUE]) for key, value in settings.items()]
            self.client.log_batch(self.id, params=parameters)

    def log(self, numbers: Mapping[str, float], round: int) -> None:
        """Log the metrics of a round."""
        now = time.time_ns() // 10**6
        allowed = {name: re.sub(r"[^\w\-. :/]", "_", name) for name in numbers}
        self.client.log_batch(self.id, [Metric(allowed[name], value, now, round) for name, value in numbers.items()])

    def show(self, name: str, image: Image) -> None:
        """Keep a picture as an artifact."""
        self.client.log_image(self.id, image, f"{name}.png")

    def close(self) -> None:
        """Mark the run as ended; a resumed one goes on under the same id."""
        self.client.set_terminated(self.id)


def _address(place: str) -> str:
    if "://" in place or place in SERVERS_BY_NAME:
        return place
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow asks for this since it prefers databases
    return Path(place).absolute().as_uri()
