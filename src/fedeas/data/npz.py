"""Datasets in an ``.npz`` file of plain arrays: with a test part, without one, or one part alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from fedeas.core.arrays import ByteArray, IntArray, frozen
from fedeas.core.errors import InputError
from fedeas.core.foreign_text import printable
from fedeas.core.records import DAMAGED_ARRAYS, checked_archive, plain_array
from fedeas.data.cache import Decoded
from fedeas.data.checks import (
    check_parts,
    checked_classes,
    checked_labels,
    count_repeated,
    notes_on_repeated,
    numbers_upto,
    pixel_hash,
    share_of,
)
from fedeas.data.dataset import MIDDLE, Dataset, Normalisation, Part

Arrays = dict[str, NDArray[Any]]
ArrayNames = tuple[tuple[str, ...], ...]

NPZ_NAMES = (("images", "x_train"), ("labels", "y_train"), ("test_images", "x_test"), ("test_labels", "y_test"))
"""The names of the arrays: images and labels of the training part, then of the test part."""


@dataclass(frozen=True)
class NpzSource:
    """A dataset's ``.npz`` file."""

    name: str
    path: Path

    def whole(self) -> Dataset:
        """Both parts; without a test part, a share of each class is for testing."""
        path = self.path
        with _opened(path) as file:
            tested = any(key in file for keys in NPZ_NAMES[2:] for key in keys)
        arrays, classes = self._arrays(NPZ_NAMES if tested else NPZ_NAMES[:2])
        if tested:
            return dataset_of_arrays(self.name, str(path), arrays, classes)
        images, labels = arrays["images"], arrays["labels"]
        channels_first(images, f"{path}: images")  # refuse them while the message can show the shape in the file
        is_test = _set_aside(path, images, checked_labels(str(path), labels, classes, "labels"))
        parts = {"images": images[~is_test], "labels": labels[~is_test]}
        parts |= {"test_images": images[is_test], "test_labels": labels[is_test]}
        note = f"no test part: {is_test.sum():,} of {len(labels):,} images are for testing"
        rows, test_rows = (tuple(map(str, np.flatnonzero(part).tolist())) for part in (~is_test, is_test))
        found = dataset_of_arrays(self.name, str(path), parts, classes)
        return replace(found, notes=(note, *found.notes), sample_names=rows, test_names=test_rows)

    def part(self, part: Part) -> Decoded:
        """One part alone, in the place of the training part."""
        path, names = self.path, NPZ_NAMES[:2] if part == "train" else NPZ_NAMES[2:]
        arrays, classes = self._arrays(names)
        pictures, numbers = (arrays[keys[0]] for keys in names)
        images, labels = channels_first(pictures, str(path)), checked_labels(str(path), numbers, classes, names[1][0])
        if not len(labels):
            raise InputError(f"{path}: holds no images; add some")
        _check_pairs(path, len(images), len(labels))
        return Decoded(frozen(images), labels, images[:0], labels[:0], classes or numbers_upto(labels))

    def has_training_part(self) -> bool:
        """Whether there are training images."""
        with _opened(self.path) as file:
            return any(key in file for key in NPZ_NAMES[0])

    def has_class_names(self) -> bool:
        """Whether the classes have names."""
        with _opened(self.path) as file:
            return "classes" in file and plain_array(file, "classes").size > 0

    def normalisation(self, channels: int) -> Normalisation:
        """Mean and deviation in the file; without them, pixels are scaled to -1 to 1."""
        mean = std = (MIDDLE,) * channels
        with _opened(self.path) as file:
            if "mean" in file and "std" in file:
                mean, std = (tuple(plain_array(file, key).astype(float).ravel().tolist()) for key in ("mean", "std"))
        if len(mean) != channels or len(std) != channels or not np.isfinite([*mean, *std]).all() or min(std) <= 0:
            raise InputError(
                f"{self.path}: mean and std must be {channels} finite numbers each, for pixels from 0 to 1"
            )
        return mean, std

    def _arrays(self, names: ArrayNames) -> tuple[Arrays, tuple[str, ...] | None]:
        """The arrays, each under one of its names, and the names of the classes if there are any."""
        path = self.path
        with _opened(path) as file:
            twice = next((keys for keys in names if all(key in file for key in keys)), None)
            if twice is not None:
                raise InputError(
                    f"{path}: holds {' and '.join(twice)}, which are two names of one array; remove one of them"
                )
            found = {keys[0]: next((key for key in keys if key in file), None) for keys in names}
            if None in found.values():
                wanted = ", ".join(" or ".join(keys) for keys in names)
                raise InputError(f"{path}: an array is missing; there must be {wanted}")
            classes = checked_classes(str(path), plain_array(file, "classes")) if "classes" in file else None
            return {name: plain_array(file, str(key)) for name, key in found.items()}, classes


