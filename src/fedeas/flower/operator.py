"""Start a run on a SuperLink and follow it, with Flower's command ``flwr``; how the run's server reaches the operator.

Flower streams what the server prints, and keeps the text of the exception with which it ends.
"""

import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedeas.core import VERSION
from fedeas.core.errors import FedEASError, InputError, RunError, log
from fedeas.core.files import known_error, make_folder, write_bytes
from fedeas.core.records import read_bytes

SENT = re.compile(r"fedeas ends with exit code (\d+): (.*)")

PROJECT = f"""\
[project]
name = "fedeas"
version = "{VERSION}"
description = "FedEAS as a Flower app"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fedeas"
fab-include = ["/pyproject.toml"]

[tool.flwr.app.components]
serverapp = "fedeas.flower.app:server"
clientapp = "fedeas.flower.app:client"

[tool.flwr.app.config]
settings = ""
runs = "runs"
members = ""
"""


def write_app(folder: Path) -> Path:
    """Write FedEAS as a Flower app and return its folder; both parts of the app come from the installed package."""
    make_folder(folder)
    write_bytes(folder / "pyproject.toml", PROJECT.encode())
    return folder


@dataclass(frozen=True)
class RunStatus:
    """How a run is or ended, such as ``finished:completed`` or ``finished:failed``, and the details."""

    run_id: int
    status: str
    details: str

    @property
    def completed(self) -> bool:
        """Whether the run ended without an error."""
        return self.status == "finished:completed"

    @property
    def error(self) -> FedEASError | None:
        """The error with which FedEAS ended the run, if it did.

        >>> told = "ServerApp failed with exception: fedeas ends with exit code 2: no such file"
        >>> RunStatus(1, "finished:failed", told).error.exit_code
        2
        """
        found = SENT.search(self.details)
        if found is None:
            return None
        error = RunError(found[2])
        error.exit_code = int(found[1])
        return error


@dataclass(frozen=True)
class Operator:
    """The operator of a SuperLink: one that Flower's settings name, by default Flower's default.

    Args:
        superlink: the name in ``config.toml``.
        home: Flower's folder, where its settings are; by default Flower's default.
    """

    superlink: str = ""
    home: Path = field(default_factory=lambda: Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr"))

    def members(self) -> dict[int, int]:
        """The node of each client, from the list ``clients.toml``."""
        path = self.home / "clients.toml"
        if not path.exists():
            raise InputError(
                f"{path}: no such file; `python -m deploy.flower register` writes it (deploy/ is in the source "
                "release), or write a line CLIENT = NODE for each node that `flwr supernode list` shows"
            )
        try:
            return {int(client): int(node) for client, node in tomllib.loads(read_bytes(path).decode()).items()}
        except (ValueError, TypeError) as error:
            raise InputError(f"{path}: no list of clients ({error}); its lines are CLIENT = NODE") from None

    def run(self, app: Path | None, config: Mapping[str, str], show: Callable[[str], None]) -> RunStatus:
        """Run the app in a folder, by default FedEAS, and wait for its end; `show` gets each line of its log."""
        given = {**config, "members": json.dumps(self.members())}
        with tempfile.TemporaryDirectory() as made:
            folder = write_app(Path(made) / "fedeas") if app is None else app
            values = Path(made) / "run.toml"
            values.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in given.items()))
            run_id = int(self._ask("run", str(folder), *self._name, "--run-config", str(values))["run-id"])
        command = [_flwr(), "log", str(run_id), *self._name, "--stream"]
        with subprocess.Popen(command, env=self._environment(), stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout or ():
                show(line.rstrip("\n"))
        try:
            return self.status(run_id)
        except RunError as error:
            raise RunError(f"run {run_id} has started; `flwr list` shows whether it continues ({error})") from None

    def status(self, run_id: int) -> RunStatus:
        """The status of a run."""
        [run] = self._ask("list", *self._name, "--run-id", str(run_id))["runs"]
        return RunStatus(run_id, str(run["status"]), str(run["status-details"]))

    def unfinished_runs(self) -> list[int]:
        """The runs that have not ended."""
        runs = self._ask("list", *self._name)["runs"]
        return sorted(int(run["run-id"]) for run in runs if not str(run["status"]).startswith("finished"))

    @property
    def _name(self) -> list[str]:
        return [self.superlink] if self.superlink else []

    def _ask(self, *arguments: str) -> dict[str, Any]:
        """The answer of a ``flwr`` command; a RunError if it fails."""
        command = [_flwr(), *arguments, "--format", "json"]
        done = subprocess.run(command, env=self._environment(), capture_output=True, text=True)
        try:
            answer: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            answer = {"error-message": done.stderr or done.stdout}
        if not answer.get("success"):
            reason = " ".join(str(answer.get("error-message", "")).split()).removeprefix("Error: ")
            raise RunError(f"flwr {arguments[0]}: {reason}")
        return answer

    def _environment(self) -> dict[str, str]:
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "PYTHONUNBUFFERED": "1"}
        return {**os.environ, **quiet, "FLWR_HOME": str(self.home)}


def _flwr() -> str:
    beside = Path(sys.executable).with_name("flwr")
    found = shutil.which("flwr") if not beside.exists() else str(beside)
    if found is None:
        raise InputError("flwr is not installed: pip install 'fedeas[flower]'")
    return found


def print_log() -> None:
    """Print the log of FedEAS, and no other."""
    log.setLevel(logging.INFO)
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(_WithLevel())
        log.addHandler(handler)
    log.propagate = False


class _WithLevel(logging.Formatter):
    """Puts the level before warnings and errors."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return f"{record.levelname.lower()}: {text}" if record.levelno > logging.INFO else text


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Log an error that is made on purpose as one line, and end with its exit code in the exception's text.

    Flower would show the traceback, too, and a page about its own exit codes.
    """
    try:
        yield
    except (FedEASError, OSError) as error:
        known = error if isinstance(error, FedEASError) else known_error(error)
        if known is None:
            raise
        logging.getLogger("flwr").setLevel(logging.CRITICAL)
        line = " ".join(str(known).split())
        log.error("%s", line)
        raise RuntimeError(f"fedeas ends with exit code {known.exit_code}: {line}") from None
