"""Read the synthetic images that runs trained on from the bank beside them; none is generated or selected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas.core.arrays import IntArray
from fedeas.core.errors import FedEASError, InputError
from fedeas.data.known import KNOWN
from fedeas.generators.bank import Bank
from fedeas.generators.bank.addresses import Addresses
from fedeas.generators.bank.slots import Disk, Header
from fedeas.generators.base import image_index
from fedeas.generators.kinds import Shared
from fedeas.generators.pools import numbers_in_pool, pool_fingerprint
from fedeas.generators.quality.grid import COLUMNS
from fedeas.generators.registry import parse_generator
from fedeas.runs.store import Run, UsedGenerator, trained
from fedeas.views.report.methods import MethodRuns, RunSnapshot, grouped_by_method, read_snapshot

MOST_CLASSES = 20  # rows of a grid: more would only make the page larger
MOST_BYTES = 2**24  # of an image; a header that claims more is damaged

Images = NDArray[np.uint8]


class Row(NamedTuple):
    """A class, by its name if that is known, and its first images."""

    name: str
    images: Images


class Samples(NamedTuple):
    """The images of one generator that some methods trained on, as far as they are still in the bank."""

    about: UsedGenerator
    methods: list[MethodRuns]
    trained_on: int
    """Number of different images of all classes."""
    classes: int
    """Number of classes that have images."""
    rows: list[Row]
    """Empty if the images are no longer in the bank."""


def samples_of(methods: Sequence[MethodRuns]) -> list[Samples]:
    """The samples of each generator whose images these runs trained on, if the runs recorded it."""
    generators: dict[str, UsedGenerator] = {}
    users: dict[str, dict[MethodRuns, list[RunSnapshot]]] = {}
    for method in methods:
        for each in method.runs:
            if (about := each.run.generator()) is not None and each.planned is not None:
                generators.setdefault(about.fingerprint, about)  # one generator may have several specs
                users.setdefault(about.fingerprint, {}).setdefault(method, []).append(each)
    found = [_samples(generators[fingerprint], own) for fingerprint, own in users.items()]
    return [each for each in found if each.trained_on]


def sample_grid(run: Run) -> Images | None:
    """The first images of each class that a run trained on, as one picture (height, width, channels).

    None if it trained on none, or if they are no longer in the bank beside it.
    """
    found = samples_of(grouped_by_method([read_snapshot(run)]))
    rows = [row.images[:COLUMNS] for row in found[0].rows] if found else []
    if not rows:
        return None
    padded = [np.pad(row, ((0, COLUMNS - len(row)), (0, 0), (0, 0), (0, 0))) for row in rows]
    grid = np.stack(padded).transpose(0, 3, 1, 4, 2)  # rows, height, columns, width, channels
    return grid.reshape(grid.shape[0] * grid.shape[1], -1, grid.shape[4])


def _samples(about: UsedGenerator, users: dict[MethodRuns, list[RunSnapshot]]) -> Samples:
    runs = [each for own in users.values() for each in own]
    wanted, pool = _trained_on(runs), _pool(runs[0])
    labels = np.flatnonzero(wanted.any(axis=0)).tolist()
    different = int(wanted.sum()) if pool is None else sum(_indices(wanted[:, label], pool).size for label in labels)
    # A generator's image of an address is the same in all banks, so that any bank can be read.
    banks = dict.fromkeys(each.run.path.resolve().parent / ".bank" for each in runs)
    shown = {label: wanted[:, label] for label in labels[:MOST_CLASSES]}
    kept = next(filter(None, (_read(bank, about, pool, wanted.shape[1], shown) for bank in banks)), {})
    names = class_names(runs, wanted.shape[1])
    rows = [Row(names[label], images) for label, images in kept.items()]
    return Samples(about, list(users), different, len(labels), rows)


def _pool(each: RunSnapshot) -> int | None:
    """The size of the pool that all clients of a run share, 0 if that is open; None if each has images of its own."""
    settings = parse_generator(each.run.config.generator)
    return settings.each if isinstance(settings, Shared) else None


def _trained_on(runs: Iterable[RunSnapshot]) -> IntArray:
    """Number of images of each client and class that any run trained on; clients that never took part have none."""
    taken = [_taken(each) for each in runs]
    clients, classes = (max(table.shape[axis] for table in taken) for axis in (0, 1))
    most = np.zeros((clients, classes), dtype=np.int64)
    for table in taken:
        part = most[: table.shape[0], : table.shape[1]]
        np.maximum(part, table, out=part)
    return most


def _taken(each: RunSnapshot) -> IntArray:
    assert each.planned is not None
    plan = each.planned[1].n
    took_part = {client for record in each.rounds for client in trained(record)}
    return np.where(np.isin(np.arange(len(plan)), list(took_part))[:, None], plan, 0)


def class_names(runs: Iterable[RunSnapshot], num_classes: int) -> list[str]:
    """Names of the classes: those of the label counts or of the dataset, if all runs agree on them, else numbers."""
    found: set[tuple[str, ...]] = set()
    for each in runs:
        dataset = each.run.config.data.dataset
        given = each.planned[0].classes if each.planned is not None else None
        found.add(tuple(given or (KNOWN[dataset].classes if dataset in KNOWN else ())))
    names = found.pop() if len(found) == 1 else ()
    return list(names) if len(names) == num_classes else [str(label) for label in range(num_classes)]


def _read(
    bank: Path, about: UsedGenerator, pool: int | None, num_classes: int, wanted: dict[int, IntArray]
) -> dict[int, Images]:
    """The first undamaged images of these classes; empty if the bank is missing or unusable."""
    try:
        header = _header(bank, about.fingerprint, pool)
        if header.num_classes != num_classes or header.shape[0] not in (1, 3) or prod(header.shape) > MOST_BYTES:
            return {}
        disk = Disk(bank, header)
        rows = {label: _first_good(disk, label, _indices(clients, pool)) for label, clients in wanted.items()}
    except (FedEASError, OSError):
        return {}
    return {label: images for label, images in rows.items() if len(images)}


def _header(bank: Path, fingerprint: str, pool: int | None) -> Header:
    """The header of a run's images in the bank, which keeps those of a pool under the generator that makes them."""
    for name in Bank(bank).names():
        with suppress(InputError):  # the header of other images may be damaged
            header = Header.read(bank / name)
            own = header.fingerprint if pool is None else pool_fingerprint(header.fingerprint, pool)
            if own == fingerprint:
                return header
    raise InputError(f"{bank}: holds images of other generators only")


def _indices(wanted: IntArray, pool: int | None) -> IntArray:
    """Indices of the different images of a class, in the order of clients, or of their numbers in a pool."""
    index = np.concatenate([image_index(client, count) for client, count in enumerate(wanted.tolist())])
    return index if pool is None else np.unique(numbers_in_pool(index, pool))


def _first_good(disk: Disk, label: int, index: IntArray) -> Images:
    """The first undamaged images of a class."""
    found = np.empty((0, disk.pixels), dtype=np.uint8)
    for start in range(0, index.size, COLUMNS):
        part = index[start : start + COLUMNS]
        images = np.empty((part.size, disk.pixels), dtype=np.uint8)
        good = disk.read(Addresses(np.full(part.size, label), part), images, np.arange(part.size))
        found = np.concatenate([found, images[good]])[:COLUMNS]
        if len(found) == COLUMNS:
            break
    return found.reshape(-1, *disk.header.shape)
