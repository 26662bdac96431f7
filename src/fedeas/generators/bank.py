"""Images kept on disk by address, so that none is generated twice, whoever asks for it and when.

``<root>/<first 16 characters of the fingerprint>/`` holds ``generator.json`` and, for every class and client, a file
``c<class>/k<client>.images`` of equal slots: slot j is image j of that client, followed by a digest of generator,
address and pixels. A slot is good if its digest is. So nothing has to be recorded beside the images, a write may break
off anywhere, and a hole, a flipped bit or a file in the wrong place only costs the images that it concerns.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from hashlib import blake2b
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas.arrays import IntArray
from fedeas.errors import InputError, RunError
from fedeas.files import written_whole
from fedeas.generators.base import CLIENT_BITS, Generator, checked_address

PathLike = str | os.PathLike[str]
ByteArray = NDArray[np.uint8]
Mask = NDArray[np.bool_]

FORMAT = "fedeas-bank-1"
HEADER = "generator.json"
NUMBER_MASK = (1 << CLIENT_BITS) - 1  # the part of an index that counts a client's images
NAME_LENGTH = 16  # characters of a fingerprint that name its folder
DIGEST_BYTES = 8
BLOCK_BYTES = 2**24  # read at a time
MOST_LOCKS = 128  # open at a time; a process may have 256 files or more

# The person has to change something before another attempt; other failures, such as a full disk, may pass.
UNUSABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST}


class Address(NamedTuple):
    """One image of a bank."""

    label: int
    client: int
    number: int
    """Which of the client's images of this class, from 0."""

    def __str__(self) -> str:
        return f"class {self.label}, client {self.client}, image {self.number}"


@dataclass(frozen=True)
class Kept:
    """What a bank keeps of one generator, without a look at the pixels."""

    name: str
    """First 16 characters of the fingerprint."""
    description: str
    images: int | None
    """None if it cannot be told, because of the problem."""
    clients: int
    bytes: int
    """Taken up on disk; holes take up nothing."""
    used: float
    """When a generator was last given this bank, in seconds since 1970."""
    problem: str = ""
    """Why these images cannot be used."""


@dataclass(frozen=True)
class Verification:
    """What came of hashing all images of one generator."""

    name: str
    checked: int
    damaged: tuple[Address, ...]


class Bank:
    """A folder with the images of any number of generators."""

    def __init__(self, root: PathLike) -> None:
        self.root = Path(root)

    def of(self, generator: Generator) -> BankedGenerator:
        """The same generator, which looks here before it makes an image, and keeps here what it makes."""
        disk = _Disk(self.root, _Header.of(generator))
        disk.ensure_header()
        return BankedGenerator(generator, disk)

    def names(self) -> list[str]:
        """What is kept here, each by the first 16 characters of its generator's fingerprint."""
        return sorted(path.name for path in self.root.glob("*") if _NAME.fullmatch(path.name) and path.is_dir())

    def name(self, fingerprint: str) -> str:
        """The one name that a whole fingerprint, or its beginning, stands for."""
        wanted = fingerprint.lower()
        if not _HEX.fullmatch(wanted):
            raise InputError(f"{fingerprint!r} is no fingerprint; give its first digits, 0-9 and a-f")
        found = [name for name in self.names() if name.startswith(wanted[:NAME_LENGTH])]
        if len(found) > 1:
            raise InputError(f"{fingerprint} may be {' or '.join(found)}; give more digits")
        if not found or not self._continues(found[0], wanted):
            raise InputError(f"{self.root}: nothing of a generator {fingerprint}; `fedeas bank ls` lists what there is")
        return found[0]

    def kept(self, fingerprint: str) -> Kept:
        """What there is of this generator; counts slots that are not empty, good or not."""
        name = self.name(fingerprint)
        files = _image_files(self.root / name)
        clients = len({client for _, client, _ in files})
        with _reported(self.root / name):
            size = sum(512 * path.stat().st_blocks for *_, path in files)
        try:
            disk = self._disk(name)
        except InputError as error:
            return Kept(name, "", None, clients, size, _last_used(self.root / name), str(error))
        return Kept(name, disk.header.description, disk.count(), clients, size, _last_used(disk.folder))

    def verify(self, fingerprint: str) -> Verification:
        """Hash all images of this generator."""
        return self._disk(self.name(fingerprint)).verify(clear=False)

    def clear_damaged(self, fingerprint: str) -> Verification:
        """Hash all images of this generator and empty the slots of the damaged ones."""
        return self._disk(self.name(fingerprint)).verify(clear=True)

    def prune(self, fingerprint: str) -> Kept:
        """Remove all images of this generator, and tell what there was; not while a process adds to them."""
        kept = self.kept(fingerprint)
        with _flocked(_gate(self.root, kept.name), fcntl.LOCK_EX | fcntl.LOCK_NB), _reported(self.root / kept.name):
            shutil.rmtree(self.root / kept.name)
        return kept

    def _disk(self, name: str) -> _Disk:
        header = _Header.read(self.root / name)
        if header.name != name:
            raise InputError(f"{self.root / name}: holds images of generator {header.name}; {_remedy(self.root, name)}")
        return _Disk(self.root, header)

    def _continues(self, name: str, fingerprint: str) -> bool:
        """Digits beyond the name have to be right as well, where they are known."""
        if len(fingerprint) <= NAME_LENGTH:
            return True
        with suppress(InputError):
            return _Header.read(self.root / name).fingerprint.startswith(fingerprint)
        return True


