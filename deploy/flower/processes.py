"""Processes that outlive the one that started them; they are identified by pid and start time."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from fedeas.core.process_births import birth

PATIENCE = 30.0
"""Seconds that processes have to end by themselves."""


@dataclass(frozen=True)
class Process:
    """A process in its own session, identified by pid and start time, because pids are reused."""

    pid: int
    born: str

    @property
    def alive(self) -> bool:
        """Whether the process still runs; a zombie does not."""
        child = _STARTED.get(self)
        if child is None:
            return birth(self.pid) == self.born
        if child.poll() is not None:
            del _STARTED[self]
        return self in _STARTED

    @property
    def replaced(self) -> bool:
        """Whether another process has this pid now."""
        return birth(self.pid) not in (None, self.born)


_STARTED: dict[Process, subprocess.Popen[bytes]] = {}  # children of this process, to be reaped when they end


def start(command: Sequence[str], log: Path, environment: Mapping[str, str], folder: Path) -> Process:
    """Start a daemon in its own session, so that it survives this process; its output goes to `log`."""
    with log.open("ab") as output:
        popen = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            cwd=folder,
            start_new_session=True,
        )
    process = Process(popen.pid, birth(popen.pid) or "")
    _STARTED[process] = popen
    return process


def end(processes: Iterable[Process]) -> None:
    """Ask all to end, wait, and kill their remaining descendants; other processes with their pids are not touched."""
    ours = [process for process in processes if not process.replaced]
    family = [child for process in ours for child in _descendants(process)]
    for process in ours:
        if process.alive:
            with suppress(ProcessLookupError):  # it ends just now
                os.kill(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    while any(process.alive for process in ours) and time.monotonic() < deadline:
        time.sleep(0.05)
    for process in ours:
        kill_group(process)
    for child in family:
        with suppress(psutil.NoSuchProcess):
            child.kill()  # in another session, as Flower's helpers are; psutil checks that the pid is not reused


def kill_group(process: Process) -> None:
    """Kill the process and all its children at once.

    The kernel does not reuse a pid while its process group has members: unless the process is replaced, the group is
    ours even if its leader has ended.
    """
    if process.replaced:
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE
    while process.alive and time.monotonic() < deadline:
        time.sleep(0.01)


def free_port() -> int:
    """A loopback port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def tail(log: Path) -> str:
    """The end of a log, for an error message."""
    if not log.exists():
        return ""
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:])


def _descendants(process: Process) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True) if process.alive else []
    except psutil.NoSuchProcess:
        return []
