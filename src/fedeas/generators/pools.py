"""Collections of images that clients draw from together: one pool for all of them, or real images that none holds."""

from __future__ import annotations

import hashlib
import json

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas.core.arrays import IntArray, digest_of_arrays
from fedeas.core.streams import stream
from fedeas.generators.base import Around, checked_address, client_of, number_of
from fedeas.generators.journal import KeptGenerator

Images = NDArray[np.uint8]


class SharedPool(Around):
    """Another generator whose image j of a class is the same for every client.

    It needs far fewer distinct images: as many of each class as the client that asks for the most of it.
    """

    @property
    def fingerprint(self) -> str:
        """Hash of the other generator's."""
        return hashlib.sha256(json.dumps(["fedeas-shared-1", self.generator.fingerprint]).encode()).hexdigest()

    def sample(self, labels: ArrayLike, index: ArrayLike) -> Images:
        """The images of these addresses, whichever client asks; each distinct one is drawn once."""
        classes, numbers = checked_address(labels, index, self.num_classes)
        distinct, places = np.unique(np.stack([classes, number_of(numbers)]), axis=1, return_inverse=True)
        return self.generator.sample(*distinct)[places]


class KeptPool(SharedPool):
    """A shared pool whose images are kept in a bank."""

    def __init__(self, generator: KeptGenerator) -> None:
        super().__init__(generator)
        self._kept = generator

    def holdings(self, labels: ArrayLike, index: ArrayLike) -> tuple[int, int]:
        """How many of the different images of these addresses are kept already, and how many are not."""
        classes, numbers = checked_address(labels, index, self.num_classes)
        return self._kept.holdings(classes, number_of(numbers))


class HeldOutImages:
    """Real images that no client holds, as a generator: the best that synthetic images could be.

    Each client draws on all images of a class in an order of its own, so that clients can share images. A client that
    asks for more than there are sees them again from the start.
    """

    batch_size = 4096

    def __init__(self, images: Images, labels: IntArray, num_classes: int) -> None:
        self._images = images
        self._members = [np.flatnonzero(labels == label) for label in range(num_classes)]
        self.num_classes = num_classes
        self.fingerprint = digest_of_arrays((images, labels))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of its images."""
        _, channels, height, width = self._images.shape
        return channels, height, width

    def sample(self, labels: ArrayLike, index: ArrayLike) -> Images:
        """The images of these addresses."""
        classes, numbers = checked_address(labels, index, self.num_classes)
        chosen = np.empty(classes.size, dtype=np.int64)
        for label, client in {*zip(classes.tolist(), client_of(numbers).tolist(), strict=True)}:
            order = stream("held-out", client, label).permutation(self._members[label])
            asked = (classes == label) & (client_of(numbers) == client)
            chosen[asked] = order[number_of(numbers[asked]) % order.size]
        return np.ascontiguousarray(self._images[chosen])
