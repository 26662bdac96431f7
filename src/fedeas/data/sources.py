"""Load datasets by name: images and labels as arrays.

``digits``, ``cifar10``, ``cifar100`` and ``fashion-mnist`` are known by name; ``hub:owner/name``, ``folder:DIR``,
``npz:FILE`` and ``parquet:DIR`` name all others, and ``python:module:name`` a user's own function. Encoded images are
decoded once, into a cache.

One place may hold one part alone: a client its own samples, perhaps without some classes, and a server the test set. A
server without training data gets the normalisation of pixels from its ``.npz`` file (`mean` and `std`), or scales
pixels to -1 to 1.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fedeas.core.arrays import frozen, frozen_integers
from fedeas.core.errors import FedEASError, InputError, extra_for
from fedeas.core.files import PathLike
from fedeas.core.spec import PREFIX, failed, find_callable, read_call
from fedeas.core.weight_files import explained
from fedeas.data.dataset import MIDDLE, Dataset, checked_classes, numbers_upto, share_of
from fedeas.data.folders import FolderSource
from fedeas.data.names import HUB_REPOSITORIES, NAMES, checked_name
from fedeas.data.npz import NPZ_NAMES, NpzSource, dataset_of_arrays
from fedeas.data.parquet import ParquetSource

DIGITS_FILE = "datasets/data/digits.csv.gz"
DIGITS_SEED = 0

Source = NpzSource | FolderSource | ParquetSource

SOURCES: dict[str, type[Source]] = {"folder": FolderSource, "npz": NpzSource, "parquet": ParquetSource}
"""What reads each kind of place; the same kinds as `fedeas.data.names.PLACES`."""


def load_dataset(name: str, root: PathLike | None = None) -> Dataset:
    """Load the dataset of this name, which is one of `NAMES`.

    `root` is a folder to use instead of the Hugging Face Hub, with Parquet files below ``cifar10/``, ``cifar100/``,
    ``fashion-mnist/`` or ``owner/name/``.
    """
    source = source_of(name, root)
    if source is not None:
        return source.whole()
    if name == "digits":
        with extra_for("the dataset digits"):
            package = find_spec("sklearn")
            if package is None or package.origin is None:
                raise ModuleNotFoundError(name="sklearn")
        return _digits(Path(package.origin).parent / DIGITS_FILE)  # importing scikit-learn would take seconds
    # A function of the user's that gives a `Dataset`, or a dictionary of arrays named as in an ``.npz`` file.
    name = checked_name(name)
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
    return dataset_of_arrays(name, call.name, arrays, None if classes is None else checked_classes(call.name, classes))


def load_own(name: str, root: PathLike | None = None) -> Dataset:
    """Load one client's data, like `load_dataset`, but no test part is needed, and not every class."""
    source = source_of(name, root)
    return load_dataset(name) if source is None else source.part("train")


def load_test_part(name: str, root: PathLike | None = None) -> Dataset:
    """Load a server's test set; of a training part that is there, too, only the normalisation is kept."""
    source = source_of(name, root)
    alone = None if source is None or source.has_training_part() else source.part("test")
    if alone is None:
        data = load_dataset(name, root)
        images, labels, normalisation = data.test_images, data.test_labels, (data.channel_mean, data.channel_std)
    else:
        data, middle = alone, (MIDDLE,) * alone.shape[0]
        images, labels, normalisation = alone.images, alone.labels, alone.normalisation or (middle, middle)
    return replace(
        data, images=images[:0], labels=labels[:0], test_images=images, test_labels=labels, clients=None, owners=None,
        sample_names=(), notes=(), normalisation=normalisation,
    )  # fmt: skip


def as_in_run(own: Dataset, classes: tuple[str, ...], shape: tuple[int, int, int]) -> Dataset:
    """A client's own data with the classes and the channels of its run.

    Grey images are repeated in each channel of a run with colour images.
    """
    known = classes if own.has_class_names else tuple(map(str, range(len(classes))))
    if unknown := sorted(set(own.classes) - set(known)):
        theirs = f"the run's classes, which are {', '.join(classes)}"
        raise InputError(f"{own.name}: class {', '.join(unknown)} is not one of {theirs}; rename or remove its images")
    labels = frozen_integers(np.array([known.index(name) for name in own.classes])[own.labels])
    if own.shape[1:] != shape[1:] or own.shape[0] > shape[0]:
        shapes = f"{own.shape}, the run's {shape} (channels, height, width)"
        raise InputError(f"{own.name}: images are {shapes}; resize or convert them")
    return replace(own, images=np.broadcast_to(own.images, (len(own.images), *shape)), labels=labels, classes=classes)


def misleading_label(classes: tuple[str, ...]) -> int | None:
    """The first label whose number is the name of another class; None if there is none.

    Folders of numbers are in the order of text: label 2 is their third class, which is not the class "2".

    >>> misleading_label(("0", "1", "10", "2"))
    2
    """
    names = set(classes)
    return next((place for place, name in enumerate(classes) if str(place) in names - {name}), None)


def source_of(name: str, root: PathLike | None) -> Source | None:
    """Where the images of a dataset are; None for digits and a user's own function.

    Datasets on the Hub are fetched if there is no `root`.
    """
    known = checked_name(name)
    kind, _, place = known.partition(":")
    if kind in SOURCES:
        return SOURCES[kind](known, Path(place))
    if known == "digits" or known.startswith(PREFIX):
        return None
    below = known.removeprefix("hub:")
    repository = HUB_REPOSITORIES.get(known, below)
    if root is not None:
        folder = Path(root) / below
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder; put the Parquet files of {repository} there")
        return ParquetSource(known, folder)
    with extra_for("a download from the Hub"):
        from huggingface_hub import snapshot_download
    with explained(f"{repository}:", f"give a folder that holds {below}/*.parquet (root, --data-root)"):
        found = snapshot_download(repository, repo_type="dataset", allow_patterns=["*.parquet"])
    return ParquetSource(known, Path(found))


@cache  # small, and every client of a federation on one machine loads it
def _digits(file: Path) -> Dataset:
    """scikit-learn's digits from its file; they have no official parts: each class is split by a seed."""
    table = np.loadtxt(file, delimiter=",")
    *values, labels = table.T
    images = np.rint(np.transpose(values) * 255 / 16).astype(np.uint8).reshape(-1, 1, 8, 8)
    rng, is_test = np.random.default_rng(DIGITS_SEED), np.zeros(len(labels), bool)
    for label in range(10):
        members = rng.permutation(np.flatnonzero(labels == label))
        is_test[members[: share_of(members.size)]] = True
    labels = labels.astype(np.int64)
    train, test = ((frozen(images[part]), frozen(labels[part])) for part in (~is_test, is_test))
    return Dataset("digits", *train, *test, numbers_upto(labels))
