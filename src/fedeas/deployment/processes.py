"""Processes that outlive the one that started them, found again by pid and moment of start."""

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

PATIENCE = 30.0
"""Seconds that processes have to end by themselves."""

_STARTED: dict[int, subprocess.Popen[bytes]] = {}  # ours to reap; without it they would stay as zombies


@dataclass(frozen=True)
class Process:
    """A process in a session of its own. A pid alone would not do: after its end another may bear it."""

    pid: int
    born: str

    @property
    def alive(self) -> bool:
        """Whether it still runs; one that ended but was not reaped does not."""
        if _birth(self.pid) != self.born:
            return False
        if self.pid not in _STARTED:
            return not _is_zombie(self.pid)
        ended = _STARTED[self.pid].poll() is not None
        if ended:
            del _STARTED[self.pid]
        return not ended

    @property
    def replaced(self) -> bool:
        """Whether its pid belongs to someone else by now."""
        return _birth(self.pid) not in (None, self.born)


def start(command: Sequence[str], log: Path, environment: Mapping[str, str], folder: Path) -> Process:
    """Start a daemon: own session, so that it survives us and ends with all its children; output goes to `log`."""
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
    _STARTED[popen.pid] = popen
    return Process(popen.pid, _birth(popen.pid) or "")


def end(processes: Iterable[Process], patience: float = PATIENCE) -> None:
    """Ask all to end, wait, and then kill what is left of their descendants; others with their pids are left alone."""
    ours = [process for process in processes if not process.replaced]
    family = [child for process in ours for child in _descendants(process)]
    for process in ours:
        if process.alive:
            os.kill(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + patience
    while any(process.alive for process in ours) and time.monotonic() < deadline:
        time.sleep(0.05)
    for process in ours:
        kill_group(process)
    for child in family:
        with suppress(psutil.NoSuchProcess):
            child.kill()  # in another session, as Flower's helpers are; those with its pid are told apart by psutil


def kill_group(process: Process) -> None:
    """Kill the process and all its children at once.

    The kernel gives a pid to nobody else as long as the group of that number has members: unless it is replaced,
    the group is ours even when its leader is gone.
    """
    if process.replaced:
        return
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    deadline = time.monotonic() + PATIENCE
    while process.alive and time.monotonic() < deadline:
        time.sleep(0.01)


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def tail(log: Path, lines: int = 15) -> str:
    """The end of a log, for an error message."""
    if not log.exists():
        return ""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _descendants(process: Process) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True) if process.alive else []
    except psutil.NoSuchProcess:
        return []


def _birth(pid: int) -> str | None:
    """When the process of this pid started, as text; None if there is none."""
    fields = _stat(pid)
    if fields is not None:
        return fields[19]
    if Path("/proc/self/stat").exists():
        return None
    return _ps(pid, "lstart") or None


def _is_zombie(pid: int) -> bool:
    fields = _stat(pid)
    return fields[0] == "Z" if fields is not None else _ps(pid, "state").startswith("Z")


def _stat(pid: int) -> list[str] | None:
    """The fields of Linux's /proc/PID/stat after the name, which may hold spaces and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _ps(pid: int, field: str) -> str:
    return subprocess.run(["ps", "-o", f"{field}=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