@contextmanager
def _opened(path: Path) -> Iterator[NpzFile]:
    """The arrays of an ``.npz`` file, read when they are asked for; one that is no such file is an `InputError`."""
    checked_archive(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            yield file
    except InputError:
        raise
    except DAMAGED_ARRAYS as error:
        reason = printable(error)[:200]
        raise InputError(f"{path}: not an .npz file of plain arrays ({reason}); write it with numpy.savez") from None


def dataset_of_arrays(name: str, path: str, arrays: Arrays, classes: tuple[str, ...] | None) -> Dataset:
    """Training and test part, checked, from whatever `path` names in errors."""
    named = bool(classes)
    images, test_images = (channels_first(arrays[key], f"{path}: {key}") for key in ("images", "test_images"))
    labels = checked_labels(path, arrays["labels"], classes, "labels")
    classes = classes or numbers_upto(labels)
    test_labels = checked_labels(path, arrays["test_labels"], classes, "test_labels")
    check_parts(path, labels, test_labels, classes)
    _check_pairs(path, len(images), len(labels), " in the training part")
    _check_pairs(path, len(test_images), len(test_labels), " in the test part")
    if images.shape[1:] != test_images.shape[1:]:
        shapes = [" x ".join(map(str, part.shape[1:])) for part in (images, test_images)]
        raise InputError(f"{path}: training images are {shapes[0]}, test images {shapes[1]}; bring all to one size")
    notes = notes_on_repeated(count_repeated(images, test_images), len(test_images))
    parts = frozen(images), labels, frozen(test_images), test_labels
    return Dataset(name, *parts, classes, notes=notes, has_class_names=named)


def _check_pairs(place: object, images: int, labels: int, where: str = "") -> None:
    if images != labels:
        raise InputError(f"{place}: {images:,} images but {labels:,} labels{where}; there must be one for each")


def channels_first(images: NDArray[Any], place: str) -> ByteArray:
    """(N, H, W), (N, H, W, C) or (N, C, H, W) as (N, C, H, W)."""
    if images.dtype != np.uint8:
        raise InputError(f"{place} are {images.dtype}; they must be uint8, 0 to 255")
    if images.ndim == 3:
        return images[:, None]
    first, last = (images.ndim == 4 and images.shape[axis] in (1, 3) for axis in (1, -1))
    if first == last:
        raise InputError(f"{place} are {images.shape}; make them (N, H, W), (N, H, W, C) or (N, C, H, W), C 1 or 3")
    return images if first else np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def _set_aside(path: Path, images: NDArray[Any], labels: IntArray) -> NDArray[np.bool_]:
    """Which images are for testing: a share of each class."""
    _check_pairs(path, len(images), len(labels))
    is_test = np.zeros(len(labels), bool)
    hashes = [*map(pixel_hash, images)]
    for label in np.unique(labels):
        is_test[_share_of_class(np.flatnonzero(labels == label).tolist(), hashes)] = True
    if not is_test.any():
        raise InputError(f"{path}: too few images to set a test part aside; add test_images and test_labels")
    return is_test


def _share_of_class(members: list[int], hashes: list[str]) -> list[int]:
    """The images of a class that are for testing: the first ones by hash, so they are always the same.

    Equal images stay together. If no group of equal images is small enough for the share, the smallest one is taken; a
    single group is divided.
    """
    groups: dict[str, list[int]] = {}
    for member in sorted(members, key=hashes.__getitem__):
        groups.setdefault(hashes[member], []).append(member)
    wanted = share_of(len(members))
    chosen: list[int] = []
    for group in groups.values():
        if len(chosen) + len(group) <= wanted:
            chosen += group
    if chosen or not wanted:
        return chosen
    smallest = min(groups.values(), key=len)
    return smallest if len(groups) > 1 else smallest[:wanted]
