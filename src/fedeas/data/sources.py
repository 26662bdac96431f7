"""Load datasets by name: images and labels as arrays.

``digits``, ``cifar10``, ``cifar100`` and ``fashion-mnist`` are known by name; ``hub:owner/name``, ``folder:DIR``,
``npz:FILE`` and ``parquet:DIR`` name all others, and ``python:module:name`` a user's own function. Encoded images are
decoded once, into a cache.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from fedeas.core.arrays import (
    BLOCK_CELLS,
    ByteArray,
    IntArray,
    digest_of_arrays,
    for_row_blocks,
    frozen,
    frozen_integers,
)
from fedeas.core.errors import FedEASError, InputError
from fedeas.core.extras import extra_for
from fedeas.core.files import PathLike
from fedeas.core.foreign_text import printable
from fedeas.core.hub import explained
from fedeas.core.own_code import PREFIX, failed, find_callable
from fedeas.core.provenance import DatasetParts
from fedeas.core.records import DAMAGED_ARRAYS, checked_archive, plain_array
from fedeas.core.spec import read_call
from fedeas.data.cache import Encoded, fingerprint, load_decoded
from fedeas.data.checks import (
    check_parts,
    checked_classes,
    checked_labels,
    count_repeated,
    notes_on_repeated,
    numbers_upto,
    pixel_hash,
)
from fedeas.data.folders import ImageFiles, find_images, share_of
from fedeas.data.names import HUB_REPOSITORIES, NAMES, checked_name
from fedeas.data.parquet import files_for_testing, read_parquet, split_files

DIGITS_FILE = "datasets/data/digits.csv.gz"
DIGITS_SEED = 0
DIGITS_TEST_SHARE = 0.2

NPZ_NAMES = (("images", "x_train"), ("labels", "y_train"), ("test_images", "x_test"), ("test_labels", "y_test"))


Normalisation = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation of each channel, with pixels from 0 to 1."""


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
        return tuple(mean for mean, _ in self._moments)

    @property
    def channel_std(self) -> tuple[float, ...]:
        """Standard deviation of each channel over the training part, with pixels from 0 to 1."""
        return tuple(std for _, std in self._moments)

    @cached_property
    def _moments(self) -> list[tuple[float, float]]:
        """Mean and deviation from sums of whole numbers, which are exact in any order of the blocks."""
        if self.normalisation is not None:
            return list(zip(*self.normalisation, strict=True))
        images, sums = np.asarray(self.images), []

        def add(rows: slice) -> None:
            pixels = images[rows].astype(np.float64).reshape(-1, self.shape[0], math.prod(self.shape[1:]))
            sums.append([pixels.sum(axis=(0, 2)), np.einsum("ncp,ncp->c", pixels, pixels)])

        for_row_blocks(add, len(images), math.prod(self.shape), 8 * BLOCK_CELLS)
        count = images.size // self.shape[0]
        pairs = np.sum(sums, axis=0).astype(np.int64).T.tolist()
        return [(s / count / 255, math.sqrt(count * squares - s * s) / count / 255) for s, squares in pairs]


def load_dataset(name: str, root: PathLike | None = None) -> Dataset:
    """Load the dataset of this name, which is one of `NAMES`.

    `root` is a folder to use instead of the Hugging Face Hub, with Parquet files below ``cifar10/``, ``cifar100/``,
    ``fashion-mnist/`` or ``owner/name/``.
    """
    name = checked_name(name)
    kind, _, place = name.partition(":")
    if name.startswith(PREFIX):
        return _from_code(name)
    if name == "digits":
        with extra_for("the dataset digits"):
            package = find_spec("sklearn")
            if package is None or package.origin is None:
                raise ModuleNotFoundError(name="sklearn")
        file = Path(package.origin).parent / DIGITS_FILE
        return _digits(file if file.exists() else None)
    if kind == "folder":
        return _from_folder(name, Path(place))
    return _from_npz(name, Path(place)) if kind == "npz" else _from_parquet(name, parquet_folder(name, root))


