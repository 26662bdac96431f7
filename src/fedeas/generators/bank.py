"""Images kept on disk by address, so that none is generated twice.

A bank is a folder with one SQLite file for each generator. A row is an image, followed by a digest of generator,
address and pixels. An image whose digest is wrong counts as missing. If SQLite finds a file damaged, the images that
can still be read move to a new file. The files have a rollback journal and no write-ahead log, which would not work on
the shared file systems of clusters.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from fedeas.core.arrays import BoolArray, ByteArray, IntArray
from fedeas.core.errors import InputError, RunError
from fedeas.core.files import PathLike, make_folder, unwritable, writing
from fedeas.core.locks import locked
from fedeas.generators.base import (
    CLIENT_BITS,
    Generator,
    GeneratorWrapper,
    Images,
    Shape,
    checked_address,
    checked_shape,
    client_of,
    described,
    number_of,
)

FORMAT = "fedeas-bank-2"
SUFFIX = ".sqlite"
NAME_LENGTH = 16  # characters of a fingerprint that name its file
DIGEST_BYTES = 8
PAGE_BYTES = 2**14  # five CIFAR images; with SQLite's usual 4,096, each would leave a quarter of a page empty
BLOCK_BYTES = 2**24  # checked at a time
PATIENCE = 600.0  # seconds to wait while other processes write
MOST_LOCKS = 128  # open at a time; every system allows a process at least 256 open files

_HEX = re.compile("[0-9a-f]+")
_TABLES = f"""
PRAGMA page_size = {PAGE_BYTES};
PRAGMA synchronous = OFF;
CREATE TABLE IF NOT EXISTS about (content TEXT);
CREATE TABLE IF NOT EXISTS images (label INTEGER, number INTEGER, content BLOB, PRIMARY KEY (label, number));
"""
_KEEP = "INSERT OR REPLACE INTO images VALUES (?, ?, ?)"
# Damage can change the types of values, too.
_ROW = "iif(typeof(label) = 'integer', label, -1), iif(typeof(number) = 'integer', number, -1), content"
_FIND = "FROM images WHERE label = ? AND number BETWEEN ? AND ?"

# Errors of SQLite that are not due to damage: a full disk, permissions, another process.
_OUTSIDE = {
    sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
}  # fmt: skip
_FOREVER = {sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}
# A sector that cannot be read, and a file that another process has repaired since it was opened.
_DAMAGE = {sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_READONLY_DBMOVED}

Result = TypeVar("Result")


class DamagedError(RunError):
    """SQLite cannot read its file, or the file does not say whose images it holds."""


class Address(NamedTuple):
    """One image of a bank."""

    label: int
    client: int
    number: int
    """Which of the client's images of this class, from 0."""

    def __str__(self) -> str:
        return f"class {self.label}, client {self.client}, image {self.number}"


@dataclass(frozen=True)
class Verification:
    """The result of hashing all images of one generator."""

    name: str
    checked: int
    damaged: tuple[Address, ...]


@dataclass(frozen=True)
class KeptImages:
    """What a bank holds of one generator; the pixels are not checked."""

    name: str
    """First 16 characters of the fingerprint."""
    description: str
    images: int | None
    """None if a problem makes it impossible to tell."""
    clients: int
    bytes: int
    """Space on disk."""
    used: float
    """When the bank was last used with this generator, in seconds since 1970."""
    problem: str = ""
    """Why these images cannot be used."""


@dataclass(frozen=True)
class About:
    """Whose images a file holds."""

    fingerprint: str
    num_classes: int
    shape: Shape
    description: str
    """For `fedeas bank ls` alone."""
    format: str = FORMAT

    @classmethod
    def of(cls, generator: Generator) -> About:
        """That of a generator; its fingerprint must be usable as the name of a file."""
        shape = checked_shape(generator.shape)
        about = cls(generator.fingerprint, int(generator.num_classes), shape, described(generator))
        if not _HEX.fullmatch(about.fingerprint) or len(about.fingerprint) < NAME_LENGTH:
            raise InputError(f"fingerprint {about.fingerprint!r} is not made of {NAME_LENGTH} or more digits 0-9, a-f")
        if generator.batch_size < 1:
            raise InputError(f"the generator's batch_size must be at least 1, not {generator.batch_size}")
        return about

    @classmethod
    def read(cls, path: Path) -> About:
        """What a file says."""
        with _opened(path) as database:
            rows = database.execute("SELECT content FROM about").fetchall()
        try:
            content = json.loads(rows[0][0])
            return cls(**content | {"shape": checked_shape(content["shape"])})
        except (LookupError, ValueError, TypeError, InputError):
            raise DamagedError(
                f"{path}: does not say whose images it holds; a run with its generator repairs it, or {_remedy(path)}"
            ) from None

    @property
    def images(self) -> str:
        """What decides whether two files hold the same images, in words."""
        shape = "x".join(map(str, self.shape))
        return f"generator {self.fingerprint} ({self.num_classes} classes, images {shape}, {self.format})"


