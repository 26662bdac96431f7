"""Locks between processes: held by one at a time, and gone with the process that holds them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from fedeas.core.files import make_folder, unwritable
from fedeas.errors import InputError

POLL = 0.01  # seconds between two looks at a lock that another process holds


@contextmanager
def locked(path: Path, taken: str = "") -> Iterator[None]:
    """Hold the lock of this file; where another process holds it, wait, or raise `taken` as an `InputError`."""
    make_folder(path.parent)
    lock = FileLock(path, blocking=not taken, poll_interval=POLL, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise InputError(taken) from None
    except OSError as error:
        raise unwritable(path, error) from None
    try:
        yield
    finally:
        lock.release()
