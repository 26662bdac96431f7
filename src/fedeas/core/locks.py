"""Locks between processes: one process holds a lock at a time, and its end releases it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from fedeas.core.errors import InputError
from fedeas.core.files import make_folder, unwritable

POLL = 0.01  # seconds between two attempts to get a lock
GRACE = 0.2  # seconds to wait for a lock before it counts as taken; `is_held` takes it for a moment


@contextmanager
def locked(path: Path, taken: str = "") -> Iterator[None]:
    """Hold the lock of this file. If another process holds it, raise `InputError(taken)`, or wait if that is empty."""
    make_folder(path.parent)
    lock = FileLock(
        path, timeout=GRACE if taken else -1, poll_interval=POLL, thread_local=False, fallback_to_soft=False
    )
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


def is_held(path: Path) -> bool:
    """Whether a process holds the lock of this file; False if that cannot be found out."""
    if not path.exists():
        return False
    lock = FileLock(path, blocking=False, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        return True
    except OSError:
        return False
    lock.release()
    return False
