"""Images that all clients share, in one pool or held out, and notes of which images of a run were in its bank."""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas.core.arrays import IntArray, digest_of_arrays, json_digest, stream
from fedeas.generators.bank import BankedGenerator
from fedeas.generators.base import (
    GeneratorWrapper,
    Images,
    Wrapped,
    checked_address,
    client_of,
    described,
    number_of,
    shape_of,
)

_GOLDEN, _WORD = 0x9E3779B9, 32  # 2^32 divided by the golden ratio: multiples of it are spread evenly over 32 bits


class SharedPool(GeneratorWrapper[Wrapped]):
    """Wraps a generator so that all clients take their images from one pool.

    Args:
        generator: makes the images of the pool.
        each: images of each class in the pool. Clients start at different places of it, so that together they use it
            evenly. With 0 all start with the first image: the pool is as small as possible.
    """

    def __init__(self, generator: Wrapped, each: int = 0) -> None:
        super().__init__(generator)
        self.each = each

    @property
    def description(self) -> str:
        """One readable line."""
        size = f" of {self.each} images a class" if self.each else ""
        return f"{described(self.generator)}, one pool{size}"

    @property
    def fingerprint(self) -> str:
        """Hash of the wrapped generator's fingerprint and the size of the pool."""
        return pool_fingerprint(self.generator.fingerprint, self.each)

    def sample(self, labels: ArrayLike, index: ArrayLike) -> Images:
        """The images of these addresses; each distinct image is drawn once."""
        classes, numbers = checked_address(labels, index, self.num_classes)
        distinct, places = np.unique(
            np.stack([classes, numbers_in_pool(numbers, self.each)]), axis=1, return_inverse=True
        )
        return self.generator.sample(*distinct)[places]


def pool_fingerprint(fingerprint: str, each: int) -> str:
    """The fingerprint of a pool, from that of the generator that makes its images."""
    return json_digest(["fedeas-shared-1", fingerprint, *([each] if each else [])])


def numbers_in_pool(index: IntArray, each: int) -> IntArray:
    """The numbers that images have in the pool, from their indices; those of client 0 are its own numbers.

    >>> numbers_in_pool(np.array([0, 1, (1 << 32) + 0, (1 << 32) + 1]), each=2)
    array([0, 1, 1, 0])
    """
    numbers = number_of(index)
    return (_starts(client_of(index), each) + numbers) % each if each else numbers


def _starts(clients: IntArray, each: int) -> IntArray:
    return (clients * _GOLDEN % (1 << _WORD) * each) >> _WORD


def distinct_in_pool(plan: IntArray, each: int) -> IntArray:
    """How many images of each class the clients of a plan take together; rows of the plan are clients.

    >>> distinct_in_pool(np.array([[2, 0], [2, 1]]), each=3), distinct_in_pool(np.array([[2, 0], [2, 1]]), each=0)
    (array([3, 1]), array([2, 1]))
    """
    if not each:
        return np.asarray(plan.max(axis=0, initial=0))
    # If the pool has a fixed size, no client may ask for more than `each` images of a class (`Shared.check_plan`).
    starts, changes = _starts(np.arange(len(plan)), each), np.zeros((2 * each + 1, plan.shape[1]), dtype=np.int64)
    np.add.at(changes, starts, 1)
    np.add.at(changes, (starts[:, None] + plan, np.arange(plan.shape[1])), -1)
    twice = changes.cumsum(axis=0)[:-1] > 0  # the second half is the pool once more
    return np.asarray(twice.reshape(2, each, -1).any(axis=0).sum(axis=0))


class KeptPool(SharedPool[BankedGenerator]):
    """A shared pool whose images are kept in a bank."""

    def holdings(self, labels: ArrayLike, index: ArrayLike) -> tuple[int, int]:
        """How many of the distinct images of these addresses are kept already, and how many are not."""
        classes, numbers = checked_address(labels, index, self.num_classes)
        return self.generator.holdings(classes, numbers_in_pool(numbers, self.each))


class HeldOutImages:
    """Real images that no client holds, as a generator: an upper bound for synthetic images.

    Each client gets the images of a class in an order of its own, so that two clients may get the same image. With a
    `plan` (clients x classes) there is one order for all, and each client goes on in it where the client before it
    ends: no image is used twice as long as there are enough. Who asks for more than there are gets them again.
    """

    batch_size = 4096
    description = "real images that no client holds"

    def __init__(self, images: Images, labels: IntArray, num_classes: int, plan: IntArray | None = None) -> None:
        self._images = images
        self._members = [np.flatnonzero(labels == label) for label in range(num_classes)]
        self.num_classes, self.shape = num_classes, shape_of(images)
        self._starts = None if plan is None else np.cumsum(plan, axis=0) - plan
        self.fingerprint = digest_of_arrays((images, labels) if plan is None else (images, labels, plan))

    def sample(self, labels: ArrayLike, index: ArrayLike) -> Images:
        """The images of these addresses."""
        classes, numbers = checked_address(labels, index, self.num_classes)
        chosen = np.empty(classes.size, dtype=np.int64)
        for label, client in {*zip(classes.tolist(), client_of(numbers).tolist(), strict=True)}:
            asked = (classes == label) & (client_of(numbers) == client)
            whose, start = (client, 0) if self._starts is None else (0, int(self._starts[client, label]))
            members = self._members[label]
            order = _shuffled(whose, label, members.size)
            chosen[asked] = members[order[(start + number_of(numbers[asked])) % order.size]]
        return np.ascontiguousarray(self._images[chosen])


@lru_cache(maxsize=1 << 12)
def _shuffled(client: int, label: int, size: int) -> NDArray[np.int32]:
    """The order in which a client takes the images of a class."""
    return stream("held-out", client, label).permutation(size).astype(np.int32)


Note = dict[str, Any]
Banked = BankedGenerator | KeptPool  # a generator whose images are kept in a bank


class NotingGenerator(GeneratorWrapper[Banked]):
    """A generator whose images are kept, and that notes for each client how many had to be made.

    `noted` are the notes of earlier starts of the run; `note` stores a new one.
    """

    def __init__(self, generator: Banked, noted: Iterable[Note], note: Callable[[Note], None]) -> None:
        super().__init__(generator)
        self._notes, self._note = list(noted), note
        self._known = {client for each in self._notes for client in each["clients"]}

    def sample(self, labels: ArrayLike, index: ArrayLike) -> Images:
        """The images of these addresses; at a client's first request the number of missing images is noted first."""
        classes, numbers = np.asarray(labels), np.asarray(index)
        clients = client_of(numbers)
        new = sorted({*clients.tolist()} - self._known)
        if new:
            asked = np.isin(clients, new)
            found, made = self.generator.holdings(classes[asked], numbers[asked])
            note = {"clients": new, "found": found, "made": made}
            self._note(note)
            self._notes.append(note)
            self._known.update(new)
        return self.generator.sample(classes, numbers)

    def skip(self, clients: Iterable[int]) -> None:
        """Count no image of these clients: theirs are in the records of an earlier start."""
        clients = set(clients)
        self._known.update(clients)
        self.drawn(clients)

    def drawn(self, clients: Iterable[int]) -> dict[str, int]:
        """Images found and made in the requests that were the first of one of these clients.

        A request may be for many clients; its images are counted with the client that trains first.
        """
        asked = set(clients)
        drawn = [note for note in self._notes if not asked.isdisjoint(note["clients"])]
        self._notes = [note for note in self._notes if asked.isdisjoint(note["clients"])]
        return {name: sum(note[name] for note in drawn) for name in ("found", "made")}
