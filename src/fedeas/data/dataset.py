"""A dataset in memory: labelled images in a training and a test part; the checks of both that all formats share."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas.core.arrays import (
    BLOCK_CELLS,
    BoolArray,
    ByteArray,
    IntArray,
    digest_of_arrays,
    for_row_blocks,
    frozen_integers,
)
from fedeas.core.errors import InputError
from fedeas.core.provenance import DatasetParts

MOST_EMPTY = 10**6
"""Classes without samples that labels may count up to, if their names are not known."""

Normalisation = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation of each channel, with pixels from 0 to 1."""

PART_NAMES: dict[Part, tuple[str, ...]] = {"train": ("train",), "test": ("test", "validation", "valid", "val")}
"""The first of these names that exists is the part."""

MIDDLE = 0.5
"""Mean and deviation of pixels that are scaled to -1 to 1."""

TEST_SHARE = 0.2
"""Set aside where there is no test part."""

Part = Literal["train", "test"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled images with their official training and test parts; the arrays are read-only, perhaps memory-mapped."""

    name: str
    images: ByteArray = field(repr=False)
    """The training part, (N, channels, height, width)."""
    labels: IntArray = field(repr=False)
    test_images: ByteArray = field(repr=False)
    test_labels: IntArray = field(repr=False)
    classes: tuple[str, ...]
    clients: tuple[str, ...] | None = None
    """Names of the clients, if the dataset comes with its clients."""
    owners: IntArray | None = field(default=None, repr=False)
    """The client of each training image, by its place in `clients`."""
    sample_names: tuple[str, ...] = field(default=(), repr=False)
    """Names of the training images, if they have any; likewise of the test images. Rows of a file have numbers."""
    test_names: tuple[str, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = field(default=(), repr=False)
    """What a user should know of how the dataset was read."""
    normalisation: Normalisation | None = field(default=None, repr=False)
    """Mean and deviation of each channel, if they do not follow from the training part because there is none."""
    has_class_names: bool = field(default=True, repr=False)
    """False if a client's own data came without names of classes: `classes` are then the numbers of the labels."""

    @property
    def num_classes(self) -> int:
        """C."""
        return len(self.classes)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of each image."""
        _, channels, height, width = self.images.shape
        return channels, height, width

    def seen_under(self, protocol: str) -> tuple[ByteArray, IntArray]:
        """Images and labels: ``clean`` is the training part alone, ``merged`` the training part, then the test part."""
        if protocol == "clean":
            return self.images, self.labels
        if protocol == "merged":
            return np.concatenate([self.images, self.test_images]), np.concatenate([self.labels, self.test_labels])
        raise InputError(f"protocol must be clean or merged, not {protocol!r}")

    @cached_property
    def parts(self) -> DatasetParts:
        """Name and content of both parts, to compare with the training data of weights."""
        return DatasetParts(self.name, (self.images, self.labels), (self.test_images, self.test_labels))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all images, labels and class names: two datasets with the same content have the same digest."""
        names = np.array(list("\n".join(self.classes).encode()), dtype=np.uint8)
        given = () if self.normalisation is None else (np.array(self.normalisation),)
        return digest_of_arrays((self.images, self.labels, self.test_images, self.test_labels, names, *given))

    @property
    def channel_mean(self) -> tuple[float, ...]:
        """Mean of each channel over the training part, with pixels from 0 to 1."""
        return self._moments[0]

    @property
    def channel_std(self) -> tuple[float, ...]:
        """Standard deviation of each channel over the training part, with pixels from 0 to 1."""
        return self._moments[1]

    @cached_property
    def _moments(self) -> Normalisation:
        """Mean and deviation from sums of whole numbers, which are exact in any order of the blocks."""
        if self.normalisation is not None:
            return self.normalisation
        images, sums = np.asarray(self.images), []

        def add(rows: slice) -> None:
            pixels = images[rows].astype(np.float64).reshape(-1, self.shape[0], math.prod(self.shape[1:]))
            sums.append([pixels.sum(axis=(0, 2)), np.einsum("ncp,ncp->c", pixels, pixels)])

        for_row_blocks(add, len(images), math.prod(self.shape), 8 * BLOCK_CELLS)
        count = images.size // self.shape[0]
        totals = list(zip(*np.sum(sums, axis=0).astype(np.int64).tolist(), strict=True))
        spreads = (math.sqrt(count * squares - total * total) for total, squares in totals)
        return tuple(total / count / 255 for total, _ in totals), tuple(spread / count / 255 for spread in spreads)


def checked_labels(place: str, values: ArrayLike, classes: tuple[str, ...] | None, array: str = "") -> IntArray:
    """The labels, if they are whole numbers from 0 on and, if the classes are known, below their number.

    `array` is the name of the labels in the file, for messages, if they have one.
    """
    labels = np.asarray(values)
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim != 1 or (labels.size and labels.dtype.kind not in "iu"):
        names = "; their names go into classes" if labels.dtype.kind in "US" else ""
        raise InputError(f"{place}: {array or 'labels'} must be a list of whole numbers, one for each image{names}")
    most = len(classes) if classes else labels.size + MOST_EMPTY
    wrong = np.flatnonzero((labels < 0) | (labels >= most))
    if wrong.size:
        limits = f"from 0 to {most - 1}" if classes or labels[wrong[0]] > 0 else "0 or more"
        where = f"{place}: {array}" if array else place
        raise InputError(f"{where}: row {wrong[0] + 1:,} has label {labels[wrong[0]]}, but labels must be {limits}")
    return frozen_integers(labels)


def checked_classes(place: str, names: Iterable[object]) -> tuple[str, ...]:
    """The names of the classes, if they differ."""
    classes = tuple(map(str, names))
    first: dict[str, int] = {}
    for number, name in enumerate(classes):
        if first.setdefault(name, number) < number:
            raise InputError(
                f"{place}: classes {first[name]} and {number} are both called {name!r}; rename one of them"
            )
    return classes


def check_parts(place: object, labels: IntArray, test_labels: IntArray | None, classes: tuple[str, ...]) -> None:
    """Check that both parts hold images, and that the training part holds some of every class; None if it is alone."""
    for part, numbers in (("training", labels), ("test", test_labels)):
        if numbers is not None and not numbers.size:
            raise InputError(f"{place}: the {part} part is empty; add images to it")
    if test_labels is None:
        return
    missing = np.flatnonzero(np.bincount(labels, minlength=len(classes)) == 0)
    if missing.size:
        name = classes[missing[0]]
        remedy = "count labels from 0" if name == "0" else "add some or remove the class"
        raise InputError(f"{place}: class {name!r} has no images in the training part; {remedy}")


def pixel_hash(image: NDArray[np.generic]) -> str:
    """A hash that equal images share."""
    return hashlib.sha256(image.tobytes()).hexdigest()


def count_repeated(images: ByteArray, test_images: ByteArray) -> int:
    """How many test images are in the training part, too."""
    seen = set(map(pixel_hash, np.asarray(images)))
    return sum(pixel_hash(image) in seen for image in np.asarray(test_images))


def notes_on_repeated(count: int, of: int) -> tuple[str, ...]:
    """A note for the user if the training part holds test images."""
    return (f"{count:,} of {of:,} test images are in the training part, too",) if count else ()


def numbers_upto(labels: IntArray) -> tuple[str, ...]:
    """Default class names: the numbers from 0 to the largest label."""
    return tuple(map(str, range(int(labels.max(initial=-1)) + 1)))


def share_of(count: int) -> int:
    """How many of so many images are set aside; never all of them.

    >>> [share_of(count) for count in (1, 2, 3, 10)]
    [0, 0, 1, 2]
    """
    return round(TEST_SHARE * count)


def set_aside(place: object, groups: Sequence[object], hashes: Sequence[str]) -> BoolArray:
    """Which images are for testing: the first ones of each group by their hashes, so they are always the same.

    Equal images stay together. If no set of equal images is small enough for the share of a group, the smallest one is
    taken; a single set is divided.
    """
    members: dict[object, list[int]] = {}
    for row in sorted(range(len(hashes)), key=hashes.__getitem__):
        members.setdefault(groups[row], []).append(row)
    is_test = np.zeros(len(hashes), bool)
    for rows in members.values():
        equal = [[*same] for _, same in groupby(rows, hashes.__getitem__)]
        wanted, chosen = share_of(len(rows)), list[int]()
        for same in equal:
            if len(chosen) + len(same) <= wanted:
                chosen += same
        if wanted and not chosen:
            chosen = min(equal, key=len) if len(equal) > 1 else rows[:wanted]
        is_test[chosen] = True
    if not is_test.any():
        raise InputError(f"{place}: too few images to set a test part aside; add images for testing")
    return is_test
