"""Checks of a dataset's labels and parts, and the share that is set aside, for all file formats."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas.core.arrays import ByteArray, IntArray, frozen_integers
from fedeas.core.errors import InputError

TEST_SHARE = 0.2
"""Set aside where there is no test part."""


def checked_labels(place: str, values: ArrayLike, classes: tuple[str, ...] | None, array: str = "") -> IntArray:
    """The labels, if they are whole numbers from 0 on and, if the classes are known, below their number.

    `array` is the name of the labels in the file, for messages, if they have one.
    """
    labels = np.asarray(values)
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim != 1 or (labels.size and labels.dtype.kind not in "iu"):
        names = "; their names go into classes" if labels.dtype.kind in "US" else ""
        raise InputError(f"{place}: {array or 'labels'} must be a list of whole numbers, one for each image{names}")
    wrong = np.flatnonzero((labels < 0) | (labels >= (len(classes) if classes else np.inf)))
    if wrong.size:
        limits = f"from 0 to {len(classes) - 1}" if classes else "0 or more"
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


def check_any(place: object, labels: IntArray) -> None:
    """Check that a part that is read alone holds images."""
    if not len(labels):
        raise InputError(f"{place}: holds no images; add some")


def check_parts(place: str, labels: IntArray, test_labels: IntArray, classes: tuple[str, ...]) -> None:
    """Check that both parts hold images, and that the training part holds some of every class."""
    for part, numbers in (("training", labels), ("test", test_labels)):
        if not numbers.size:
            raise InputError(f"{place}: the {part} part is empty; add images to it")
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
