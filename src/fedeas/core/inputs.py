"""Checks that every reader makes before it opens a file."""

from __future__ import annotations

import os
import stat
import tokenize
import zipfile
import zlib
from pathlib import Path

from fedeas.core.errors import InputError

FREE_BYTES = 2**28
BYTES_PER_BYTE = 200

DAMAGED_ARRAYS: tuple[type[Exception], ...] = (
    *(OSError, EOFError, ValueError, TypeError, LookupError, AttributeError, OverflowError),
    *(RecursionError, NotImplementedError, SyntaxError, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)
"""What numpy raises for damaged ``.npy`` and ``.npz`` files, whose headers it reads as Python literals."""


def checked_file(path: str | os.PathLike[str], most_bytes: int | None = None) -> int:
    """The size of a regular file in bytes; pipes and devices are refused, since reading them may never end."""
    try:
        about = Path(path).stat()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:  # ValueError: the name is too long or holds a NUL
        raise InputError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if not stat.S_ISREG(about.st_mode):
        kind = "Is a directory" if stat.S_ISDIR(about.st_mode) else "a pipe or a device; give a regular file"
        raise InputError(f"{path}: cannot be read ({kind})")
    if most_bytes is not None and about.st_size > most_bytes:
        raise InputError(f"{path}: {about.st_size:,} bytes are too many; give a file of at most {most_bytes:,}")
    return about.st_size


def is_there(path: str | os.PathLike[str]) -> bool:
    """Whether there is a file or folder of this name; False for what cannot be a name."""
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # too long, or a NUL in it
        return False


def check_not_input(output: str | os.PathLike[str] | None, source: str | os.PathLike[str] | None) -> None:
    """Refuse to write over the file that is read, also where another path leads to it."""
    if output is None or source is None:
        return
    try:
        same = Path(output).samefile(source)
    except (OSError, ValueError):  # one of them does not exist, or cannot be the name of a file
        return
    if same:
        raise InputError(f"{output}: this is the input, which would be lost; give the output another name")


def checked_archive(path: str | os.PathLike[str]) -> None:
    """Refuse an ``.npz`` file whose arrays would take far more memory than its size suggests."""
    size = checked_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(part.file_size for part in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError):
        return  # the reader says what is wrong with it
    if unpacked > max(FREE_BYTES, BYTES_PER_BYTE * size):
        raise InputError(f"{path}: {size:,} bytes would become {unpacked:,}; check the file")
