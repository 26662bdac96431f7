"""Images kept on disk by address, so that none is generated twice."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from fedeas.core.arrays import IntArray
from fedeas.core.errors import InputError
from fedeas.core.files import PathLike, writing
from fedeas.core.locks import locked
from fedeas.core.records import checked_stat, matching
from fedeas.generators.base import Generator, GeneratorWrapper, Images, checked_address
from fedeas.generators.slots import (
    HEADER,
    HEX,
    NAME_LENGTH,
    Addresses,
    Disk,
    Header,
    Verification,
    distinct,
    gate,
    image_files,
    remedy,
    stretches,
)

MOST_LOCKS = 128  # open at a time; every system allows a process at least 256 open files

_NAME = re.compile(f"[0-9a-f]{{{NAME_LENGTH}}}")


@dataclass(frozen=True)
class KeptImages:
    """What a bank holds of one generator; the pixels are not checked."""

    name: str  # first 16 characters of the fingerprint
    description: str
    images: int | None  # None if a problem makes it impossible to tell
    clients: int
    bytes: int  # space on disk; holes take none
    used: float  # when the bank was last used with this generator, in seconds since 1970
    problem: str = ""  # why these images cannot be used


class Bank:
    """A folder with the images of any number of generators."""

    def __init__(self, root: PathLike) -> None:
        self.root = Path(root)

    def of(self, generator: Generator) -> BankedGenerator:
        """The same generator, which looks here before it makes an image and stores here what it makes."""
        disk = Disk(self.root, Header.of(generator))
        disk.ensure_header()
        return BankedGenerator(generator, disk)

    def names(self) -> list[str]:
        """The generators in this bank, by the first 16 characters of their fingerprints."""
        return sorted(path.name for path in matching(self.root, "*") if _NAME.fullmatch(path.name) and path.is_dir())

    def name(self, fingerprint: str) -> str:
        """The name of the one generator whose fingerprint begins with these characters."""
        wanted = fingerprint.lower()
        if not HEX.fullmatch(wanted):
            raise InputError(f"{fingerprint!r} is no fingerprint; give its first digits, 0-9 and a-f")
        found = [name for name in self.names() if name.startswith(wanted[:NAME_LENGTH])]
        if len(found) > 1:
            raise InputError(f"{fingerprint} may be {' or '.join(found)}; give more digits")
        if len(wanted) > NAME_LENGTH:
            with suppress(InputError):  # of a damaged header only the name is known
                found = [name for name in found if Header.read(self.root / name).fingerprint.startswith(wanted)]
        if not found:
            raise InputError(f"{self.root}: nothing of a generator {fingerprint}; `fedeas bank ls` lists what there is")
        return found[0]

    def kept(self, fingerprint: str) -> KeptImages:
        """What the bank holds of this generator; counts all slots that are not empty, even damaged ones."""
        name = self.name(fingerprint)
        files, folder = image_files(self.root / name), self.root / name
        clients = len({client for _, client, _ in files})
        with writing(folder, "used"):
            size = sum(512 * checked_stat(path).st_blocks for *_, path in files)
            header = folder / HEADER  # each use touches it
            used = (header if header.exists() else folder).stat().st_mtime
        try:
            disk = self._disk(name)
        except InputError as error:
            return KeptImages(name, "", None, clients, size, used, str(error))
        return KeptImages(name, disk.header.description or disk.header.images, disk.count(), clients, size, used)

    def verify(self, fingerprint: str, clear: bool = False) -> Verification:
        """Hash all images of this generator; `clear` empties the slots of the damaged ones."""
        return self._disk(self.name(fingerprint)).verify(clear)

    def prune(self, fingerprint: str) -> KeptImages:
        """Remove all images of this generator and return what there was; refused while a process adds images."""
        kept = self.kept(fingerprint)
        path = gate(self.root, kept.name)
        busy = f"{path}: another process is filling this bank; wait for it"
        with locked(path, busy), writing(self.root / kept.name, "used"):
            shutil.rmtree(self.root / kept.name)
        return kept

    def _disk(self, name: str) -> Disk:
        header = Header.read(self.root / name)
        if header.name != name:
            raise InputError(f"{self.root / name}: holds images of generator {header.name}; {remedy(self.root, name)}")
        return Disk(self.root, header)


class BankedGenerator(GeneratorWrapper[Generator]):
    """A generator that takes images from a bank and makes those that are missing; `Bank.of` makes one.

    `found` and `made` count the images that were read and that were generated; an address that occurs twice in one
    request counts once.
    """

    def __init__(self, generator: Generator, disk: Disk) -> None:
        super().__init__(generator)
        self.found = 0
        self.made = 0
        self._disk = disk

    @property
    def description(self) -> str:
        """The generator's description."""
        return self._disk.header.description

    def holdings(self, labels: ArrayLike, index: ArrayLike) -> tuple[int, int]:
        """How many of the distinct images of these addresses are kept already, and how many are not."""
        at, _ = distinct(*checked_address(labels, index, self.num_classes))
        kept = int(self._disk.filled(at).sum())
        return kept, at.labels.size - kept

    def sample(self, labels: ArrayLike, index: ArrayLike) -> Images:
        """The images of these addresses."""
        at, inverse = distinct(*checked_address(labels, index, self.num_classes))
        images = np.empty((len(at.labels), *self.shape), dtype=np.uint8)
        if (missing := self._look(at, images, np.arange(len(images)))).size:
            self._complete(at, images, missing)
        return images if np.array_equal(inverse, np.arange(inverse.size)) else images[inverse]

    def _look(self, at: Addresses, images: Images, rows: IntArray) -> IntArray:
        """Read the images of these rows; return the rows that are missing."""
        good = self._disk.read(at.at(rows), images.reshape(-1, self._disk.pixels), rows)
        self.found += int(good.sum())
        return rows[~good]

    def _complete(self, at: Addresses, images: Images, missing: IntArray) -> None:
        """Make the missing images under the locks of their clients, in full batches across clients.

        Clients are locked in ascending order, each until its last image is written, so that no two processes wait for
        each other. A process that had to wait for a lock reads again and finds the images.
        """
        with self._disk.filling(), ClientLocks(self._disk) as locks:
            pending = missing[:0]
            for start, stop in stretches(at.clients[missing]):
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

    def _make_batch(self, at: Addresses, images: Images, pending: IntArray) -> IntArray:
        """Make and write one batch; return the rows that are left."""
        rows = pending[: self.batch_size]
        batch = at.at(rows)
        made = np.ascontiguousarray(self.generator.sample(batch.labels, batch.index))
        if made.shape != (rows.size, *self.shape) or made.dtype != np.uint8:
            raise InputError(f"the generator returned {made.dtype} {made.shape}, not uint8 {(rows.size, *self.shape)}")
        self.made += rows.size
        self._disk.write(batch, made.reshape(rows.size, -1))
        images[rows] = made
        return pending[rows.size :]


class ClientLocks:
    """The locks of the clients that this process is making images for."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._held: dict[int, ExitStack] = {}

    def __enter__(self) -> ClientLocks:
        return self

    def __exit__(self, *reason: object) -> None:
        self.keep([])

    @property
    def full(self) -> bool:
        """Whether one must be released before another is taken."""
        return len(self._held) >= MOST_LOCKS

    def take(self, client: int) -> None:
        """Wait for a client's lock."""
        stack = ExitStack()
        stack.enter_context(self._disk.client_locked(client))
        self._held[client] = stack

    def keep(self, clients: Iterable[int]) -> None:
        """Release the locks of all other clients."""
        for client in self._held.keys() - set(map(int, clients)):
            self._held.pop(client).close()
