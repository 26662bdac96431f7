"""Datasets by name: the forms of names, and the class sizes of known datasets; nothing is opened."""

import re
from typing import NamedTuple

import numpy as np

from fedeas.core.arrays import IntArray
from fedeas.core.errors import InputError
from fedeas.core.spec import PREFIX, installed, own_code_named, read_call

HUB_REPOSITORIES = {
    "cifar10": "uoft-cs/cifar10",
    "cifar100": "uoft-cs/cifar100",
    "fashion-mnist": "zalando-datasets/fashion_mnist",
}
NAMES = ("digits", *HUB_REPOSITORIES, "hub:owner/name", "folder:DIR", "npz:FILE", "parquet:DIR", "python:module:name")
PLACES = ("folder", "npz", "parquet")

_REPOSITORY = re.compile(r"\w[\w.-]*/\w[\w.-]*")


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
"""Datasets whose class sizes are known, so that partitions of them can be drawn without their images."""


def checked_name(name: str) -> str:
    """The name, or an error if it is not a valid name of a dataset; nothing is opened.

    >>> checked_name("hub:owner/name")
    'hub:owner/name'
    """
    kind, _, place = name.partition(":")
    known = name == "digits" or name in HUB_REPOSITORIES or (kind in PLACES and place)
    if known or (kind == "hub" and _REPOSITORY.fullmatch(place)):
        return name
    if name.startswith(PREFIX) or own_code_named(name.partition("(")[0], NAMES, "dataset"):
        return read_call(name, NAMES, "dataset").spec
    raise InputError(f"unknown dataset {name!r}; known are {', '.join([*NAMES, *installed('dataset')])}")


def is_place(name: str) -> bool:
    """Whether this names a file, folder or code on this machine, whose images may change."""
    return name.startswith((*(f"{kind}:" for kind in PLACES), PREFIX))
