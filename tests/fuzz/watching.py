"""One input, watched: what it raises, how long it takes, what it allocates, writes and runs."""

from __future__ import annotations

import contextlib
import io
import os
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from fuzz.targets import TARGETS

from fedeas.core.errors import FedEASError

MAX_SECONDS = 5.0
MAX_BYTES = 10**9
HANGS = 300.0  # seconds that only a hang takes, however busy the machine is
FORBIDDEN = {"pickle.find_class", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Watch:
    """Hears of every file that is opened to be written, and of every program, while a folder is set."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.found: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.folder is None:
            return
        if event in FORBIDDEN:
            self.found.append(f"{event} {str(arguments)[:200]}")
        elif event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING:
            path = arguments[0]
            if isinstance(path, str | bytes) and not self._is_inside(os.fsdecode(path)):
                self.found.append(f"writes {path!r}")

    def _is_inside(self, path: str) -> bool:
        return path == os.devnull or os.path.realpath(path).startswith(f"{self.folder}{os.sep}")


_watch: list[Watch] = []


def fault(target: str, content: bytes, folder: Path) -> str:
    """What is wrong with how this input is taken, or nothing. The folder is the input's own."""
    folder = folder.resolve()
    if not _watch:
        _watch.append(Watch())
    watch, said, complaint = _watch[0], io.StringIO(), ""
    before, began = _peak(), time.process_time()
    watch.found = []
    with _inside(folder), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), _alarm():
        watch.folder = folder
        try:
            TARGETS[target](content, folder)
        except FedEASError as error:
            complaint = "" if "\n" not in str(error) else f"more than a line: {error}"
        except BaseException as error:
            complaint = f"{type(error).__name__}: {error}"[:300]
        finally:
            watch.folder = None
    seconds, grown = time.process_time() - began, _peak() - before
    faults = [complaint, *watch.found]
    faults += [f"takes {seconds:.1f} s"] * (seconds > MAX_SECONDS)
    faults += [f"takes {grown / 1e9:.1f} GB"] * (grown > MAX_BYTES + len(content))
    faults += ["shows a traceback"] * ("Traceback" in said.getvalue())
    faults += ["shows control characters"] * any(letter in said.getvalue() for letter in "\x1b\x07\x00")
    faults += ["code was run"] * (folder / "owned").exists()
    return "; ".join(filter(None, faults))


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before, bytecode = tempfile.tempdir, sys.dont_write_bytecode
    tempfile.tempdir, sys.dont_write_bytecode = str(folder), True
    with contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            tempfile.tempdir, sys.dont_write_bytecode = before, bytecode


@contextlib.contextmanager
def _alarm() -> Iterator[None]:
    """An end for what would never end."""

    def stop(*_: object) -> None:
        raise TimeoutError("does not end")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, HANGS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
