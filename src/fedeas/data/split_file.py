"""Read who holds which sample from a file: a table of samples and clients, or what ``fedeas partition --out`` wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedeas.core.arrays import IntArray
from fedeas.core.errors import InputError
from fedeas.core.foreign_text import in_one_form
from fedeas.data.dataset import Dataset
from fedeas.data.partition import Partition, Recipe
from fedeas.planning.columns import Column
from fedeas.planning.tables import format_of, read_columns

FORMATS = (".csv", ".parquet", ".npz")
TESTING, UNKNOWN = -1, -2  # in place of the number of a training sample

Notes = tuple[str, ...]
"""What a user should know of how a file was read."""


def read_split(path: str, dataset: Dataset) -> tuple[Partition, Notes]:
    """The split of a dataset's training part that a file describes.

    A table has a column of clients and one of samples: numbers of training samples from 0 on, or names. Those of images
    in a folder are their paths below it; those of a file without a test part are the numbers of its rows. Samples that
    the table does not name go to no client.
    """
    if format_of(path, *FORMATS) == ".npz":
        notes: Notes = ()
        saved = Partition.load(path)
        if not np.array_equal(saved.labels, dataset.labels):
            made = f"made for {saved.labels.size:,} other samples; {dataset.name} gives clients {dataset.labels.size:,}"
            raise InputError(f"{path}: {made}; make it again with `fedeas partition {dataset.name} --out {path}`")
        held = np.concatenate(saved.indices)
        if np.unique(held).size < held.size:
            raise InputError(f"{path}: some sample is with two clients; give each to one")
        split = replace(saved, recipe={**saved.recipe, "file": path})
    else:
        split, notes = _table(path, dataset)
    empty = next((number for number, part in enumerate(split.indices) if not part.size), None)
    if empty is not None:
        name = str(empty) if split.clients is None else split.clients[empty]
        raise InputError(f"{path}: client {name!r} has no training sample; give it some or remove it")
    return split, notes


def _table(path: str, dataset: Dataset) -> tuple[Partition, Notes]:
    columns = read_columns(path)
    clients = [values for name, values in columns.items() if Column(name).names_clients()]
    samples = [values for name, values in columns.items() if Column(name).names_samples()]
    if len(clients) != 1 or len(samples) != 1:
        what = "client" if len(clients) != 1 else "sample"
        raise InputError(f"{path}: needs one column client and one column sample; rename the {what} column")
    rows = _rows(path, samples[0], dataset)
    names, owners = np.unique(np.array(clients[0]), return_inverse=True)
    places = np.array(rows)
    indices = tuple(places[(owners == number) & (places >= 0)] for number in range(names.size))
    recipe = {"scheme": "file", "file": path, "clients": names.size}
    split = _of_training_parts(indices, dataset, recipe, tuple(map(str, names.tolist())))
    for_testing, all_samples = rows.count(TESTING), dataset.labels.size
    unnamed = all_samples - (len(rows) - for_testing)
    notes = [f"{path}: {for_testing:,} rows name test images, which go to no client"] if for_testing else []
    if unnamed:
        notes.append(f"{path}: {unnamed:,} of {all_samples:,} training samples are not named and go to no client")
    return split, tuple(notes)


def _rows(path: str, samples: Sequence[Any], dataset: Dataset) -> list[int]:
    """The training sample of each row, `TESTING` for a test image."""
    names, testing = ([*map(in_one_form, names)] for names in (dataset.sample_names, dataset.test_names))
    by_path = not all(map(str.isdigit, names))  # else by rows of a file, of which some are set aside for testing
    numbers = names if names and not by_path else map(str, range(dataset.labels.size))
    place = dict.fromkeys(testing, TESTING) | {number: row for row, number in enumerate(numbers)}
    if by_path:
        place |= {name.removeprefix("train/"): row for row, name in enumerate(names)}
        place |= {name: row for row, name in enumerate(names)}
    found = [place.get(str(sample), UNKNOWN) for sample in samples]
    seen: dict[int, int] = {}
    for row, number in enumerate(found):
        problem = ""
        if number == UNKNOWN:
            problem = f"is no training sample; give samples such as {next(reversed(place))!r}"
        elif number >= 0 and seen.setdefault(number, row) != row:
            problem = f"is in row {seen[number] + 1:,}, too; give each sample to one client"
        if problem:
            raise InputError(f"{path}: row {row + 1:,}: {samples[row]!r} {problem}")
    if not found:
        raise InputError(f"{path}: has no rows; name at least one sample")
    return found


def natural_split(dataset: Dataset) -> Partition:
    """The clients that the dataset comes with."""
    if dataset.owners is None or dataset.clients is None:
        raise InputError(
            f"{dataset.name} comes without clients; make it client/class/*.png, or split it with another "
            "partition.scheme or `fedeas partition`"
        )
    owners: IntArray = dataset.owners
    indices = tuple(np.flatnonzero(owners == number) for number in range(len(dataset.clients)))
    recipe = {"scheme": "natural", "clients": len(indices)}
    return _of_training_parts(indices, dataset, recipe, dataset.clients)


def _of_training_parts(
    indices: tuple[IntArray, ...], dataset: Dataset, recipe: Recipe, clients: tuple[str, ...]
) -> Partition:
    """The partition of a dataset whose clients hold no test samples."""
    nothing = tuple(part[:0] for part in indices)
    return Partition(indices, nothing, dataset.labels, dataset.num_classes, recipe, clients)
