"""Datasets of which one place holds one part alone: a client its own samples, a server the test set.

A client may lack classes. A server without training data gets the normalisation of pixels from its ``.npz`` file
(`mean` and `std`), or scales pixels to -1 to 1.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from fedeas.core.arrays import frozen, frozen_integers
from fedeas.core.errors import InputError
from fedeas.core.files import PathLike
from fedeas.core.own_code import PREFIX
from fedeas.core.records import plain_array
from fedeas.data.cache import Decoded, Encoded, fingerprint, load_decoded
from fedeas.data.checks import checked_labels, numbers_upto
from fedeas.data.folders import TEST_NAMES, ImageFiles, find_part, labels_of
from fedeas.data.names import checked_name
from fedeas.data.parquet import files_for_testing, has_class_names, read_parquet, split_files
from fedeas.data.sources import (
    NPZ_NAMES,
    Dataset,
    Normalisation,
    channels_first,
    load_dataset,
    npz_arrays,
    opened_npz,
    parquet_folder,
)

MIDDLE = 0.5
"""Mean and deviation of pixels that are scaled to -1 to 1."""


def load_own(name: str, root: PathLike | None = None) -> Dataset:
    """Load one client's data, like `load_dataset`, but no test part is needed, and not every class."""
    name = checked_name(name)
    if name == "digits" or name.startswith(PREFIX):
        return load_dataset(name, root)
    parts = _part(name, root, "train").parts
    kind, _, place = name.partition(":")
    if kind == "npz":
        with opened_npz(Path(place)) as file:
            named = "classes" in file and plain_array(file, "classes").size > 0
    else:
        named = kind == "folder" or has_class_names(_parquet_files(parquet_folder(name, root), "train")[1][0])
    return Dataset(name, *parts, has_class_names=named)


def as_in_run(own: Dataset, classes: tuple[str, ...], shape: tuple[int, int, int]) -> Dataset:
    """A client's own data with the classes and the channels of its run.

    Grey images are repeated in each channel of a run with colour images.
    """
    labels, shown = own.labels, ", ".join(classes)
    if own.has_class_names:
        unknown = sorted(set(own.classes) - set(classes))
        if unknown:
            raise InputError(
                f"{own.name}: class {', '.join(unknown)} is not one of the run's classes, which are {shown}; "
                "rename or remove its images"
            )
        labels = frozen_integers(np.array([classes.index(name) for name in own.classes])[labels])
    elif labels.max() >= len(classes):
        numbers = f"numbered 0 to {len(classes) - 1}; they are {shown}"
        raise InputError(f"{own.name}: label {labels.max()}: the run's classes are {numbers}")
    channels, *size = own.shape
    if size != [*shape[1:]]:
        sizes = ["{1} x {0}".format(*each) for each in (size, shape[1:])]
        raise InputError(f"{own.name}: images are {sizes[0]} pixels, the run's {sizes[1]}; resize them")
    if channels > shape[0]:
        raise InputError(f"{own.name}: images are in colour, the run's are grey; save them as grey images")
    return replace(own, images=np.broadcast_to(own.images, (len(own.images), *shape)), labels=labels, classes=classes)


def misleading_label(classes: tuple[str, ...]) -> int | None:
    """The first label whose number is the name of another class; None if there is none.

    Folders of numbers are in the order of text: label 2 is their third class, which is not the class "2".

    >>> misleading_label(("0", "1", "10", "2"))
    2
    """
    names = set(classes)
    return next((place for place, name in enumerate(classes) if str(place) in names - {name}), None)


def load_test_part(name: str, root: PathLike | None = None) -> Dataset:
    """Load a server's test set; of a training part that is there, too, only the normalisation is kept."""
    name = checked_name(name)
    if _lacks_training_part(name, root):
        images, labels, no_images, no_labels, classes = _part(name, root, "test").parts
        given = _given_normalisation(name, images.shape[1])
        return Dataset(name, no_images, no_labels, images, labels, classes, normalisation=given)
    data = load_dataset(name, root)
    given, test = (data.channel_mean, data.channel_std), (data.test_images, data.test_labels, data.classes)
    return Dataset(name, data.images[:0], data.labels[:0], *test, test_names=data.test_names, normalisation=given)


