"""Read the synthetic images that runs trained on from the bank beside them; none is generated or selected."""

import base64
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas.core.arrays import IntArray
from fedeas.core.errors import FedEASError, InputError
from fedeas.generators.bank import Bank
from fedeas.generators.base import image_index
from fedeas.generators.kinds import Shared, parse_generator
from fedeas.generators.pools import numbers_in_pool, pool_fingerprint
from fedeas.generators.quality.grid import COLUMNS, strip
from fedeas.generators.slots import Addresses, Disk, Header
from fedeas.runs.store import Run, UsedGenerator, trained
from fedeas.views.methods import MethodRuns, RunSnapshot, class_names, grouped_by_method, read_snapshot

MOST_CLASSES = 20  # rows of a grid: more would only make the page larger
MOST_BYTES = 2**24  # of an image; a header that claims more is damaged
TILE = 56  # approximate size of an image in a grid, in pixels of the screen

Images = NDArray[np.uint8]


class Row(NamedTuple):
    """A class, by its name if that is known, and its first images."""

    name: str
    images: Images

    @property
    def strip(self) -> dict[str, str]:
        """The images side by side, enlarged by a whole number if there is room, so that pixels are equal squares."""
        png, width, height = strip(self.images)
        scale = max(1, round(TILE / height))
        source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
        return {"source": source, "look": f"width:{scale * width}px;border-bottom:min({scale}px,1vw) solid #fff"}


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
    users: dict[str, list[tuple[UsedGenerator, MethodRuns, RunSnapshot]]] = {}  # one generator may have several specs
    for method in methods:
        for each in method.runs:
            if (about := each.run.generator()) is not None and each.planned is not None:
                users.setdefault(about.fingerprint, []).append((about, method, each))
    samples = []
    for own in users.values():
        about, runs = own[0][0], [run for _, _, run in own]
        # Images of each client and class that any run trained on; clients that never took part have none.
        plans = [each.planned[1].n for each in runs if each.planned is not None]
        wanted = np.zeros([max(plan.shape[axis] for plan in plans) for axis in (0, 1)], dtype=np.int64)
        for run, plan in zip(runs, plans, strict=True):
            took_part = list({client for record in run.rounds for client in trained(record) if client < len(plan)})
            clients, classes = wanted[: len(plan), : plan.shape[1]], plan[took_part]
            clients[took_part] = np.maximum(clients[took_part], classes)
        settings = parse_generator(runs[0].run.config.generator)
        pool = settings.each if isinstance(settings, Shared) else None  # of all clients; 0 if its size is open
        indices = {}
        for label in np.flatnonzero(wanted.any(axis=0)).tolist():
            parts = [image_index(client, count) for client, count in enumerate(wanted[:, label].tolist())]
            index = np.concatenate(parts)  # in the order of clients, or of their numbers in a pool
            indices[label] = index if pool is None else np.unique(numbers_in_pool(index, pool))
        # A generator's image of an address is the same in all banks, so that any bank can be read.
        banks = dict.fromkeys(run.run.path.resolve().parent / ".bank" for run in runs)
        shown, names = dict(islice(indices.items(), MOST_CLASSES)), class_names(runs, wanted.shape[1])
        kept = next(filter(None, (_kept(bank, about, pool, len(names), shown) for bank in banks)), {})
        rows = [Row(names[label], images) for label, images in kept.items()]
        if different := sum(map(len, indices.values())):
            samples.append(
                Samples(about, list(dict.fromkeys(each for _, each, _ in own)), different, len(indices), rows)
            )
    return samples


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


def _kept(
    bank: Path, about: UsedGenerator, pool: int | None, num_classes: int, wanted: dict[int, IntArray]
) -> dict[int, Images]:
    """The first undamaged images of these classes; empty if the bank is missing or unusable."""
    with suppress(FedEASError, OSError):
        for name in Bank(bank).names():
            with suppress(InputError):  # the header of other images may be damaged
                header = Header.read(bank / name)
                # The bank keeps the images of a pool under the generator that makes them.
                own = header.fingerprint if pool is None else pool_fingerprint(header.fingerprint, pool)
                usable = header.shape[0] in (1, 3) and prod(header.shape) <= MOST_BYTES
                if own == about.fingerprint and header.num_classes == num_classes and usable:
                    disk = Disk(bank, header)
                    found = {label: _first_good(disk, label, index) for label, index in wanted.items()}
                    return {label: images for label, images in found.items() if len(images)}
    return {}


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
