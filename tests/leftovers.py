"""No process outlives the tests that started it, even if pytest is interrupted or killed.

Whatever a test starts inherits a mark in its environment. A warden process waits for the end of pytest, however it
comes about, and kills everything that bears the mark. Before a regular end pytest itself looks for what was left.
"""

import contextlib
import os
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass

import psutil

MARK = "FEDEAS_TESTS"
"""Environment variable: the marks of the pytest processes above a process, since tests may start pytest, too."""

GRACE = 120.0
"""Seconds that processes have to end after they were told to."""


@dataclass
class Warden:
    """The mark of this pytest, and the process that waits for its end."""

    mark: str
    process: subprocess.Popen

    @classmethod
    def start(cls):
        """Set the mark for all processes started from now on; the warden itself does not have it."""
        mark = uuid.uuid4().hex
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
        process = subprocess.Popen([sys.executable, __file__, mark], stdin=subprocess.PIPE, **quiet)
        os.environ[MARK] = " ".join(filter(None, (os.environ.get(MARK), mark)))
        return cls(mark, process)

    def left(self):
        """The tests' processes that still run, as text, after a wait for those that were told to end."""
        end = time.monotonic() + GRACE
        while (found := self._started_by_tests()) and time.monotonic() < end:
            time.sleep(0.05)
        return found

    def _started_by_tests(self):
        described = [_described(process) for process in marked(self.mark)]
        return [each for each in described if "multiprocessing.resource_tracker" not in each]  # pytest's own helper

    def end(self):
        """Make the warden kill what is left now."""
        self.process.communicate()  # closes its input, on which it waits


def marked(mark):
    """The running processes with this mark, and their descendants, which may have overwritten the mark."""
    bearers = [process for process in psutil.process_iter() if _bears(process, mark)]
    found = set(bearers)
    for process in bearers:
        with contextlib.suppress(psutil.Error):
            found.update(process.children(recursive=True))
    return [process for process in found if _runs(process)]


def _bears(process, mark):
    try:
        return mark in process.environ().get(MARK, "").split()
    except (psutil.Error, OSError):  # it ended, or belongs to somebody else
        return False


def _runs(process):
    with contextlib.suppress(psutil.Error):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def _described(process):
    with contextlib.suppress(psutil.Error):
        return f"{process.pid} {' '.join(process.cmdline())[:200]}"
    return str(process.pid)


def _kill_all(mark):
    """Kill until none is left: one that is being killed may have started another."""
    while left := marked(mark):
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=1)


if __name__ == "__main__":
    sys.stdin.read()
    _kill_all(sys.argv[1])