def _part(name: str, root: PathLike | None, part: Literal["train", "test"]) -> Decoded:
    """One part, in the place of the training part, without another one."""
    kind, _, place = name.partition(":")
    if kind == "npz":
        return _npz_part(Path(place), NPZ_NAMES[:2] if part == "train" else NPZ_NAMES[2:])
    if kind == "folder":
        base = Path(place)
        images, classes = find_part(base, ("train",) if part == "train" else TEST_NAMES)
        labels = frozen_integers(labels_of(images, classes))
        encoded = Encoded(ImageFiles(images), labels, ImageFiles(()), labels[:0], classes)
        identity = json.dumps([str(base.resolve()), classes, "one part"])
        return load_decoded(name, fingerprint(identity, base, images), lambda: encoded)
    given = parquet_folder(name, root)
    folder, files = _parquet_files(given, part)

    def read() -> Encoded:
        encoded = read_parquet(files, [])
        if not len(encoded.labels):
            raise InputError(f"{given}: holds no images; add some")
        return encoded

    return load_decoded(name, fingerprint(f"{folder.resolve()} one part", folder, files), read)


def _lacks_training_part(name: str, root: PathLike | None) -> bool:
    kind, _, place = name.partition(":")
    if kind == "npz":
        with opened_npz(Path(place)) as file:
            return not any(key in file for key in NPZ_NAMES[0])
    if kind == "folder":
        return not (Path(place) / "train").is_dir()
    if kind in ("parquet", "hub"):
        folder, found = _all_parquet_files(parquet_folder(name, root))
        return not split_files(folder, found, "train")
    return False


def _npz_part(path: Path, names: tuple[tuple[str, ...], ...]) -> Decoded:
    arrays, classes = npz_arrays(path, names)
    pictures, numbers = (arrays[keys[0]] for keys in names)
    images, labels = channels_first(pictures, str(path)), checked_labels(str(path), numbers, classes, names[1][0])
    if not len(labels):
        raise InputError(f"{path}: holds no images; add some")
    if len(images) != len(labels):
        raise InputError(f"{path}: {len(images):,} images, {len(labels):,} labels; there must be one label for each")
    return Decoded(frozen(images), labels, images[:0], labels[:0], classes or numbers_upto(labels))


def _given_normalisation(name: str, channels: int) -> Normalisation:
    """Mean and deviation in an ``.npz`` file; without them, pixels are scaled to -1 to 1."""
    kind, _, place = name.partition(":")
    mean = std = (MIDDLE,) * channels
    if kind == "npz":
        with opened_npz(Path(place)) as file:
            if "mean" in file and "std" in file:
                mean, std = (tuple(plain_array(file, key).astype(float).ravel().tolist()) for key in ("mean", "std"))
    if len(mean) != channels or len(std) != channels or not np.isfinite([*mean, *std]).all() or min(std) <= 0:
        raise InputError(f"{place}: mean and std must be {channels} finite numbers each, for pixels from 0 to 1")
    return mean, std


def _parquet_files(base: Path, split: str) -> tuple[Path, list[Path]]:
    """A folder and its Parquet files of one part; all of them if neither files nor folders are named for parts."""
    folder, found = _all_parquet_files(base)
    files = split_files(folder, found, split) if split == "train" else files_for_testing(folder, found)
    if files:
        return folder, files
    if len(found) == 1:
        names_parts = any(split_files(folder, found, each) for each in ("train", *TEST_NAMES))
    else:  # also in a way that is not read, such as training-0.parquet
        words = (word for path in found for word in path.relative_to(folder).parts)
        names_parts = any(word.lower().startswith(("train", "test", "val")) for word in words)
    if names_parts or not found:
        raise InputError(f"{base}: no Parquet files of a {split} part; give them names such as {split}-0.parquet")
    return folder, found


def _all_parquet_files(base: Path) -> tuple[Path, list[Path]]:
    """A folder and the Parquet files below it; for one file, its own folder."""
    if not base.exists():
        raise InputError(f"{base}: no such file or folder")
    return (base, sorted(base.rglob("*.parquet"))) if base.is_dir() else (base.parent, [base])
