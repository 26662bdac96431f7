"""The layout of images on disk: files of equal slots, each with its own digest.

``<root>/<first 16 characters of the fingerprint>/`` holds ``generator.json`` and, for every class and client, a file
``c<class>/k<client>.images`` of equal slots: slot j is image j of that client, followed by a digest of generator,
address and pixels. A slot is good if its digest is right. So no index is needed beside the images, a write may stop
anywhere, and a hole, a flipped bit or a file in the wrong place costs only the images that it affects.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from hashlib import blake2b
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedeas.core.arrays import BoolArray, ByteArray, IntArray
from fedeas.core.errors import InputError
from fedeas.core.files import in_place, make_folder, writing, written_whole
from fedeas.core.locks import locked
from fedeas.core.records import matching
from fedeas.generators.base import CLIENT_BITS, Generator, checked_shape, client_of, described, number_of


class Address(NamedTuple):
    """One image of a bank."""

    label: int
    client: int
    number: int  # which of the client's images of this class, from 0

    def __str__(self) -> str:
        return f"class {self.label}, client {self.client}, image {self.number}"


@dataclass(frozen=True, eq=False)
class Addresses:
    """Distinct labels and indices, sorted by client, class and number, so that those of one file are together."""

    labels: IntArray
    index: IntArray

    @property
    def clients(self) -> IntArray:
        """The client of each image."""
        return client_of(self.index)

    def at(self, rows: IntArray | BoolArray | slice) -> Addresses:
        """The addresses in these rows."""
        return Addresses(self.labels[rows], self.index[rows])


def distinct(labels: IntArray, index: IntArray) -> tuple[Addresses, IntArray]:
    """The distinct addresses among these, sorted, and the position of each given address in them."""
    order = np.lexsort((index, labels, client_of(index)))
    first = _starts(labels[order], index[order])
    inverse = np.empty(order.size, dtype=np.int64)
    inverse[order] = np.cumsum(first) - 1
    return Addresses(labels[order[first]], index[order[first]]), inverse


def stretches(*keys: IntArray) -> Iterator[tuple[int, int]]:
    """Start and stop of the longest stretches in which no key changes.

    >>> list(stretches(np.array([4, 4, 4, 7]), np.array([0, 0, 1, 1])))
    [(0, 2), (2, 3), (3, 4)]
    """
    return pairwise([*np.flatnonzero(_starts(*keys)).tolist(), keys[0].size])


def _starts(*keys: IntArray) -> BoolArray:
    """Where a key differs from its predecessor."""
    starts = np.ones(keys[0].size, dtype=bool)
    starts[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    return starts


FORMAT = "fedeas-bank-1"
HEADER = "generator.json"
NAME_LENGTH = 16  # characters of a fingerprint that name its folder
DIGEST_BYTES = 8
BLOCK_BYTES = 2**24  # read at a time
MOST_VALUES = 2**28  # largest number of values of an image; a header with more is damaged

HEX = re.compile("[0-9a-f]+")
_IMAGES = re.compile(r"c(\d+)/k(\d+)\.images")


@dataclass(frozen=True)
class Verification:
    """The result of hashing all images of one generator."""

    name: str
    checked: int
    damaged: tuple[Address, ...]


@dataclass(frozen=True)
class Header:
    """The content of ``generator.json``."""

    fingerprint: str
    num_classes: int
    shape: tuple[int, int, int]
    description: str  # for `fedeas bank ls` alone; empty in old banks

    @classmethod
    def of(cls, generator: Generator) -> Header:
        """The header of a generator; its fingerprint must be usable as a folder name."""
        shape = checked_shape(generator.shape)
        header = cls(generator.fingerprint, int(generator.num_classes), shape, described(generator))
        if not HEX.fullmatch(header.fingerprint) or len(header.fingerprint) < NAME_LENGTH:
            raise InputError(f"fingerprint {header.fingerprint!r} is not made of {NAME_LENGTH} or more digits 0-9, a-f")
        if generator.batch_size < 1:
            raise InputError(f"the generator's batch_size must be at least 1, not {generator.batch_size}")
        return header

    @classmethod
    def read(cls, folder: Path) -> Header:
        """Read the header of a folder."""
        if cls.is_lost(folder):
            again = "a run with this generator writes it again"
            raise InputError(f"{folder / HEADER}: damaged; {again}, or {remedy(folder.parent, folder.name)}")
        try:
            content = json.loads((folder / HEADER).read_text(encoding="utf-8"))
            if content.pop("format", None) != FORMAT:
                raise ValueError("written by another version of fedeas")
            channels, height, width = map(int, content.pop("shape"))
            header = cls(shape=(channels, height, width), **content)
            if not HEX.fullmatch(header.fingerprint) or min(header.shape) < 1 or prod(header.shape) > MOST_VALUES:
                raise ValueError("its fingerprint or shape cannot be right")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"{folder / HEADER}: unusable ({reason}); {remedy(folder.parent, folder.name)}") from None
        return header

    @staticmethod
    def is_lost(folder: Path) -> bool:
        """Whether there is no header, or one that is no JSON. Images have their own digests, so it can be replaced."""
        try:
            return not isinstance(json.loads((folder / HEADER).read_text(encoding="utf-8")), dict)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return True
        except OSError:
            return False

    def write(self, folder: Path) -> None:
        """Write it into a folder, whole or not at all."""
        with written_whole(folder / HEADER) as part:
            part.write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n", encoding="utf-8")

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.fingerprint[:NAME_LENGTH]

    @property
    def images(self) -> str:
        """What the images are, without the description, which old banks of some generators lack."""
        return f"{self.num_classes} classes of {' x '.join(map(str, self.shape))}"

    def refuse_other(self, other: Header, root: Path) -> None:
        """Raise an error unless both describe the same images."""
        mine, theirs = (f"{each.fingerprint} ({each.images})" for each in (self, other))
        if mine != theirs:
            raise InputError(
                f"{root / self.name}: holds images of generator {theirs}, not {mine}; {remedy(root, self.name)}"
            )


@dataclass(frozen=True)
class Disk:
    """The slots of one generator. It holds no open files, so that it can be sent to other processes."""

    root: Path
    header: Header

    @property
    def folder(self) -> Path:
        """The folder of the slots."""
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
        """Number of slots that are read at a time."""
        return max(1, BLOCK_BYTES // self.slot)

    def ensure_header(self) -> None:
        """Check the header, or write it if there is none; a complete bank may be read-only."""
        if Header.is_lost(self.folder):
            with self.filling():
                return
        self.header.refuse_other(Header.read(self.folder), self.root)
        with suppress(OSError):
            os.utime(self.folder / HEADER, follow_symlinks=False)

    @contextmanager
    def filling(self) -> Iterator[None]:
        """Keep the bank from being pruned; folder and header exist from here on, even if they were pruned before."""
        with shared(gate(self.root, self.header.name)):
            make_folder(self.folder / "locks", self.root)
            if Header.is_lost(self.folder):
                self.header.write(self.folder)
            else:
                self.header.refuse_other(Header.read(self.folder), self.root)
            yield

    def client_locked(self, client: int) -> AbstractContextManager[None]:
        """Wait until no other process makes images of this client."""
        return locked(self.folder / "locks" / f"k{client}")

    def read(self, at: Addresses, images: ByteArray, rows: IntArray) -> BoolArray:
        """Read the good images into these rows; return which rows were read."""
        good = np.zeros(rows.size, dtype=bool)
        for run, slots in self._stored(at):
            good[run] = self._good(at.at(run), slots)
            images[rows[run]] = slots[:, : self.pixels]  # bad ones will be overwritten
        return good

    def filled(self, at: Addresses) -> BoolArray:
        """Which of these slots are not empty; they may be damaged."""
        filled = np.zeros(at.labels.size, dtype=bool)
        for run, slots in self._stored(at):
            filled[run] = self._filled(slots)
        return filled

    def _stored(self, at: Addresses) -> Iterator[tuple[slice, ByteArray]]:
        """Rows whose slots follow each other in a file, and these slots; addresses without a file are left out."""
        for start, stop in stretches(at.labels, at.clients):
            path = self._path(at, start)
            with writing(path, "used"), suppress(FileNotFoundError), path.open("rb", buffering=0) as file:
                for first, last in self._runs(at, start, stop):
                    yield slice(first, last), self._read_slots(file.fileno(), _number(at, first), last - first)

    def write(self, at: Addresses, pixels: ByteArray) -> None:
        """Fill the slots of these addresses; the caller holds their clients' locks.

        Nothing is flushed to disk: an image lost in a power failure has no valid digest and is made again.
        """
        self._store(at, np.hstack([pixels, self._digests(at, pixels)]))

    def _store(self, at: Addresses, slots: ByteArray) -> None:
        for start, stop in stretches(at.labels, at.clients):
            path = self._path(at, start)
            with writing(path, "used"):
                make_folder(path.parent, self.root)
                with open(path, "r+b", buffering=0, opener=in_place) as file:
                    for first, last in self._runs(at, start, stop):
                        rest, offset = slots[first:last].reshape(-1).data, _number(at, first) * self.slot
                        while rest:
                            written = os.pwrite(file.fileno(), rest, offset)
                            rest, offset = rest[written:], offset + written

    def count(self) -> int:
        """Number of slots that are not empty."""
        paths = (path for *_, path in image_files(self.folder))
        return sum(int(self._filled(slots).sum()) for path in paths for _, slots in self._scan(path))

    def verify(self, clear: bool) -> Verification:
        """Hash every slot that is not empty or that the end of its file cuts; `clear` empties the damaged ones.

        A file that was cut between two slots cannot be told from one that never held more.
        """
        checked, damaged = 0, list[Address]()
        for label, client, path in image_files(self.folder):
            with writing(path, "used"):
                whole, rest = divmod(path.stat().st_size, self.slot)
            cut = whole if rest else None
            for start, slots in self._scan(path):
                filled = np.flatnonzero(self._filled(slots) | (start + np.arange(len(slots)) == cut))
                at = Addresses(np.full(filled.size, label), start + filled + (client << CLIENT_BITS))
                suspects = at.at(~self._good(at, slots[filled]))
                checked += filled.size
                if not (count := suspects.labels.size):
                    continue
                with self.filling(), self.client_locked(client):  # a slot may just have been half written
                    good = self.read(suspects, np.empty((count, self.pixels), dtype=np.uint8), np.arange(count))
                    bad = suspects.at(~good)
                    if clear:
                        self._store(bad, np.zeros((bad.labels.size, self.slot), dtype=np.uint8))
                damaged += [Address(label, client, number) for number in number_of(bad.index).tolist()]
        return Verification(self.header.name, checked, tuple(damaged))

    def _path(self, at: Addresses, row: int) -> Path:
        return self.folder / f"c{at.labels[row]}" / f"k{at.clients[row]}.images"

    def _runs(self, at: Addresses, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Runs of rows whose slots follow each other in one file, at most a block each."""
        place = np.arange(stop - start)
        for first, last in stretches(at.index[start:stop] - place, place // self.block):
            yield start + first, start + last

    def _read_slots(self, descriptor: int, number: int, count: int) -> ByteArray:
        """Read slots; parts beyond the end of the file or with a disk error read as zeros."""
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
        """The slots block by block, each with the number of its first slot; holes before images are left out."""
        with writing(path, "used"), path.open("rb", buffering=0) as file:
            size, place, done = path.stat().st_size, 0, 0
            while place < size:
                try:
                    data = os.lseek(file.fileno(), place, os.SEEK_DATA)
                except OSError as error:
                    if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                        return
                    raise
                place = os.lseek(file.fileno(), data, os.SEEK_HOLE)
                first, done = max(done, data // self.slot), -(-place // self.slot)
                for start in range(first, done, self.block):
                    yield start, self._read_slots(file.fileno(), start, min(self.block, done - start))

    def _filled(self, slots: ByteArray) -> BoolArray:
        """Which slots have a digest; a slot without one was not written completely."""
        return np.asarray(slots[:, self.pixels :].any(axis=1))

    def _good(self, at: Addresses, slots: ByteArray) -> BoolArray:
        good = self._filled(slots)
        filled = slots if good.all() else slots[good]  # usually all are good, and no copy is needed
        digests = self._digests(at.at(good), filled[:, : self.pixels])
        good[good] = (digests == filled[:, self.pixels :]).all(axis=1)
        return good

    def _digests(self, at: Addresses, pixels: ByteArray) -> ByteArray:
        """Digests of generator, address and pixels, so that an image in the wrong place is bad; never all zeros."""
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


def _number(at: Addresses, row: int) -> int:
    return number_of(int(at.index[row]))


def image_files(folder: Path) -> list[tuple[int, int, Path]]:
    """Class, client and path of every file with images; files with other names are ignored."""
    paths = [(path, _IMAGES.fullmatch(f"{path.parent.name}/{path.name}")) for path in matching(folder, "c*/k*.images")]
    return sorted((int(match[1]), int(match[2]), path) for path, match in paths if match)


def gate(root: Path, name: str) -> Path:
    """The lock file of a bank: shared while filling it, exclusive while pruning it, and outside the folder to prune."""
    return root / ".locks" / name


def remedy(root: Path, name: str) -> str:
    """How to remove a bank that cannot be used."""
    return f"remove it with `fedeas bank prune {name} --bank {root}`"


@contextmanager
def shared(path: Path) -> Iterator[None]:
    """Hold a shared lock on this file, which excludes exclusive ones; it ends with the process.

    `fedeas.core.locks` has no shared locks: the library that it uses needs a database for them.
    """
    make_folder(path.parent, path.parent.parent)
    with writing(path, "used"):
        file = os.fdopen(in_place(str(path), os.O_RDWR))
        fcntl.flock(file, fcntl.LOCK_SH)
    with file:
        try:
            yield
        finally:
            # Closing is not enough if a process that was forked in the meantime has the file open, too.
            fcntl.flock(file, fcntl.LOCK_UN)
