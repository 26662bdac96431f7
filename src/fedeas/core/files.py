"""Write files whole: a kill, a full disk or a power failure never leaves a partial file."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from fedeas.core.errors import FedEASError, InputError, RunError
from fedeas.core.process_births import birth

PASSING = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
"""Temporary failures: the same command may succeed later."""

UNUSABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
"""Permanent failures: the path or its permissions must change."""

STRANGER_KEPT = 24 * 3600.0  # seconds before a temporary file of another machine or container is removed
_PART = re.compile(r"\..*-(?P<place>[0-9a-f]{8})-(?P<pid>\d+)-(?P<born>[0-9a-f]{8})-[0-9a-f]{8}(\.[^.]*)?")
_LONGEST_STEM = 40  # characters of a file's name in its temporary file's name, which has at most 255 bytes

PathLike = str | os.PathLike[str]


def cache_folder() -> Path:
    """The folder for what can be made or fetched again: ``$FEDEAS_CACHE`` or ``~/.cache/fedeas``."""
    return Path(os.environ.get("FEDEAS_CACHE") or Path.home() / ".cache" / "fedeas")


@contextmanager
def written_whole(path: PathLike) -> Iterator[Path]:
    """Give a temporary path beside `path` and move it there at the end; after an error `path` is unchanged.

    After the block the content is on the disk, not only in the operating system's cache.
    """
    target = Path(path)
    with writing(target):  # a name that is too long fails here
        has_folder = target.parent.is_dir()
    if not has_folder:
        raise InputError(f"{target}: the folder {target.parent} does not exist; create it first")
    remove_leftovers(target.parent)
    part = temporary(target)
    with writing(target):
        try:
            yield part
            flush(part)
            part.replace(target)
            flush(target.parent)
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)


def temporary(target: Path) -> Path:
    """A new hidden name beside `target` that names the process using it."""
    owner = f"{_place()}-{os.getpid()}-{_born(os.getpid())}"
    return target.with_name(f".{target.stem[:_LONGEST_STEM]}-{owner}-{secrets.token_hex(4)}{target.suffix}")


def write_bytes(path: PathLike, content: bytes, mode: int = 0o666) -> None:
    """Write a file whole or not at all; its mode, less the umask, is set before the first byte is written."""
    with (
        written_whole(path) as part,
        os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file,
    ):
        file.write(content)


def append_line(path: Path, line: str) -> None:
    """Add a line to a file and wait until it is on the disk."""
    with writing(path):
        is_new = not path.exists()
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            flush(path.parent)


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error, "created") from None


@contextmanager
def writing(path: PathLike) -> Iterator[None]:
    """Turn errors of the operating system into one line about this path."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: PathLike, error: OSError, done: str = "written") -> FedEASError:
    """The error for a path that cannot be written: `RunError` for a temporary failure, such as a full disk."""
    reason = error.strerror or str(error)
    if error.errno in PASSING:
        return RunError(f"{path}: cannot be {done} ({reason}); make room, then run the command again")
    return InputError(f"{path}: cannot be {done} ({reason}); choose another place")


def known_error(error: OSError) -> FedEASError | None:
    """The error as one line if a user can fix it; None for anything else."""
    if error.errno in PASSING | UNUSABLE and error.filename is not None:
        return unwritable(os.fsdecode(error.filename), error, "used")
    return None


def flush(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems cannot flush a folder
            raise
    finally:
        os.close(descriptor)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files and folders that killed processes left in a folder."""
    with suppress(OSError):
        for entry in os.scandir(folder):
            found = _PART.fullmatch(entry.name)
            if not found or not _is_left_over(entry, found):
                continue
            with suppress(OSError):
                if entry.is_dir():
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    Path(entry.path).unlink()


def _is_left_over(entry: os.DirEntry[str], named: re.Match[str]) -> bool:
    """Whether the process in the name is dead; a file of another machine is judged by its age."""
    if named["place"] == _place():
        return _born(int(named["pid"])) != named["born"]
    with suppress(OSError):
        return time.time() - entry.stat(follow_symlinks=False).st_mtime > STRANGER_KEPT
    return False


@cache
def _place() -> str:
    """A hash of the machine and container within which process ids are unique."""
    space = ""
    with suppress(OSError):
        space = str(Path("/proc/self/ns/pid").readlink())
    return _short_hash(f"{socket.gethostname()} {space}")


def _born(pid: int) -> str:
    """A hash of the start time of a process, short enough for a file's name."""
    return _short_hash(str(birth(pid)))


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