@dataclass(frozen=True)
class ImageFile:
    """The images of one generator. It holds no open file, so that it can be sent to other processes."""

    root: Path
    about: About

    @property
    def name(self) -> str:
        """The name of the file, without its suffix."""
        return self.about.fingerprint[:NAME_LENGTH]

    @property
    def path(self) -> Path:
        """Where the file is."""
        return _path(self.root, self.name)

    @cached_property
    def pixels(self) -> int:
        """Bytes of an image."""
        return prod(self.about.shape)

    @contextmanager
    def filling(self) -> Iterator[None]:
        """Keep the file from being pruned; it exists from here on, even if it was pruned before."""
        with _shared(_gate(self.path)):
            if not self.is_ours():
                self.repaired(lambda: self._sign(self.path))
            yield

    def is_ours(self) -> bool:
        """Whether the file says that it holds these images; an error if it says that it holds others."""
        if not self.path.exists():
            return False
        try:
            found = About.read(self.path)
        except DamagedError:
            return False
        if found.images == self.about.images:
            return True
        raise InputError(f"{self.path}: holds images of {found.images}, not {self.about.images}; {_remedy(self.path)}")

    def _sign(self, path: Path) -> None:
        """Write into a file whose images it holds."""
        with _opened(path) as database:
            database.execute("DELETE FROM about")
            database.execute("INSERT INTO about VALUES (?)", [json.dumps(asdict(self.about))])

    def repaired(self, work: Callable[[], Result]) -> Result:
        """The result of work with the file; if it is damaged, it is repaired first."""
        before = self.path.stat().st_ino if self.path.exists() else None
        try:
            return work()
        except DamagedError:
            with locked(self.locks / "repair"):
                if self.path.exists() and self.path.stat().st_ino == before:  # no other process has repaired it
                    self._repair()
        return work()

    def _repair(self) -> None:
        """Move the good images that can be read to a new file."""
        part = self.path.with_suffix(".repaired")
        with writing(part):
            for leftover in (part, _journal(part)):
                leftover.unlink(missing_ok=True)
        self._sign(part)
        with _opened(part) as fresh, suppress(DamagedError), _opened(self.path) as old:
            old.execute("BEGIN EXCLUSIVE")
            fresh.executemany(_KEEP, (row for row in _readable(old) if self._is_good(*row)))
        with writing(part):
            _journal(self.path).unlink(missing_ok=True)
            part.replace(self.path)

    @property
    def locks(self) -> Path:
        """The folder of the locks for clients and for repairs."""
        return self.root / ".locks" / f"{self.name}-clients"

    def read(self, labels: IntArray, index: IntArray, images: ByteArray, rows: IntArray) -> BoolArray:
        """Read the good images into these rows; return which rows were read."""
        good = np.zeros(rows.size, dtype=bool)
        if not self.path.exists():
            return good
        with _opened(self.path) as database:
            for start, *span in _spans(labels, index):
                for number, content in database.execute(f"SELECT number, content {_FIND}", span):
                    if self._is_good(span[0], int(number), content):
                        place = start + int(number) - span[1]
                        good[place] = True
                        images[rows[place]] = np.frombuffer(content, np.uint8, self.pixels)
        return good

    def count(self, labels: IntArray, index: IntArray) -> int:
        """How many of these images are kept; they may be damaged."""
        if not self.path.exists():
            return 0
        with _opened(self.path) as database:
            found = (database.execute(f"SELECT count(*) {_FIND}", span) for _, *span in _spans(labels, index))
            return sum(each.fetchone()[0] for each in found)

    def write(self, labels: IntArray, index: IntArray, pixels: ByteArray) -> None:
        """Keep these images, all or none; the caller holds their clients' locks.

        Nothing is flushed to disk: what a power failure damages is made again.
        """
        with _opened(self.path) as database:
            rows = zip(labels.tolist(), index.tolist(), pixels, strict=True)
            sealed = (
                (label, number, image.tobytes() + self._digest(label, number, image.data))
                for label, number, image in rows
            )
            database.executemany(_KEEP, sealed)

    def verify(self, clear: bool) -> Verification:
        """Hash every image; `clear` removes the damaged ones."""
        checked, last, damaged = 0, 0, dict[int, Address]()
        query = f"SELECT rowid, {_ROW} FROM images WHERE rowid > ? ORDER BY rowid LIMIT ?"
        with _opened(self.path) as database:
            while block := database.execute(query, (last, max(1, BLOCK_BYTES // self.pixels))).fetchall():
                if block[-1][0] <= last:
                    raise sqlite3.DatabaseError("its rows are out of order")
                checked, last = checked + len(block), block[-1][0]
                bad = [row for row in block if not self._is_good(*row[1:])]
                damaged |= {row: Address(label, client_of(number), number_of(number)) for row, label, number, _ in bad}
            if clear:
                database.executemany("DELETE FROM images WHERE rowid = ?", ([row] for row in damaged))
        return Verification(self.name, checked, tuple(sorted(damaged.values())))

    def _is_good(self, label: int, number: int, content: object) -> bool:
        """Whether a row is what was written."""
        if not isinstance(content, bytes):
            return False
        return content[self.pixels :] == self._digest(label, number, memoryview(content)[: self.pixels])

    def _digest(self, label: int, number: int, image: memoryview) -> bytes:
        digest = blake2b(struct.pack("<qq", label, number), key=self._key, digest_size=DIGEST_BYTES)
        digest.update(image)
        return digest.digest()

    @cached_property
    def _key(self) -> bytes:
        return blake2b(self.about.fingerprint.encode(), digest_size=32).digest()


class Bank:
    """A folder with the images of any number of generators."""

    def __init__(self, root: PathLike) -> None:
        self.root = Path(root)

    def of(self, generator: Generator) -> BankedGenerator:
        """The same generator, which looks here before it makes an image and stores here what it makes."""
        file = ImageFile(self.root, About.of(generator))
        if not file.is_ours():  # a complete bank may be read-only
            with file.filling():
                pass
        with suppress(OSError):
            os.utime(file.path)
        return BankedGenerator(generator, file)

    def names(self) -> list[str]:
        """The generators in this bank, by the first 16 characters of their fingerprints."""
        stems = (path.stem for path in self.root.glob(f"*{SUFFIX}"))
        return sorted(stem for stem in stems if len(stem) == NAME_LENGTH and _HEX.fullmatch(stem))

    def name(self, fingerprint: str) -> str:
        """The name of the one generator whose fingerprint begins with these characters."""
        wanted = fingerprint.lower()
        if not _HEX.fullmatch(wanted):
            raise InputError(f"{fingerprint!r} is no fingerprint; give its first digits, 0-9 and a-f")
        found = [name for name in self.names() if name.startswith(wanted[:NAME_LENGTH])]
        if len(found) > 1:
            raise InputError(f"{fingerprint} may be {' or '.join(found)}; give more digits")
        if len(wanted) > NAME_LENGTH:
            with suppress(InputError, DamagedError):  # of a damaged file only the name is known
                found = [name for name in found if self.file(name).about.fingerprint.startswith(wanted)]
        if not found:
            raise InputError(f"{self.root}: nothing of a generator {fingerprint}; `fedeas bank ls` lists what there is")
        return found[0]

    def file(self, name: str) -> ImageFile:
        """The images of this name; an error if the file does not say whose they are."""
        path = _path(self.root, name)
        about = About.read(path)
        if about.fingerprint[:NAME_LENGTH] != name or about.format != FORMAT:
            raise InputError(f"{path}: holds images of {about.images}; {_remedy(path)}")
        return ImageFile(self.root, about)

    def kept(self, fingerprint: str) -> KeptImages:
        """What the bank holds of this generator; counts all its images, even damaged ones."""
        name = self.name(fingerprint)
        path = _path(self.root, name)
        with writing(path, "used"):
            status = path.stat()
        description, images, clients, problem = "", None, 0, ""
        try:
            description = self.file(name).about.description
            with _opened(path) as database:
                query = f"SELECT count(*), count(DISTINCT number >> {CLIENT_BITS}) FROM images"
                images, clients = database.execute(query).fetchone()
        except (DamagedError, InputError) as error:
            problem = str(error)
        return KeptImages(name, description, images, clients, 512 * status.st_blocks, status.st_mtime, problem)

    def verify(self, fingerprint: str, clear: bool = False) -> Verification:
        """Hash all images of this generator; `clear` removes the damaged ones, after a repair of the file."""
        file = self.file(self.name(fingerprint))
        return file.repaired(lambda: file.verify(clear)) if clear else file.verify(clear)

    def prune(self, fingerprint: str) -> KeptImages:
        """Remove all images of this generator and return what there was; refused while a process adds images."""
        kept = self.kept(fingerprint)
        path = _path(self.root, kept.name)
        gate = _gate(path)
        with locked(gate, f"{gate}: another process is filling this bank; wait for it"), writing(path, "removed"):
            path.unlink()
            _journal(path).unlink(missing_ok=True)
        return kept


class BankedGenerator(GeneratorWrapper[Generator]):
    """A generator that takes images from a bank and makes those that are missing; `Bank.of` makes one.

    `found` and `made` count the images that were read and that were generated; an address that occurs twice in one
    request counts once.
    """

    def __init__(self, generator: Generator, file: ImageFile) -> None:
        super().__init__(generator)
        self.found = 0
        self.made = 0
        self._file = file

    @property
    def description(self) -> str:
        """The generator's description."""
        return self._file.about.description

    def holdings(self, labels: ArrayLike, index: ArrayLike) -> tuple[int, int]:
        """How many of the distinct images of these addresses are kept already, and how many are not."""
        classes, numbers, _ = _distinct(*checked_address(labels, index, self.num_classes))
        kept = self._file.repaired(lambda: self._file.count(classes, numbers))
        return kept, classes.size - kept

    def sample(self, labels: ArrayLike, index: ArrayLike) -> Images:
        """The images of these addresses."""
        classes, numbers, places = _distinct(*checked_address(labels, index, self.num_classes))
        images = np.empty((classes.size, *self.shape), dtype=np.uint8)
        if (missing := self._look(classes, numbers, images, np.arange(classes.size))).size:
            self._complete(classes, numbers, images, missing)
        in_order = np.array_equal(places, np.arange(places.size))
        return images if in_order else images[places]

    def _look(self, labels: IntArray, index: IntArray, images: Images, rows: IntArray) -> IntArray:
        """Read the images of these rows; return the rows that are missing."""
        pixels = images.reshape(-1, self._file.pixels)
        good = self._file.repaired(lambda: self._file.read(labels[rows], index[rows], pixels, rows))
        self.found += int(good.sum())
        return rows[~good]

    def _complete(self, labels: IntArray, index: IntArray, images: Images, missing: IntArray) -> None:
        """Make the missing images under the locks of their clients, in full batches across clients.

        Clients are locked in ascending order, each until its last image is written, so that no two processes wait for
        each other. A process that had to wait for a lock reads again and finds the images.
        """
        clients, pending = client_of(index), missing[:0]
        with self._file.filling(), ExitStack() as all_locks:
            locks: dict[int, ExitStack] = {}

            def make_batch() -> IntArray:
                """Make one batch, release the locks of clients that are complete, and return the rows that are left."""
                rows, rest = np.split(pending, [self.batch_size])
                images[rows] = self._made(labels[rows], index[rows])
                for client in locks.keys() - {*clients[rest].tolist()}:
                    locks.pop(client).close()
                return rest

            for start, stop in _stretches(clients[missing]):
                client = int(clients[missing[start]])
                locks[client] = all_locks.enter_context(ExitStack())
                locks[client].enter_context(locked(self._file.locks / f"k{client}"))
                found = self._look(labels, index, images, missing[start:stop])
                pending = np.concatenate([pending, found])
                if not found.size:
                    locks.pop(client).close()
                while pending.size >= self.batch_size or len(locks) == MOST_LOCKS:
                    pending = make_batch()
            while pending.size:
                pending = make_batch()

    def _made(self, labels: IntArray, index: IntArray) -> Images:
        """Make and keep these images."""
        made = np.ascontiguousarray(self.generator.sample(labels, index))
        if made.shape != (labels.size, *self.shape) or made.dtype != np.uint8:
            raise InputError(
                f"the generator returned {made.dtype} {made.shape}, not uint8 {(labels.size, *self.shape)}"
            )
        self.made += labels.size
        self._file.repaired(lambda: self._file.write(labels, index, made.reshape(labels.size, -1)))
        return made


def _distinct(labels: IntArray, index: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """The distinct addresses, sorted by client, class and number, and the position of each given address in them."""
    addresses = np.stack([client_of(index), labels, index])
    (_, classes, numbers), places = np.unique(addresses, axis=1, return_inverse=True)
    return classes, numbers, places.reshape(-1)


def _stretches(*keys: IntArray) -> Iterator[tuple[int, int]]:
    """Start and stop of the longest stretches in which no key changes.

    >>> list(_stretches(np.array([4, 4, 4, 7]), np.array([0, 0, 1, 1])))
    [(0, 2), (2, 3), (3, 4)]
    """
    starts = np.ones(keys[0].size, dtype=bool)
    starts[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    return pairwise([*np.flatnonzero(starts).tolist(), keys[0].size])


def _spans(labels: IntArray, index: IntArray) -> Iterator[tuple[int, int, int, int]]:
    """For each stretch of indices without a gap its start, class, first and last index."""
    for start, stop in _stretches(labels, index - np.arange(index.size)):
        yield start, int(labels[start]), int(index[start]), int(index[stop - 1])


def _path(root: Path, name: str) -> Path:
    return root / f"{name}{SUFFIX}"


def _journal(path: Path) -> Path:
    """SQLite's own name for the journal of a file; the journal of a file that is gone would spoil the next one."""
    return path.with_name(f"{path.name}-journal")


def _gate(path: Path) -> Path:
    """The lock file of a generator's images: shared while they are made, exclusive while they are pruned."""
    return path.parent / ".locks" / path.stem


def _remedy(path: Path) -> str:
    return f"remove it with `fedeas bank prune {path.stem} --bank {path.parent}`"


@contextmanager
def _shared(path: Path) -> Iterator[None]:
    """Hold a shared lock on this file, which excludes exclusive ones; it ends with the process.

    `fedeas.core.locks` has no shared locks: the library that it uses needs a database for them.
    """
    make_folder(path.parent)
    with writing(path, "used"):
        file = path.open("a")
    with file:
        fcntl.flock(file, fcntl.LOCK_SH)
        try:
            yield
        finally:
            # Closing is not enough if a process that was forked in the meantime has the file open, too.
            fcntl.flock(file, fcntl.LOCK_UN)


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a file of images, which is created if it is missing, and keep the changes at the end."""
    try:
        uri = f"{path.absolute().as_uri()}?mode=rwc"
        with closing(sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level="IMMEDIATE")) as database:
            database.executescript(_TABLES)
            with database:
                yield database
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        unlikely = code == sqlite3.SQLITE_READONLY and os.access(path, os.W_OK)  # the header claims another format
        if unlikely or code in _DAMAGE or code & 0xFF not in _OUTSIDE:
            raise DamagedError(
                f"{path}: damaged ({error}); a run with its generator repairs it, or {_remedy(path)}"
            ) from error
        kind = errno.EACCES if code & 0xFF in _FOREVER else errno.ENOSPC
        raise unwritable(path, OSError(kind, str(error)), "used") from None


def _readable(database: sqlite3.Connection) -> Iterator[tuple[int, int, object]]:
    """The rows of a damaged file: in order up to the damage, then from the end back to it."""
    for order in ("ASC", "DESC"):
        with suppress(sqlite3.DatabaseError):
            yield from database.execute(f"SELECT {_ROW} FROM images NOT INDEXED ORDER BY rowid {order}")
            return
