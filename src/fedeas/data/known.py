"""Class sizes of known datasets, so that partitions of them can be drawn without their images."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedeas.core.arrays import IntArray


class KnownDataset(NamedTuple):
    """Samples of each class in the official training and test parts, the names of the classes, and an image's shape."""

    train: tuple[int, ...]
    test: tuple[int, ...]
    classes: tuple[str, ...]
    shape: tuple[int, int, int]

    def labels(self, *, merged: bool) -> IntArray:
        """Labels sorted by class, of the training part or of both parts merged; the real order is not known here."""
        sizes = np.add(self.train, self.test) if merged else np.array(self.train)
        return np.repeat(np.arange(len(self.train)), sizes)


_CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
_DIGITS, _DIGITS_TEST = (142, 146, 142, 146, 145, 146, 145, 143, 139, 144), (36, 36, 35, 37, 36, 36, 36, 36, 35, 36)


def _numbers(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(count)))


KNOWN = {
    "cifar10": KnownDataset((5000,) * 10, (1000,) * 10, _CIFAR10, (3, 32, 32)),
    "cifar100": KnownDataset((500,) * 100, (100,) * 100, _numbers(100), (3, 32, 32)),
    "fashion-mnist": KnownDataset((6000,) * 10, (1000,) * 10, _FASHION, (1, 28, 28)),
    "digits": KnownDataset(_DIGITS, _DIGITS_TEST, _numbers(10), (1, 8, 8)),
}
