"""The programs that a deployment runs: where they are, their environment, and how several run as one service."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from fedeas import InputError

PAUSE = 0.1
"""Seconds between two checks whether all programs still run."""

PATIENCE = 10.0
"""Seconds that a program has to end after SIGTERM."""

PACKAGES = {"nginx": "nginx", "openssl": "openssl", "ssh-keygen": "openssh-client"}
"""Debian's packages of the programs that are not Flower's."""

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "UV_OFFLINE": "1",
    "UV_NO_BUILD": "1",
    "PYTHONUNBUFFERED": "1",
}
"""Flower sends nothing to anybody else, and neither downloads nor builds what an app depends on."""


def program(name: str) -> str:
    """The full path of a program."""
    found = shutil.which(name, path=search_path())
    if found is None:
        remedy = f"apt-get install {PACKAGES[name]}" if name in PACKAGES else "pip install 'fedeas[flower]'"
        raise InputError(f"{name} is not installed: {remedy}")
    return found


def search_path() -> str:
    """The folder of this interpreter's programs, which Flower starts by bare name, then the caller's search path."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath), "/usr/sbin"])


def environment(**more: str) -> dict[str, str]:
    """The caller's environment, without telemetry; Flower's other settings, such as FLWR_HOME, are the caller's."""
    return {**os.environ, **QUIET, "PATH": search_path(), **more}


def flwr(*arguments: str, home: Path | None = None) -> dict[str, Any]:
    """The answer of a ``flwr`` command, in JSON; InputError if it fails. `home` has Flower's config.toml."""
    own = {} if home is None else {"FLWR_HOME": str(home)}
    command = [program("flwr"), *arguments, "--format", "json"]
    done = subprocess.run(command, env=environment(**own), capture_output=True, text=True)
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        answer = {"success": False, "error-message": done.stderr or done.stdout}
    if not answer.get("success"):
        reason = " ".join(str(answer.get("error-message", "")).split())
        raise InputError(f"flwr {' '.join(arguments)}: {reason.removeprefix('Error: ')}")
    return answer


def free_port() -> int:
    """A loopback port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_together(commands: Sequence[Sequence[str]], surroundings: Mapping[str, str]) -> int:
    """Run several programs until SIGTERM or Ctrl-C, or until one of them ends; then end the others, in order.

    Return 0 after a signal, else 1: a service manager then starts all of them again.
    """
    told: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        told.append(number)

    before = {each: signal.signal(each, note) for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    started: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            started.append(subprocess.Popen(command, env=surroundings, stdin=subprocess.DEVNULL))
        while not told and all(process.poll() is None for process in started):
            time.sleep(PAUSE)
        for command, process in zip(commands, started, strict=True):
            if process.returncode is not None:
                print(f"{Path(command[0]).name} ended with code {process.returncode}", file=sys.stderr)
    finally:
        for process in started:
            end(process)
        for each, handler in before.items():
            signal.signal(each, handler)
    return 0 if told else 1


def end(process: subprocess.Popen[bytes], patience: float = PATIENCE) -> None:
    """Ask a program to end; kill it if it does not."""
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
