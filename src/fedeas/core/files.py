"""Write files whole: a kill, a full disk or a power failure never leaves a partial file."""

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

# Temporary failures, after which the same command may succeed later; and those that need another path or permission.
PASSING = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
UNUSABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}

PROCESSES = Path("/proc")  # a folder for each living process, on Linux
STRANGER_KEPT = 24 * 3600.0  # seconds before a temporary file is removed whose process cannot be looked up
_PART = re.compile(r"\..*-(?P<place>[0-9a-f]{8})-(?P<pid>\d+)-(?P<token>[0-9a-f]{8})-[0-9a-f]{8}(\.[^.]*)?")
_TOKEN = secrets.token_hex(4)  # tells this process from an earlier one with the same number
_LONGEST_STEM = 40  # characters of a file's name in its temporary file's name, which has at most 255 bytes

PathLike = str | os.PathLike[str]


def cache_folder() -> Path:
    """The folder for what can be made or fetched again: ``$FEDEAS_CACHE`` or ``~/.cache/fedeas``."""
    return Path(os.environ.get("FEDEAS_CACHE") or Path.home() / ".cache" / "fedeas")


@contextmanager
def written_whole(path: PathLike, flushed: bool = True) -> Iterator[Path]:
    """Give a temporary path beside `path` and move it there at the end; after an error `path` is unchanged.

    After the block the content is on the disk, not only in the operating system's cache. `flushed=False` leaves that to
    the system, and leftovers to the caller: for one of many small files.
    """
    target = Path(path)
    with writing(target):
        if not target.parent.is_dir():
            raise InputError(f"{target}: the folder {target.parent} does not exist; create it first")
        if flushed:
            remove_leftovers(target.parent)
        part = temporary(target)
        try:
            yield part
            if flushed:
                flush(part)
            part.replace(target)
            if flushed:
                flush(target.parent)
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)


def temporary(target: Path) -> Path:
    """A new hidden name beside `target` that names the process using it."""
    return target.with_name(
        f".{target.stem[:_LONGEST_STEM]}-{_place()}-{os.getpid()}-{_TOKEN}-{secrets.token_hex(4)}{target.suffix}"
    )


def write_bytes(path: PathLike, content: bytes, mode: int = 0o666) -> None:
    """Write a file whole or not at all; its mode, less the umask, is set before the first byte is written."""
    with (
        written_whole(path) as part,
        os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file,
    ):
        file.write(content)


def make_folder(path: Path, inside: Path | None = None) -> None:
    """Create a folder and its missing parents; below the output folder `inside`, symbolic links are refused."""
    with writing(path, "created"):
        if inside is not None:
            refuse_links(path, inside)
        path.mkdir(parents=True, exist_ok=True)


def refuse_links(path: Path, inside: Path) -> None:
    """Refuse a folder in the output folder `inside` if a symbolic link is on the way to it."""
    if path.resolve() != inside.resolve() / path.relative_to(inside):
        raise InputError(f"{path}: a symbolic link is on the way from {inside} to it; remove the link")


def in_place(path: str, flags: int) -> int:
    """An opener, for `open`, of a file that is changed where it is: created if missing, refused if it is a link."""
    return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW, 0o666)


@contextmanager
def writing(path: PathLike, done: str = "written") -> Iterator[None]:
    """Turn errors of the operating system into one line about this path."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error, done) from None


def unwritable(path: PathLike, error: OSError, done: str = "written") -> FedEASError:
    """The error for a path that cannot be written: `RunError` for a temporary failure, such as a full disk."""
    reason = "a symbolic link" if error.errno == errno.ELOOP else error.strerror or str(error)
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
            named = _PART.fullmatch(entry.name)
            if named is None:
                continue
            with suppress(OSError):
                is_dead = time.time() - entry.stat(follow_symlinks=False).st_mtime > STRANGER_KEPT
                if named["place"] == _place() and named["pid"] == str(os.getpid()):
                    is_dead = named["token"] != _TOKEN
                elif named["place"] == _place() and PROCESSES.exists():
                    is_dead |= not (PROCESSES / named["pid"]).exists()
                if is_dead and entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                elif is_dead:
                    Path(entry.path).unlink()


@cache
def _place() -> str:
    """A hash of the machine and container within which process ids are unique."""
    space = ""
    with suppress(OSError):
        space = str(Path("/proc/self/ns/pid").readlink())
    return hashlib.sha256(f"{socket.gethostname()} {space}".encode()).hexdigest()[:8]
