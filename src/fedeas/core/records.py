"""Files that are read: the errors of reading them, and records as JSON, lines and arrays with their digests."""

import errno
import json
import os
import stat
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from fedeas.core.arrays import BYTES_PER_BYTE, FREE_BYTES, json_digest
from fedeas.core.errors import InputError, reason_of
from fedeas.core.files import PathLike, flush, in_place, make_folder, writing, written_whole

Record = dict[str, Any]

DIGEST = "digest"  # the key in a record, or in the metadata of tensors
KIND = "sha256:"  # what its value begins with
FILE_DIGITS, LINE_DIGITS = 64, 16  # digits of the hash that are kept; fewer for lines, which are short and many
LONGEST_ZIP_END = 22 + 65_535  # bytes of the record at the end of a ZIP file, with the longest comment

READ_AGAIN = "restore it from a copy, or remove it"

DAMAGED_ARRAYS: tuple[type[Exception], ...] = (
    *(OSError, EOFError, ValueError, TypeError, LookupError, AttributeError, OverflowError),
    *(RecursionError, NotImplementedError, SyntaxError, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)
"""What numpy raises for damaged ``.npy`` and ``.npz`` files, whose headers it reads as Python literals."""


def checked_file(path: PathLike, most_bytes: int | None = None) -> int:
    """The size of a regular file in bytes; pipes and devices are refused, since reading them may never end."""
    return checked_stat(path, most_bytes).st_size


def checked_stat(path: PathLike, most_bytes: int | None = None) -> os.stat_result:
    """What the file system says of a regular file; see `checked_file`."""
    try:
        about = Path(path).stat()
    except (OSError, ValueError) as error:  # ValueError: the name is too long or holds a NUL
        raise unreadable(path, error) from None
    if not stat.S_ISREG(about.st_mode):
        kind = "Is a directory" if stat.S_ISDIR(about.st_mode) else "a pipe or a device; give a regular file"
        raise InputError(f"{path}: cannot be read ({kind})")
    if most_bytes is not None and about.st_size > most_bytes:
        raise InputError(f"{path}: {about.st_size:,} bytes are too many; give a file of at most {most_bytes:,}")
    return about


def is_there(path: PathLike) -> bool:
    """Whether there is a file or folder of this name; False for what cannot be a name.

    What cannot be looked up is an error, also on those versions of Python where `Path.exists` says False; so is a
    symbolic link to nothing.
    """
    try:
        Path(path).stat()
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:  # ValueError: a NUL in it
        if isinstance(error, FileNotFoundError) and Path(path).is_symlink():
            raise unreadable(path, error) from None
        return False
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return False
        raise unreadable(path, error) from None
    return True


def matching(folder: Path, pattern: str) -> list[Path]:
    """What `Path.glob` finds for names with ``*`` and ``[...]``, sorted; a folder that cannot be read is an error."""
    first, _, rest = pattern.partition("/")
    if not {*first} & {*"*["}:
        found = [folder / first] if is_there(folder / first) else []
    else:
        try:
            found = sorted(path for path in folder.iterdir() if fnmatchcase(path.name, first))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise unreadable(folder, error) from None
    return [path for each in found for path in matching(each, rest)] if rest else found


def files_below(folder: Path) -> list[Path]:
    """All files below a folder, sorted; a folder that cannot be read is an error."""

    def refuse(error: OSError) -> NoReturn:
        raise unreadable(error.filename, error) from None

    return sorted(Path(place) / name for place, _, names in os.walk(folder, onerror=refuse) for name in names)


def check_not_input(output: PathLike | None, source: PathLike | None) -> None:
    """Refuse to write over the file that is read, also where another path leads to it."""
    if output is None or source is None or not (is_there(output) and is_there(source)):
        return
    if Path(output).samefile(source):
        raise InputError(f"{output}: this is the input, which would be lost; give the output another name")


def checked_archive(path: PathLike) -> None:
    """Refuse an ``.npz`` file whose arrays would take far more memory than its size suggests."""
    checked_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(part.file_size for part in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError):
        return  # the reader says what is wrong with it
    check_unpacked(path, unpacked)


def check_unpacked(path: PathLike, unpacked: int, free: int = FREE_BYTES, per_byte: int = BYTES_PER_BYTE) -> None:
    """Refuse a file that would take more than `free` bytes of memory, and far more than its size suggests."""
    if unpacked > max(free, per_byte * (size := checked_file(path))):
        raise InputError(f"{path}: {size:,} bytes would become {unpacked:,}; check the file")


def read_bytes(path: PathLike) -> bytes:
    """The content of a file."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None


def unreadable(path: PathLike, error: Exception, form: str = "", remedy: str = "") -> InputError:
    """The error for a file that is not there or cannot be read; `form` is what it should be, such as " as Parquet"."""
    if isinstance(error, FileNotFoundError):
        found = "a symbolic link to nothing; remove it" if Path(path).is_symlink() else "no such file"
        return InputError(f"{path}: {found}")
    if isinstance(error, PermissionError):
        remedy = remedy or "change its permissions or leave it out"
    return InputError(f"{path}: cannot be read{form} ({reason_of(error)}){remedy and f'; {remedy}'}")


def damaged(path: PathLike, reason: object, remedy: str) -> InputError:
    """The error for a file whose content cannot be used."""
    return InputError(f"{path}: damaged ({reason_of(reason)}); {remedy}")


def write_record(path: PathLike, content: Mapping[str, Any]) -> None:
    """Write a JSON object as a file."""
    with written_whole(path) as part:
        part.write_text(json.dumps(_sealed(content, FILE_DIGITS), indent=1) + "\n", encoding="utf-8")


def read_record(path: PathLike, remedy: str = READ_AGAIN) -> Record:
    """Read what `write_record` wrote; a file without a digest is accepted unchecked."""
    return parsed(path, read_bytes(path), remedy)


def parsed(path: PathLike, content: bytes, remedy: str = READ_AGAIN, place: str = "") -> Record:
    """The record in the content of a file; its path, and the place in it, are for errors."""
    try:
        record = json.loads(content)
        if not isinstance(record, dict):
            raise ValueError("not a JSON object")
        digest = record.pop(DIGEST, None)
        if digest is None and any(isinstance(value, str) and value.startswith(KIND) for value in record.values()):
            raise ValueError("the name of its digest is not right")
        if digest is not None and digest not in (_digest(record, FILE_DIGITS), _digest(record, LINE_DIGITS)):
            raise ValueError("its content does not match its digest")
        return record
    except (ValueError, TypeError, RecursionError) as error:
        raise damaged(path, f"{place}{reason_of(error)}", remedy) from None


def _sealed(content: Mapping[str, Any], digits: int) -> Record:
    plain: Record = json.loads(json.dumps(content))  # as it will be read: tuples become lists, keys become text
    plain.pop(DIGEST, None)  # the digest of the file that this content came from
    return {**plain, DIGEST: _digest(plain, digits)}


def _digest(record: Record, digits: int) -> str:
    return KIND + json_digest(record, sort_keys=True)[:digits]


class Journal:
    """A file with one record on each line; `remedy` says in errors what to do about a damaged one.

    Add a record before you do what it stands for: `add` returns when the line is on the disk. A kill may leave half a
    line at the end. `add` has not returned then, and nothing has been done, so that half a line is ignored. All other
    damage is refused.
    """

    def __init__(self, path: Path, remedy: str) -> None:
        self.path, self.remedy = path, remedy

    def read(self, most: int | None = None) -> list[Record]:
        """All records, or at most so many of the first ones."""
        lines = enumerate(self._lines()[:most], 1)
        return [parsed(self.path, line, self.remedy, f"line {number}: ") for number, line in lines]

    def add(self, record: Mapping[str, Any]) -> None:
        """Add a record and wait until it is on the disk."""
        make_folder(self.path.parent)
        with writing(self.path), open(self.path, "a+b", opener=in_place) as file:
            is_new = not file.tell()
            file.seek(0 if is_new else -1, os.SEEK_END)
            is_whole = is_new or file.read() == b"\n"
        if not is_whole:  # half a line is removed; a whole one, as of an editor, is ended
            self.keep(None)
        with writing(self.path), open(self.path, "ab", opener=in_place) as file:
            file.write(json.dumps(_sealed(record, LINE_DIGITS)).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
            if is_new:
                flush(self.path.parent)

    def keep(self, most: int | None) -> None:
        """Remove all records but so many of the first ones, and half a line at the end."""
        content = b"".join(line + b"\n" for line in self._lines()[:most])
        with written_whole(self.path) as part:
            part.write_bytes(content)

    def _lines(self) -> list[bytes]:
        """The lines without half a line at the end: a JSON object without its end is not JSON."""
        *lines, last = read_bytes(self.path).split(b"\n") if is_there(self.path) else [b""]
        with suppress(ValueError):
            json.loads(last)
            lines.append(last)
        return lines


def write_arrays(path: PathLike, **arrays: NDArray[Any]) -> None:
    """Write arrays by name to one NPZ file, which keeps a checksum of each."""
    with written_whole(path) as part, part.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def read_arrays(
    path: PathLike, names: tuple[str, ...], remedy: str = READ_AGAIN, optional: tuple[str, ...] = ()
) -> list[Any]:
    """Arrays of these names from an NPZ file, with None for optional ones that it lacks; pickled ones are refused."""
    with opened_arrays(path, remedy) as file:
        found = {name: file.get(name) for name in names + optional}
        for name, array in found.items():
            if array is None and name in names:
                raise ValueError(f"it has no array {name!r}")
            if not isinstance(array, np.ndarray | None):  # numpy gives bytes for an entry that is not an array
                raise ValueError(f"{name} is not an array")
        return [*found.values()]


def array_names(path: PathLike, remedy: str = READ_AGAIN) -> list[str]:
    """The names of the arrays in an NPZ file."""
    with opened_arrays(path, remedy) as file:
        return list(file)


@contextmanager
def opened_arrays(path: PathLike, remedy: str) -> Iterator[NpzFile]:
    """Open an NPZ file; refuse one whose directory, which has no checksum, lost an entry or its name."""
    try:
        with Path(path).open("rb") as opened, NpzFile(opened) as file:
            archive: Any = file.zip
            entries: list[zipfile.ZipInfo] = archive.infolist()
            opened.seek(max(0, opened.seek(0, os.SEEK_END) - LONGEST_ZIP_END))
            end = opened.read().rpartition(b"PK\5\6")[2]
            if int.from_bytes(end[6:8], "little") != len(entries):
                raise ValueError("its directory has lost an entry")
            for entry in entries:
                archive.open(entry).close()  # compares the name in the directory with the one before the content
            yield file
    except FileNotFoundError as error:
        raise unreadable(path, error) from None
    except InputError:
        raise
    except Exception as error:  # a damaged header fails in numpy's, zipfile's, zlib's and the parser's own ways
        raise damaged(path, reason_of(error)[:200], remedy) from None
