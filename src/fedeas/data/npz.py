"""Datasets in an ``.npz`` file of plain arrays: with a test part, without one, or one part alone."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas.core.arrays import ByteArray, IntArray, frozen
from fedeas.core.errors import InputError
from fedeas.core.records import array_names, checked_archive, read_arrays
from fedeas.data.dataset import (
    Dataset,
    Normalisation,
    Part,
    check_parts,
    checked_classes,
    checked_labels,
    count_repeated,
    notes_on_repeated,
    numbers_upto,
    pixel_hash,
    set_aside,
)

Arrays = dict[str, NDArray[Any]]
ArrayNames = tuple[tuple[str, ...], ...]
Samples = tuple[ByteArray, IntArray]

NPZ_NAMES = (("images", "x_train"), ("labels", "y_train"), ("test_images", "x_test"), ("test_labels", "y_test"))
"""The names of the arrays: images and labels of the training part, then of the test part."""
REMEDY = "write plain arrays with numpy.savez"


@dataclass(frozen=True)
class NpzSource:
    """A dataset's ``.npz`` file."""

    name: str
    path: Path

    def whole(self) -> Dataset:
        """Both parts; without a test part, a share of each class is for testing."""
        path = str(self.path)
        if self._holds(NPZ_NAMES[2:]):
            return dataset_of_arrays(self.name, path, *self._arrays(NPZ_NAMES))
        arrays, classes = self._arrays(NPZ_NAMES[:2])
        images, labels = _checked_part(path, arrays, "train", classes)
        is_test = set_aside(path, labels.tolist(), [*map(pixel_hash, arrays["images"])])
        note = f"no test part: {is_test.sum():,} of {len(labels):,} images are for testing"
        rows, test_rows = (tuple(map(str, np.flatnonzero(part).tolist())) for part in (~is_test, is_test))
        train, test = ((frozen(images[part]), frozen(labels[part])) for part in (~is_test, is_test))
        found = _dataset(self.name, path, train, test, classes)
        return replace(found, notes=(note, *found.notes), sample_names=rows, test_names=test_rows)

    def part(self, part: Part) -> Dataset:
        """One part alone, in the place of the training part."""
        path = str(self.path)
        arrays, classes = self._arrays(NPZ_NAMES[:2] if part == "train" else NPZ_NAMES[2:])
        images, labels = _checked_part(path, arrays, part, classes)
        known = classes or numbers_upto(labels)
        check_parts(path, labels, None, known)
        found = Dataset(self.name, images, labels, images[:0], labels[:0], known)
        given = self._normalisation(found.shape[0]) if part == "test" else None
        return replace(found, normalisation=given, has_class_names=bool(classes))

    def has_training_part(self) -> bool:
        """Whether there are training images."""
        return self._holds(NPZ_NAMES[:1])

    def _holds(self, names: ArrayNames) -> bool:
        checked_archive(self.path)
        given = array_names(self.path, REMEDY)
        return any(key in given for keys in names for key in keys)

    def _normalisation(self, channels: int) -> Normalisation | None:
        """Mean and deviation in the file, if it has both."""
        given = read_arrays(self.path, (), REMEDY, ("mean", "std"))
        if any(each is None for each in given):
            return None
        mean, std = (tuple(each.astype(float).ravel().tolist()) for each in given)
        if not len(mean) == len(std) == channels or not np.isfinite([*mean, *std]).all() or min(std) <= 0:
            wanted = f"{channels} finite numbers each, for pixels from 0 to 1"
            raise InputError(f"{self.path}: mean and std must be {wanted}")
        return mean, std

    def _arrays(self, names: ArrayNames) -> tuple[Arrays, tuple[str, ...] | None]:
        """The arrays, each under one of its names, and the names of the classes if there are any."""
        path, chosen = self.path, list[str]()
        checked_archive(path)
        given = array_names(path, REMEDY)
        for keys in names:
            found = [key for key in keys if key in given]
            if len(found) != 1:
                holds = " and ".join(found) or "none"
                raise InputError(f"{path}: there must be one array {' or '.join(keys)}, but there is {holds}")
            chosen += found
        *arrays, classes = read_arrays(path, tuple(chosen), REMEDY, ("classes",))
        known = None if classes is None else checked_classes(str(path), classes)
        return dict(zip((keys[0] for keys in names), arrays, strict=True)), known


def dataset_of_arrays(name: str, place: str, arrays: Arrays, classes: tuple[str, ...] | None) -> Dataset:
    """Training and test part, checked, from whatever `place` names in errors."""
    train = _checked_part(place, arrays, "train", classes)
    test = _checked_part(place, arrays, "test", classes or numbers_upto(train[1]))
    return _dataset(name, place, train, test, classes)


def _dataset(name: str, place: str, train: Samples, test: Samples, classes: tuple[str, ...] | None) -> Dataset:
    (images, labels), (test_images, test_labels) = train, test
    known = classes or numbers_upto(labels)
    check_parts(place, labels, test_labels, known)
    if images.shape[1:] != test_images.shape[1:]:
        shapes = [" x ".join(map(str, part.shape[1:])) for part in (images, test_images)]
        raise InputError(f"{place}: training images are {shapes[0]}, test images {shapes[1]}; bring all to one size")
    notes = notes_on_repeated(count_repeated(images, test_images), len(test_images))
    return Dataset(name, *train, *test, known, notes=notes, has_class_names=bool(classes))


def _checked_part(place: str, arrays: Arrays, part: Part, classes: tuple[str, ...] | None) -> Samples:
    """Images as (N, C, H, W), and as many labels."""
    (pictures, *_), (numbers, *_) = NPZ_NAMES[:2] if part == "train" else NPZ_NAMES[2:]
    images = arrays[pictures]
    first, last = (images.ndim == 4 and images.shape[axis] in (1, 3) for axis in (1, -1))
    if images.dtype != np.uint8 or (images.ndim != 3 and first == last):
        forms = "(N, H, W), (N, H, W, C) or (N, C, H, W), C 1 or 3"
        raise InputError(f"{place}: {pictures} are {images.dtype} {images.shape}; make them uint8 {forms}")
    if images.ndim == 3:
        images = images[:, None]
    elif last:
        images = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    labels = checked_labels(place, arrays[numbers], classes, numbers)
    if len(images) != len(labels):
        found = f"{len(images):,} images but {len(labels):,} labels in the {part.replace('train', 'training')} part"
        raise InputError(f"{place}: {found}; there must be one for each")
    return frozen(images), labels