@cache  # small, and every client of a federation on one machine loads it
def _digits(file: Path | None) -> Dataset:
    """scikit-learn's digits, if possible from its file; they have no official parts: each class is split by a seed."""
    if file is not None:  # importing scikit-learn takes seconds
        table = np.loadtxt(file, delimiter=",")
    else:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped,import-not-found,unused-ignore]

        table = np.column_stack(load_digits(return_X_y=True))
    *values, labels = table.T
    images = np.rint(np.transpose(values) * 255 / 16).astype(np.uint8).reshape(-1, 1, 8, 8)
    rng, is_test = np.random.default_rng(DIGITS_SEED), np.zeros(len(labels), bool)
    for label in range(10):
        members = rng.permutation(np.flatnonzero(labels == label))
        is_test[members[: round(DIGITS_TEST_SHARE * members.size)]] = True
    labels = labels.astype(np.int64)
    classes = numbers_upto(labels)
    train, test = np.flatnonzero(~is_test), np.flatnonzero(is_test)
    pixels, test_pixels = frozen(images[train]), frozen(images[test])
    return Dataset("digits", pixels, frozen(labels[train]), test_pixels, frozen(labels[test]), classes)


def _from_npz(name: str, path: Path) -> Dataset:
    with opened_npz(path) as file:
        tested = any(key in file for keys in NPZ_NAMES[2:] for key in keys)
    arrays, classes = npz_arrays(path, NPZ_NAMES if tested else NPZ_NAMES[:2])
    if tested:
        return _from_arrays(name, str(path), arrays, classes)
    images, labels = arrays["images"], arrays["labels"]
    channels_first(images, f"{path}: images")  # refuse them while the message can show the shape in the file
    is_test = _set_aside(path, images, checked_labels(str(path), labels, classes, "labels"))
    parts = {"images": images[~is_test], "labels": labels[~is_test]}
    parts |= {"test_images": images[is_test], "test_labels": labels[is_test]}
    note = f"no test part: {is_test.sum():,} of {len(labels):,} images are for testing"
    rows, test_rows = (tuple(map(str, np.flatnonzero(part).tolist())) for part in (~is_test, is_test))
    found = _from_arrays(name, str(path), parts, classes)
    return replace(found, notes=(note, *found.notes), sample_names=rows, test_names=test_rows)


def _set_aside(path: Path, images: NDArray[Any], labels: IntArray) -> NDArray[np.bool_]:
    """Which images are for testing: a share of each class."""
    if len(images) != len(labels):
        raise InputError(f"{path}: {len(images):,} images but {len(labels):,} labels; there must be one for each")
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


def _from_code(name: str) -> Dataset:
    """A function of the user's that gives a `Dataset`, or a dictionary of arrays named as in an ``.npz`` file."""
    call = read_call(name, NAMES, "dataset")
    try:
        given = find_callable(call.name, "dataset")(**call.keywords)
    except FedEASError:
        raise
    except Exception as error:
        raise failed(call.name, error) from error
    if isinstance(given, Dataset):
        return replace(given, name=name)
    wanted = [keys[0] for keys in NPZ_NAMES]
    if not isinstance(given, Mapping) or not set(wanted) <= set(given):
        raise InputError(f"{call.name} must give a dictionary with the arrays {', '.join(wanted)}")
    classes = given.get("classes")
    arrays = {key: np.asarray(given[key]) for key in wanted}
    return _from_arrays(name, call.name, arrays, None if classes is None else checked_classes(call.name, classes))


