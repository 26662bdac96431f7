"""Files and locks of a bank: one-line errors, locks that end with their process, complete writes."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedeas.core.errors import InputError, RunError
from fedeas.core.files import UNUSABLE


@contextmanager
def shared(path: Path) -> Iterator[None]:
    """Hold a shared lock on this file, which excludes exclusive ones; it ends with the process.

    `fedeas.core.locks` has no shared locks: the library that it uses needs a database for them.
    """
    with reported(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    with file:
        with reported(path):
            fcntl.flock(file, fcntl.LOCK_SH)
        try:
            yield
        finally:
            # Closing is not enough if a process that was forked in the meantime has the file open, too.
            fcntl.flock(file, fcntl.LOCK_UN)


@contextmanager
def opened_for_writing(path: Path) -> Iterator[int]:
    """Open a file to write at any offset; create it if it does not exist."""
    path.parent.mkdir(exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def write_all(descriptor: int, content: NDArray[np.uint8], offset: int) -> None:
    """Write without flushing to disk: an image lost in a power failure has no valid digest and is made again."""
    rest = np.ascontiguousarray(content).reshape(-1).data
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written


@contextmanager
def reported(path: Path) -> Iterator[None]:
    """Turn errors of the operating system into one line about this path."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in {*UNUSABLE, errno.EEXIST}:  # a file is where the folder should be
            raise InputError(f"{path}: cannot be used ({reason}); give a folder that can be written") from None
        raise RunError(f"{path}: cannot be used ({reason}); images kept so far are not made again") from None


def data_stretches(descriptor: int, slot: int) -> Iterator[tuple[int, int]]:
    """First and last slots of the stretches that take up space; before an image of high number there is a hole."""
    size, place, done = os.fstat(descriptor).st_size, 0, 0
    while place < size:
        try:
            start = os.lseek(descriptor, place, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                return
            raise
        place = os.lseek(descriptor, start, os.SEEK_HOLE)
        first, done = max(done, start // slot), -(-place // slot)
        yield first, done