class BankedGenerator:
    """A generator whose images come from a bank as far as they are there; `Bank.of` makes one.

    `found` and `made` count the images that it read and that it had to generate; an address that is given twice in one
    request counts once.
    """

    def __init__(self, generator: Generator, disk: _Disk) -> None:
        self.generator = generator
        self.found = 0
        self.made = 0
        self._disk = disk

    @property
    def num_classes(self) -> int:
        """C."""
        return self.generator.num_classes

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        return self.generator.shape

    @property
    def batch_size(self) -> int:
        """How many images are made at once and then written."""
        return self.generator.batch_size

    @property
    def fingerprint(self) -> str:
        """That of the generator: the images are the same."""
        return self.generator.fingerprint

    @property
    def description(self) -> str:
        """That of the generator."""
        return self._disk.header.description

    @property
    def tally(self) -> dict[str, int]:
        """Images read and made; and, where a filter stands before the bank, drawn for it and kept by it."""
        filtered = {name: getattr(self.generator, name, None) for name in ("generated", "kept")}
        counted = {name: number for name, number in filtered.items() if isinstance(number, int)}
        return {"found": self.found, "made": self.made, **counted}

    def sample(self, labels: ArrayLike, index: ArrayLike) -> ByteArray:
        """The images of these addresses."""
        at, inverse = _distinct(*checked_address(labels, index, self.num_classes))
        images = np.empty((len(at.labels), *self.shape), dtype=np.uint8)
        missing = self._look(at, images, np.arange(len(images)))
        if missing.size:
            self._complete(at, images, missing)
        in_order = np.array_equal(inverse, np.arange(inverse.size))
        return images if in_order else images[inverse]

    def _look(self, at: _Addresses, images: ByteArray, rows: IntArray) -> IntArray:
        """Read what there is of these rows; give back those that are missing."""
        good = self._disk.read(at.at(rows), images.reshape(-1, self._disk.pixels), rows)
        self.found += int(good.sum())
        return rows[~good]

    def _complete(self, at: _Addresses, images: ByteArray, missing: IntArray) -> None:
        """Make what is missing under the locks of the clients concerned, in full batches across clients.

        Clients are locked in ascending order, each until its last image is written; so no two processes wait for each
        other, and who had to wait for a lock looks again and finds the images made.
        """
        with self._disk.filling(), _ClientLocks(self._disk) as locks:
            pending = missing[:0]
            for start, stop in _stretches(at.clients[missing]):
                locks.take(int(at.clients[missing[start]]))
                pending = np.concatenate([pending, self._look(at, images, missing[start:stop])])
                while pending.size >= self.batch_size:
                    pending = self._make_batch(at, images, pending)
                locks.keep(at.clients[pending])
                if locks.full:
                    pending = self._make_batch(at, images, pending)
                    locks.keep([])
            if pending.size:
                self._make_batch(at, images, pending)

    def _make_batch(self, at: _Addresses, images: ByteArray, pending: IntArray) -> IntArray:
        """Make and write one batch; give back what is left."""
        rows = pending[: self.batch_size]
        batch = at.at(rows)
        made = np.ascontiguousarray(self.generator.sample(batch.labels, batch.index))
        if made.shape != (rows.size, *self.shape) or made.dtype != np.uint8:
            raise InputError(f"the generator returned {made.dtype} {made.shape}, not uint8 {(rows.size, *self.shape)}")
        self.made += rows.size
        self._disk.write(batch, made.reshape(rows.size, -1))
        images[rows] = made
        return pending[rows.size :]


