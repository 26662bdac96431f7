"""Files and locks of a bank: errors in words, locks that die with their process, writes that are complete."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import InputError, RunError

# The person has to change something before another attempt; other failures, such as a full disk, may pass.
UNUSABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST}


@contextmanager
def shared(path: Path) -> Iterator[None]:
    """Hold the lock of this file together with others, so that nobody holds it alone; it dies with the process.

    `fedeas.core.locks` has no such locks: those of the library that it uses need a database.
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
            # Closing is not enough where a process forked meanwhile has the file open, too.
            fcntl.flock(file, fcntl.LOCK_UN)


@contextmanager
def opened_for_writing(path: Path) -> Iterator[int]:
    """A file to be written at any place, made where there is none."""
    path.parent.mkdir(exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def write_all(descriptor: int, content: NDArray[np.uint8], offset: int) -> None:
    """Not flushed to the disk: what a power failure swallows has no good digest and is made anew."""
    rest = np.ascontiguousarray(content).reshape(-1).data
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written


@contextmanager
def reported(path: Path) -> Iterator[None]:
    """Errors of the operating system as one line about this path."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in UNUSABLE:
            raise InputError(f"{path}: cannot be used ({reason}); give a folder that can be written") from None
        raise RunError(f"{path}: cannot be used ({reason}); images kept so far are not made again") from None


def data_stretches(descriptor: int, slot: int) -> Iterator[tuple[int, int]]:
    """First and last slots of the stretches that take up space: an image of high number leaves a hole before it."""
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