def _from_arrays(name: str, path: str, arrays: dict[str, NDArray[Any]], classes: tuple[str, ...] | None) -> Dataset:
    """Training and test part, checked, from whatever `path` names in errors."""
    named = bool(classes)
    images, test_images = (channels_first(arrays[key], f"{path}: {key}") for key in ("images", "test_images"))
    labels = checked_labels(path, arrays["labels"], classes, "labels")
    classes = classes or numbers_upto(labels)
    test_labels = checked_labels(path, arrays["test_labels"], classes, "test_labels")
    check_parts(path, labels, test_labels, classes)
    for part, count, wanted in (("training", images, labels), ("test", test_images, test_labels)):
        if len(count) != len(wanted):
            raise InputError(f"{path}: {len(count):,} images but {len(wanted):,} labels in the {part} part")
    if images.shape[1:] != test_images.shape[1:]:
        shapes = [" x ".join(map(str, part.shape[1:])) for part in (images, test_images)]
        raise InputError(f"{path}: training images are {shapes[0]}, test images {shapes[1]}; bring all to one size")
    notes = notes_on_repeated(count_repeated(images, test_images), len(test_images))
    parts = frozen(images), labels, frozen(test_images), test_labels
    return Dataset(name, *parts, classes, notes=notes, has_class_names=named)


def npz_arrays(
    path: Path, names: tuple[tuple[str, ...], ...]
) -> tuple[dict[str, NDArray[Any]], tuple[str, ...] | None]:
    """The arrays of an ``.npz`` file, each under one of its names, and the names of the classes if there are any."""
    with opened_npz(path) as file:
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
def opened_npz(path: Path) -> Iterator[NpzFile]:
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


def _from_folder(name: str, base: Path) -> Dataset:
    tree = find_images(base)

    def read() -> Encoded:
        labels, test_labels = (frozen_integers(tree.labels(part)) for part in (tree.train, tree.test))
        check_parts(str(base), labels, test_labels, tree.classes)
        return Encoded(ImageFiles(tree.train), labels, ImageFiles(tree.test), test_labels, tree.classes)

    # The folder's path belongs to its identity, since files of two folders can agree in names, sizes and times.
    # Its classes do, too, since a class without images has no file; so does which images are for testing.
    aside = [tree.names(tree.test)] if tree.test_is_set_aside else []
    identity = json.dumps([str(base.resolve()), tree.classes, *aside])
    decoded = load_decoded(name, fingerprint(identity, base, [*tree.train, *tree.test]), read)
    owners = tree.owners
    return Dataset(
        name,
        *decoded.parts,
        clients=tree.clients,
        owners=None if owners is None else frozen_integers(owners),
        sample_names=tree.names(tree.train),
        test_names=tree.names(tree.test),
        notes=(*tree.notes, *notes_on_repeated(decoded.repeated, len(tree.test))),
    )


def parquet_folder(name: str, root: PathLike | None) -> Path:
    """The folder with the Parquet files of a dataset; they are fetched if it is on the Hub."""
    kind, _, place = name.partition(":")
    if kind == "parquet":
        return Path(place)
    below = place if kind == "hub" else name
    repository = HUB_REPOSITORIES.get(name, below)
    if root is not None:
        folder = Path(root) / below
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder; put the Parquet files of {repository} there")
        return folder
    with extra_for("a download from the Hub"):
        from huggingface_hub import snapshot_download
    with explained(f"{repository}:", f"give a folder that holds {below}/*.parquet (root, --data-root)"):
        found = snapshot_download(repository, repo_type="dataset", allow_patterns=["*.parquet"])
    return Path(found)


def _from_parquet(name: str, base: Path) -> Dataset:
    if not base.is_dir():
        raise InputError(f"{base}: no such folder; give one that holds train-*.parquet and test-*.parquet")
    found = sorted(base.rglob("*.parquet"))
    train, test = split_files(base, found, "train"), files_for_testing(base, found)
    if not train or not test:
        missing = "test" if train else "train"
        raise InputError(f"{base}: no {missing} split; there must be a file such as {missing}-00000-of-00001.parquet")

    def read() -> Encoded:
        encoded = read_parquet(train, test)
        check_parts(str(base), encoded.labels, encoded.test_labels, encoded.classes)
        return encoded

    decoded = load_decoded(name, fingerprint(name, base, [*train, *test]), read)
    return Dataset(name, *decoded.parts, notes=notes_on_repeated(decoded.repeated, len(decoded.test_labels)))