_HEX = re.compile("[0-9a-f]+")
_NAME = re.compile(f"[0-9a-f]{{{NAME_LENGTH}}}")
_IMAGES = re.compile(r"c(\d+)/k(\d+)\.images")


@dataclass(frozen=True, eq=False)
class _Addresses:
    """Labels and indices, sorted by client, class and number, none twice: files and runs of slots lie together."""

    labels: IntArray
    index: IntArray

    @property
    def clients(self) -> IntArray:
        return np.asarray(self.index >> CLIENT_BITS)

    def at(self, rows: IntArray | Mask | slice) -> _Addresses:
        return _Addresses(self.labels[rows], self.index[rows])


@dataclass(frozen=True)
class _Header:
    """What ``generator.json`` tells."""

    fingerprint: str
    num_classes: int
    shape: tuple[int, int, int]
    description: str

    @classmethod
    def of(cls, generator: Generator) -> _Header:
        channels, height, width = map(int, generator.shape)
        text = str(getattr(generator, "description", ""))
        header = cls(generator.fingerprint, int(generator.num_classes), (channels, height, width), text)
        # The fingerprint becomes the name of a folder.
        if not _HEX.fullmatch(header.fingerprint) or len(header.fingerprint) < NAME_LENGTH:
            raise InputError(f"fingerprint {header.fingerprint!r} is not made of {NAME_LENGTH} or more digits 0-9, a-f")
        if generator.batch_size < 1:
            raise InputError(f"the generator's batch_size must be at least 1, not {generator.batch_size}")
        return header

    @classmethod
    def read(cls, folder: Path) -> _Header:
        try:
            content = json.loads((folder / HEADER).read_text(encoding="utf-8"))
            if content.pop("format", None) != FORMAT:
                raise ValueError("written by another version of fedeas")
            channels, height, width = map(int, content.pop("shape"))
            header = cls(shape=(channels, height, width), **content)
            if not _HEX.fullmatch(header.fingerprint) or min(header.shape) < 1:
                raise ValueError("its fingerprint or shape cannot be right")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"{folder / HEADER}: unusable ({reason}); {_remedy(folder.parent, folder.name)}") from None
        return header

    def write(self, folder: Path) -> None:
        with written_whole(folder / HEADER) as part:
            part.write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n", encoding="utf-8")

    @property
    def name(self) -> str:
        return self.fingerprint[:NAME_LENGTH]

    def refuse_other(self, other: _Header, root: Path) -> None:
        """An error unless both stand for the same images."""
        if (self.fingerprint, self.num_classes, self.shape) == (other.fingerprint, other.num_classes, other.shape):
            return
        shown = NAME_LENGTH if self.name != other.name else None  # the name alone would not tell them apart
        mine, theirs = (
            f"{each.fingerprint[:shown]} ({each.num_classes} classes, images {'x'.join(map(str, each.shape))})"
            for each in (self, other)
        )
        raise InputError(
            f"{root / self.name}: holds images of generator {theirs}, not {mine}; {_remedy(root, self.name)}"
        )


