"""Images that all clients share: one pool of generated images, or real images that no client holds."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedeas.core.arrays import IntArray, digest_of_arrays
from fedeas.core.digests import json_digest
from fedeas.core.streams import stream
from fedeas.generators.bank import BankedGenerator
from fedeas.generators.base import GeneratorWrapper, Images, Wrapped, checked_address, client_of, number_of, shape_of


class SharedPool(GeneratorWrapper[Wrapped]):
    """Wraps a generator so that image j of a class is the same for every client.

    Far fewer distinct images are needed: for each class the largest number that any client asks for.
    """

    @property
    def fingerprint(self) -> str:
        """Hash of the wrapped generator's fingerprint."""
        return json_digest(["fedeas-shared-1", self.generator.fingerprint])

    def sample(self, labels: ArrayLike, index: ArrayLike) -> Images:
        """The images of these addresses, the same for every client; each distinct image is drawn once."""
        classes, numbers = checked_address(labels, index, self.num_classes)
        distinct, places = np.unique(np.stack([classes, number_of(numbers)]), axis=1, return_inverse=True)
        return self.generator.sample(*distinct)[places]


class KeptPool(SharedPool[BankedGenerator]):
    """A shared pool whose images are kept in a bank."""

    def holdings(self, labels: ArrayLike, index: ArrayLike) -> tuple[int, int]:
        """How many of the distinct images of these addresses are kept already, and how many are not."""
        classes, numbers = checked_address(labels, index, self.num_classes)
        return self.generator.holdings(classes, number_of(numbers))


class HeldOutImages:
    """Real images that no client holds, as a generator: an upper bound for synthetic images.

    Each client gets the images of a class in an order of its own, so that two clients may get the same image. A client
    that asks for more than there are gets them again from the start.
    """

    batch_size = 4096

    def __init__(self, images: Images, labels: IntArray, num_classes: int) -> None:
        self._images = images
        self._members = [np.flatnonzero(labels == label) for label in range(num_classes)]
        self.num_classes, self.shape = num_classes, shape_of(images)
        self.fingerprint = digest_of_arrays((images, labels))

    def sample(self, labels: ArrayLike, index: ArrayLike) -> Images:
        """The images of these addresses."""
        classes, numbers = checked_address(labels, index, self.num_classes)
        chosen = np.empty(classes.size, dtype=np.int64)
        for label, client in {*zip(classes.tolist(), client_of(numbers).tolist(), strict=True)}:
            order = stream("held-out", client, label).permutation(self._members[label])
            asked = (classes == label) & (client_of(numbers) == client)
            chosen[asked] = order[number_of(numbers[asked]) % order.size]
        return np.ascontiguousarray(self._images[chosen])
