"""Datasets of which one place holds one part alone: a client its own samples, a server the test set.

A client may lack classes. A server without training data gets the normalisation of pixels from its ``.npz`` file
(`mean` and `std`), or scales pixels to -1 to 1.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import numpy as np

from fedeas.core.arrays import frozen, frozen_integers
from fedeas.core.files import PathLike
from fedeas.core.own_code import PREFIX
from fedeas.core.records import plain_array
from fedeas.data.cache import Decoded, Encoded, fingerprint, load_decoded
from fedeas.data.checks import checked_labels, numbers_upto
from fedeas.data.folders import TEST_NAMES, ImageFiles, find_part, labels_of
from fedeas.data.parquet import files_for_testing, read_parquet, split_files
from fedeas.data.sources import (
    NPZ_NAMES,
    Dataset,
    Normalisation,
    channels_first,
    checked_name,
    load_dataset,
    npz_arrays,
    opened_npz,
    parquet_folder,
)
from fedeas.errors import InputError

MIDDLE = 0.5
"""Mean and deviation of pixels that are scaled to -1 to 1."""


def load_own(name: str, root: PathLike | None = None) -> Dataset:
    """Load one client's data, like `load_dataset`, but no test part is needed, and not every class."""
    name = checked_name(name)
    if name == "digits" or name.startswith(PREFIX):
        return load_dataset(name, root)
    return Dataset(name, *_part(name, root, "train").parts)


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
        return _folder_part(name, Path(place), ("train",) if part == "train" else TEST_NAMES)
    return _parquet_part(name, parquet_folder(name, root), part)


def _lacks_training_part(name: str, root: PathLike | None) -> bool:
    kind, _, place = name.partition(":")
    if kind == "npz":
        with opened_npz(Path(place)) as file:
            return not any(key in file for key in NPZ_NAMES[0])
    if kind == "folder":
        return not (Path(place) / "train").is_dir()
    if kind in ("parquet", "hub"):
        folder, found = _parquet_files(parquet_folder(name, root))
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


def _folder_part(name: str, base: Path, names: tuple[str, ...]) -> Decoded:
    files, classes = find_part(base, names)
    labels = frozen_integers(labels_of(files, classes))
    identity = json.dumps([str(base.resolve()), classes, "one part"])
    encoded = Encoded(ImageFiles(files), labels, ImageFiles(()), labels[:0], classes)
    return load_decoded(name, fingerprint(identity, base, files), lambda: encoded)


def _parquet_part(name: str, base: Path, split: str) -> Decoded:
    folder, found = _parquet_files(base)
    files = split_files(folder, found, split) if split == "train" else files_for_testing(folder, found)
    if not files and not _names_parts(folder, found):
        files = found  # all are of the part that is asked for
    if not files:
        raise InputError(f"{base}: no Parquet files of a {split} part; give them names such as {split}-0.parquet")
    identity = f"{folder.resolve()} one part"

    def read() -> Encoded:
        encoded = read_parquet(files, [])
        if not len(encoded.labels):
            raise InputError(f"{base}: holds no images; add some")
        return encoded

    return load_decoded(name, fingerprint(identity, folder, files), read)


def _names_parts(folder: Path, found: list[Path]) -> bool:
    """Whether files, or folders that hold them, are named for parts, also in a way that is not read (``training``)."""
    if len(found) == 1:
        return any(split_files(folder, found, each) for each in ("train", *TEST_NAMES))
    words = (word for path in found for word in path.relative_to(folder).parts)
    return any(word.lower().startswith(("train", "test", "val")) for word in words)


def _parquet_files(base: Path) -> tuple[Path, list[Path]]:
    """A folder and the Parquet files below it; for one file, its own folder."""
    if not base.exists():
        raise InputError(f"{base}: no such file or folder")
    return (base, sorted(base.rglob("*.parquet"))) if base.is_dir() else (base.parent, [base])