@dataclass(frozen=True)
class _Disk:
    """The slots of one generator. It holds nothing open, so that it can be sent to other processes."""

    root: Path
    header: _Header

    @property
    def folder(self) -> Path:
        return self.root / self.header.name

    @property
    def pixels(self) -> int:
        """Bytes of an image."""
        return prod(self.header.shape)

    @property
    def slot(self) -> int:
        """Bytes of an image and its digest."""
        return self.pixels + DIGEST_BYTES

    @property
    def block(self) -> int:
        """Slots that are read at a time."""
        return max(1, BLOCK_BYTES // self.slot)

    def ensure_header(self) -> None:
        """Check it, or write it; a complete bank may be read-only."""
        if not (self.folder / HEADER).exists():
            with self.filling():
                return
        self.header.refuse_other(_Header.read(self.folder), self.root)
        with suppress(OSError):
            os.utime(self.folder / HEADER)

    @contextmanager
    def filling(self) -> Iterator[None]:
        """Keep the bank from being pruned; folder and header exist from here on, even if they were pruned before."""
        with _flocked(_gate(self.root, self.header.name), fcntl.LOCK_SH):
            with _reported(self.folder):
                (self.folder / "locks").mkdir(parents=True, exist_ok=True)
            if (self.folder / HEADER).exists():
                self.header.refuse_other(_Header.read(self.folder), self.root)
            else:
                self.header.write(self.folder)
            yield

    @contextmanager
    def client_locked(self, client: int) -> Iterator[None]:
        """Wait until no other process makes images of this client."""
        with _flocked(self.folder / "locks" / f"k{client}", fcntl.LOCK_EX):
            yield

    def read(self, at: _Addresses, images: ByteArray, rows: IntArray) -> Mask:
        """Put the images that are there and good into these rows; tell which they are."""
        good = np.zeros(rows.size, dtype=bool)
        for start, stop in _stretches(at.labels, at.clients):
            path = self._path(at, start)
            with _reported(path), suppress(FileNotFoundError), path.open("rb", buffering=0) as file:
                for first, last in self._runs(at, start, stop):
                    slots = self._read_slots(file.fileno(), _number(at, first), last - first)
                    good[first:last] = self._good(at.at(slice(first, last)), slots)
                    images[rows[first:last]] = slots[:, : self.pixels]  # bad ones will be overwritten
        return good

    def write(self, at: _Addresses, pixels: ByteArray) -> None:
        """Fill the slots of these addresses; the caller holds their clients' locks."""
        slots = np.hstack([pixels, self._digests(at, pixels)])
        for start, stop in _stretches(at.labels, at.clients):
            path = self._path(at, start)
            with _reported(path), _opened_for_writing(path) as descriptor:
                for first, last in self._runs(at, start, stop):
                    _write_all(descriptor, slots[first:last], _number(at, first) * self.slot)

    def count(self) -> int:
        """Slots that are not empty."""
        return sum(int(self._filled(slots).sum()) for *_, path in self._files() for _, slots in self._scan(path))

    def verify(self, clear: bool) -> Verification:
        """Hash every slot that is not empty; `clear` empties the damaged ones."""
        checked, damaged = 0, list[Address]()
        for label, client, path in self._files():
            for start, slots in self._scan(path):
                filled = np.flatnonzero(self._filled(slots))
                at = _client_addresses(label, client, start + filled)
                suspects = at.at(~self._good(at, slots[filled]))
                checked += filled.size
                damaged += self._confirmed(suspects, client, clear) if suspects.labels.size else []
        return Verification(self.header.name, checked, tuple(damaged))

    def _confirmed(self, suspects: _Addresses, client: int, clear: bool) -> list[Address]:
        """Look again under the client's lock: the slot may have been in the middle of being written."""
        with self.filling(), self.client_locked(client):
            count = suspects.labels.size
            good = self.read(suspects, np.empty((count, self.pixels), dtype=np.uint8), np.arange(count))
            damaged = suspects.at(~good)
            if clear:
                self._clear(damaged)
        numbers = damaged.index & NUMBER_MASK
        return [Address(int(damaged.labels[i]), client, int(number)) for i, number in enumerate(numbers)]

    def _clear(self, at: _Addresses) -> None:
        for row in range(at.labels.size):
            path = self._path(at, row)
            with _reported(path), _opened_for_writing(path) as descriptor:
                _write_all(descriptor, np.zeros(self.slot, dtype=np.uint8), _number(at, row) * self.slot)

    def _path(self, at: _Addresses, row: int) -> Path:
        return self.folder / f"c{at.labels[row]}" / f"k{at.clients[row]}.images"

    def _files(self) -> list[tuple[int, int, Path]]:
        return _image_files(self.folder)

    def _runs(self, at: _Addresses, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Rows of slots that follow each other in one file, no more than a block at a time."""
        place = np.arange(stop - start)
        for first, last in _stretches(at.index[start:stop] - place, place // self.block):
            yield start + first, start + last

    def _read_slots(self, descriptor: int, number: int, count: int) -> ByteArray:
        """What the file does not hold, because it ends or the disk is broken there, reads as zeros."""
        try:
            content = os.pread(descriptor, count * self.slot, number * self.slot)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            if count > 1:  # the others may be read on their own
                return np.concatenate([self._read_slots(descriptor, number + i, 1) for i in range(count)])
            content = b""
        return np.frombuffer(content.ljust(count * self.slot, b"\0"), dtype=np.uint8).reshape(count, self.slot)

    def _scan(self, path: Path) -> Iterator[tuple[int, ByteArray]]:
        """Number of the first, and slots, block by block without the holes."""
        with _reported(path), path.open("rb", buffering=0) as file:
            for first, last in _data(file.fileno(), self.slot):
                for start in range(first, last, self.block):
                    yield start, self._read_slots(file.fileno(), start, min(self.block, last - start))

    def _filled(self, slots: ByteArray) -> Mask:
        """Slots with a digest; one without was never written to its end."""
        return np.asarray(slots[:, self.pixels :].any(axis=1))

    def _good(self, at: _Addresses, slots: ByteArray) -> Mask:
        good = self._filled(slots)
        filled = slots if good.all() else slots[good]  # most often all are, and need no copy
        digests = self._digests(at.at(good), filled[:, : self.pixels])
        good[good] = (digests == filled[:, self.pixels :]).all(axis=1)
        return good

    def _digests(self, at: _Addresses, pixels: ByteArray) -> ByteArray:
        """Of generator, address and pixels, so that a good image in the wrong place is not good; never all zeros."""
        key = blake2b(self.header.fingerprint.encode(), digest_size=32).digest()
        fresh = blake2b(key=key, digest_size=DIGEST_BYTES)
        addresses = np.column_stack([at.labels, at.index]).astype("<i8")
        found = bytearray()
        for address, image in zip(addresses, pixels, strict=True):
            one = fresh.copy()
            one.update(address)
            one.update(image)
            found += one.digest()
        digests = np.frombuffer(found, dtype=np.uint8).reshape(-1, DIGEST_BYTES)
        digests[~digests.any(axis=1)] = 255  # zeros are what a hole reads as
        return digests


class _ClientLocks:
    """The clients that this process is making images for."""

    def __init__(self, disk: _Disk) -> None:
        self._disk = disk
        self._held: dict[int, ExitStack] = {}

    def __enter__(self) -> _ClientLocks:
        return self

    def __exit__(self, *reason: object) -> None:
        self.keep([])

    @property
    def full(self) -> bool:
        return len(self._held) >= MOST_LOCKS

    def take(self, client: int) -> None:
        stack = ExitStack()
        stack.enter_context(self._disk.client_locked(client))
        self._held[client] = stack

    def keep(self, clients: Iterable[int]) -> None:
        """Release all others."""
        for client in self._held.keys() - set(map(int, clients)):
            self._held.pop(client).close()


def _distinct(labels: IntArray, index: IntArray) -> tuple[_Addresses, IntArray]:
    """The different addresses among these, sorted, and where in them each of these is."""
    order = np.lexsort((index, labels, index >> CLIENT_BITS))
    first = _starts(labels[order], index[order])
    inverse = np.empty(order.size, dtype=np.int64)
    inverse[order] = np.cumsum(first) - 1
    return _Addresses(labels[order[first]], index[order[first]]), inverse


def _stretches(*keys: IntArray) -> Iterator[tuple[int, int]]:
    """Start and stop of the longest stretches in which no key changes.

    >>> list(_stretches(np.array([4, 4, 4, 7]), np.array([0, 0, 1, 1])))
    [(0, 2), (2, 3), (3, 4)]
    """
    return pairwise([*np.flatnonzero(_starts(*keys)).tolist(), keys[0].size])


def _starts(*keys: IntArray) -> Mask:
    """Where a key is not what it was one place before."""
    starts = np.ones(keys[0].size, dtype=bool)
    starts[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    return starts


def _number(at: _Addresses, row: int) -> int:
    return int(at.index[row]) & NUMBER_MASK


def _client_addresses(label: int, client: int, numbers: IntArray) -> _Addresses:
    return _Addresses(np.full(numbers.size, label), numbers + (client << CLIENT_BITS))


def _image_files(folder: Path) -> list[tuple[int, int, Path]]:
    """Class, client and path of every file with images; what bears another name is none of ours."""
    paths = [(path, _IMAGES.fullmatch(f"{path.parent.name}/{path.name}")) for path in folder.glob("c*/k*.images")]
    return sorted((int(match[1]), int(match[2]), path) for path, match in paths if match)


def _last_used(folder: Path) -> float:
    """Each use touches the header."""
    with _reported(folder):
        return (folder / HEADER if (folder / HEADER).exists() else folder).stat().st_mtime


def _data(descriptor: int, slot: int) -> Iterator[tuple[int, int]]:
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


def _gate(root: Path, name: str) -> Path:
    """Who fills a bank shares this lock, who prunes it holds it alone; it outlasts the folder and so lies outside."""
    return root / ".locks" / name


@contextmanager
def _flocked(path: Path, kind: int) -> Iterator[None]:
    """Hold a lock that dies with the process."""
    with _reported(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    with file:
        with _reported(path):
            fcntl.flock(file, kind)
        try:
            yield
        finally:
            # Closing is not enough where a process forked meanwhile has the file open, too.
            fcntl.flock(file, fcntl.LOCK_UN)


@contextmanager
def _opened_for_writing(path: Path) -> Iterator[int]:
    path.parent.mkdir(exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, content: ByteArray, offset: int) -> None:
    """Not flushed to the disk: what a power failure swallows has no good digest and is made anew."""
    rest = np.ascontiguousarray(content).reshape(-1).data
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Errors of the operating system as one line about this path."""
    try:
        yield
    except BlockingIOError:
        raise InputError(f"{path}: another process is filling this bank; wait for it") from None
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in UNUSABLE:
            raise InputError(f"{path}: cannot be used ({reason}); give a folder that can be written") from None
        raise RunError(f"{path}: cannot be used ({reason}); images kept so far are not made again") from None


def _remedy(root: Path, name: str) -> str:
    return f"remove it with `fedeas bank prune {name} --bank {root}`"
