"""Who holds which samples of a dataset: IID, Dirichlet, shards, an exact replay of the paper's, or as a file says.

A file is a table of samples and clients, or what ``fedeas partition --out`` wrote.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas.core.arrays import IntArray, digest_of_arrays, frozen_integers
from fedeas.core.errors import InputError
from fedeas.core.files import PathLike
from fedeas.core.foreign_text import in_one_form
from fedeas.core.records import checked_archive, damaged, read_arrays, write_arrays
from fedeas.data.dataset import MOST_EMPTY, Dataset
from fedeas.planning.columns import Column
from fedeas.planning.counts import LabelCounts
from fedeas.planning.tables import format_of, read_columns

Recipe = dict[str, Any]
Notes = tuple[str, ...]
"""What a user should know of how a file was read."""

SAVED = ("labels", "indices", "sizes", "test_indices", "test_sizes", "num_classes", "recipe")
NAMES = "clients"  # saved only where clients have names
PAPER_SEED = 42  # seed of the paper's partitions
MAX_DRAWS = 20_000  # the paper's hardest setting takes 10,826
MAX_DRAWN = 2 * 10**9  # samples, and clients of each class, in all draws of a split together
FIRST_DRAWS = 200  # tell whether more are worth their time
FORMATS = (".csv", ".parquet", ".npz")
TESTING, UNKNOWN = -1, -2  # in place of the number of a training sample


@dataclass(frozen=True, eq=False)
class Partition:
    """Index lists of the clients' samples in one labelled dataset, and the recipe that made them.

    The arrays are read-only, because the runs of a process share the paper's partition.
    """

    indices: tuple[IntArray, ...]
    test_indices: tuple[IntArray, ...]
    labels: IntArray = field(repr=False)
    num_classes: int
    recipe: Recipe
    clients: tuple[str, ...] | None = None
    """Names of the clients, if they have any."""

    def __post_init__(self) -> None:
        for name in ("indices", "test_indices"):
            object.__setattr__(self, name, tuple(map(frozen_integers, getattr(self, name))))
        object.__setattr__(self, "labels", frozen_integers(self.labels))

    @cached_property
    def counts(self) -> LabelCounts:
        """Label counts of the clients' training parts."""
        rows = [np.bincount(self.labels[part], minlength=self.num_classes) for part in self.indices]
        return LabelCounts(np.stack(rows), self.clients)

    @property
    def num_clients(self) -> int:
        """K."""
        return len(self.indices)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the index lists; it does not depend on the recipe."""
        return digest_of_arrays((*self.indices, *self.test_indices))

    def save(self, path: PathLike) -> None:
        """Write everything to one ``.npz`` file, whole or not at all."""
        arrays = {
            "labels": self.labels,
            "indices": np.concatenate(self.indices),
            "sizes": [part.size for part in self.indices],
            "test_indices": np.concatenate(self.test_indices),
            "test_sizes": [part.size for part in self.test_indices],
            "num_classes": self.num_classes,
            "recipe": json.dumps(self.recipe),
        }
        names = {} if self.clients is None else {NAMES: self.clients}
        write_arrays(path, **{name: np.array(values) for name, values in (arrays | names).items()})

    @staticmethod
    def load(path: PathLike) -> Partition:
        """Read a file of `save`."""
        remedy = "make it with `fedeas partition`"
        checked_archive(path)
        labels, indices, sizes, test_indices, test_sizes, num_classes, recipe, names = read_arrays(
            path, SAVED, remedy, (NAMES,)
        )
        try:
            table, classes = _whole(labels), int(num_classes)
            held, tested = _cut(indices, sizes, table.size), _cut(test_indices, test_sizes, table.size)
            clients = None if names is None else tuple(map(str, names))
            made_by = json.loads(str(recipe))
            _check(
                (not table.size or 0 <= table.min() <= table.max() < classes <= table.size + MOST_EMPTY)
                and len(tested) == len(held)
                and (clients is None or len(set(clients)) == len(clients) == len(held))
                and isinstance(made_by, dict),
                "labels, samples, names of clients and recipe do not go together",
            )
            return Partition(held, tested, table, classes, made_by, clients)
        except (ValueError, TypeError, IndexError) as error:
            raise damaged(path, error, remedy) from None


def iid(labels: ArrayLike, clients: int, *, seed: int = 0) -> Partition:
    """Give every client the same number of samples of every class, up to one.

    >>> iid([0, 1] * 10, clients=5).counts.n.tolist()
    [[2, 2], [2, 2], [2, 2], [2, 2], [2, 2]]
    """
    data, rng = _Labelled(labels, clients), _generator(seed)
    shuffled = [rng.permutation(members) for members in data.members]
    dealt = np.concatenate(shuffled)  # dealt in turn, class after class, so that sizes differ by at most one, too
    owned = [dealt[client::clients] for client in range(clients)]
    return data.partition(owned, rng, {"scheme": "iid", "seed": seed})


def dirichlet(
    labels: ArrayLike,
    clients: int,
    alpha: float,
    *,
    seed: int = 0,
    min_size: int = 1,
    cap: bool = False,
    max_draws: int = MAX_DRAWS,
    on_draw: Callable[[int], None] | None = None,
) -> Partition:
    """Split each class over the clients by proportions drawn from Dirichlet(alpha).

    All classes are drawn again until every client holds at least `min_size` samples. With `cap`, a client that already
    holds its fair share N / K gets nothing of the following classes, which evens out the clients' sizes. `on_draw` is
    called with the number of each draw. If alpha is so small that no draw can succeed, none is made.
    """
    _check(alpha > 0 and np.isfinite(alpha), f"alpha must be above 0, not {alpha}")
    _check(min_size >= 1, f"min_size must be 1 or more, not {min_size}")
    data, rng = _Labelled(labels, clients), _generator(seed)
    samples, most = data.labels.size, data.labels.size // min_size
    need = f"{clients} clients of at least {min_size} samples need {min_size * clients:,}, there are {samples:,}"
    _check(clients <= most, f"{need}; give at most {most:,} clients")
    fair_share = data.labels.size / clients if cap else np.inf
    recipe = {"scheme": "dirichlet", "alpha": alpha, "seed": seed, "min_size": min_size, "cap": cap}
    most = min(max_draws, max(FIRST_DRAWS, MAX_DRAWN // (data.labels.size + 4 * clients * data.num_classes)))
    most, lacking = 0 if not cap and _is_hopeless(data, alpha, most) else most, list[int]()
    while len(lacking) < most and not _too_many_lack(lacking):
        if on_draw is not None:
            on_draw(len(lacking) + 1)
        shuffled, ends = _draw(data, alpha, rng, fair_share)
        lacking.append(int(np.count_nonzero(np.diff(ends, prepend=0).sum(axis=0) < min_size)))
        if not lacking[-1]:
            pieces = zip(*(np.split(part, its[:-1]) for part, its in zip(shuffled, ends, strict=True)), strict=True)
            return data.partition([np.concatenate(piece) for piece in pieces], rng, {**recipe, "draws": len(lacking)})
    tried = f"out of {len(lacking):,} gave" if lacking else "will give"
    fewer = "fewer clients"
    if max_draws > FIRST_DRAWS:
        options: dict[str, Any] = {"seed": seed, "min_size": min_size, "cap": cap, "max_draws": FIRST_DRAWS}
        fewer = _fewer(clients, lambda number: dirichlet(labels, number, alpha, **options))
    raise InputError(
        f"no Dirichlet({alpha}) draw {tried} each of {clients} clients {min_size} samples; "
        f"use a larger alpha, {fewer}, a smaller min_size or the cap"
    )


def shards(labels: ArrayLike, clients: int, per_client: int, *, seed: int = 0) -> Partition:
    """Sort by label, cut into equal shards and deal `per_client` to each client, so that a client sees few classes.

    >>> (shards([0] * 10 + [1] * 10, clients=2, per_client=1).counts.n > 0).sum(axis=1)
    array([1, 1])
    """
    _check(per_client >= 1, f"per_client must be 1 or more, not {per_client}")
    data, rng = _Labelled(labels, clients), _generator(seed)
    count = clients * per_client
    _check(count <= data.labels.size, f"{count:,} shards cannot be cut from {data.labels.size:,} samples")
    pieces = np.array_split(np.concatenate([rng.permutation(members) for members in data.members]), count)
    deal = rng.permutation(count).reshape(clients, per_client)
    owned = [np.concatenate([pieces[shard] for shard in hand]) for hand in deal]
    return data.partition(owned, rng, {"scheme": "shards", "per_client": per_client, "seed": seed})


def paper_replay(
    labels: ArrayLike, clients: int, alpha: float, seed: int = PAPER_SEED, max_draws: int = MAX_DRAWS
) -> Partition:
    """The partition behind the paper's tables, sample for sample.

    Training and test parts are merged; each class is shuffled and cut by one Dirichlet draw; all classes are drawn
    again while some client has fewer than 10 samples; then a quarter of each client becomes its test part. All draws
    come from one legacy NumPy stream, and the index arrays stay shuffled between draws.

    Args:
        labels: of the merged dataset. The counts depend on class sizes only.
        clients: K, 20 or 100 in the paper.
        alpha: 0.05, 0.1 or 0.3 in the paper.
        seed: seed of the legacy stream.
        max_draws: give up after so many draws.
    """
    _check(alpha > 0 and np.isfinite(alpha), f"alpha must be above 0, not {alpha}")
    _check(0 <= seed < 2**32, f"the paper's stream takes seeds from 0 to {2**32 - 1}, not {seed}")
    data, stream = _Labelled(labels, clients), np.random.RandomState(seed)
    members, alphas = data.members, np.full(clients, alpha)
    ends = np.empty((len(members), clients), dtype=np.int64)  # where each client's part of a class ends
    most = data.labels.size // 10
    _check(clients <= most, f"{clients} clients need 10 samples each; give at most {most:,} clients")
    lacking: list[int] = []
    while len(lacking) < max_draws and not _too_many_lack(lacking):
        for part, its in zip(members, ends, strict=True):
            stream.shuffle(part)
            its[:] = np.cumsum(stream.dirichlet(alphas)) * part.size
            its[-1] = part.size
        lacking.append(int(np.count_nonzero(np.diff(ends, prepend=0).sum(axis=0) < 10)))
        if not lacking[-1]:
            break
    else:
        fewer = "fewer clients"
        if max_draws > FIRST_DRAWS:
            fewer = _fewer(clients, lambda number: paper_replay(labels, number, alpha, seed, FIRST_DRAWS))
        raise InputError(f"no draw out of {len(lacking):,} gave each client 10 samples; use {fewer}")
    pieces = zip(*(np.split(part, its[:-1]) for part, its in zip(members, ends, strict=True)), strict=True)
    owned = [np.concatenate(piece) for piece in pieces]
    train, test = [], []
    for part in owned:
        stream.shuffle(part)
        cut = int(0.25 * part.size)
        test.append(part[:cut])
        train.append(part[cut:])
    recipe = {"scheme": "paper", "alpha": alpha, "seed": seed, "draws": len(lacking)}
    return data.assembled(train, test, recipe)


def read_split(path: str, dataset: Dataset) -> tuple[Partition, Notes]:
    """The split of a dataset's training part that a file describes.

    A table has a column of clients and one of samples: numbers of training samples from 0 on, or names. Those of images
    in a folder are their paths below it; those of a file without a test part are the numbers of its rows. Samples that
    the table does not name go to no client.
    """
    notes: list[str] = []
    if format_of(path, *FORMATS) == ".npz":
        saved = Partition.load(path)
        if not np.array_equal(saved.labels, dataset.labels):
            made = f"made for {saved.labels.size:,} other samples; {dataset.name} gives clients {dataset.labels.size:,}"
            raise InputError(f"{path}: {made}; make it again with `fedeas partition {dataset.name} --out {path}`")
        held = np.concatenate(saved.indices)
        if np.unique(held).size < held.size:
            raise InputError(f"{path}: some sample is with two clients; give each to one")
        split = replace(saved, recipe={**saved.recipe, "file": path})
    else:
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
        if for_testing:
            notes.append(f"{path}: {for_testing:,} rows name test images, which go to no client")
        if unnamed:
            notes.append(f"{path}: {unnamed:,} of {all_samples:,} training samples are not named and go to no client")
    empty = next((number for number, part in enumerate(split.indices) if not part.size), None)
    if empty is not None:
        name = str(empty) if split.clients is None else split.clients[empty]
        raise InputError(f"{path}: client {name!r} has no training sample; give it some or remove it")
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


class _Labelled:
    """Checked labels with the samples of each class; all schemes start from it and finish with `assembled`."""

    def __init__(self, labels: ArrayLike, clients: int) -> None:
        given = np.asarray(labels)
        _check(given.ndim == 1 and given.size > 0, "labels must be a list with at least one entry")
        _check(given.dtype.kind in "iu" and given.min() >= 0, "labels must be whole numbers from 0 on")
        _check(given.max() < given.size + MOST_EMPTY, f"label {given.max()} is too large; count the classes from 0")
        self.labels = given.astype(np.int64)
        self.num_classes = max(int(given.max()) + 1, 2)
        is_possible = isinstance(clients, int | np.integer) and 1 <= clients <= given.size
        _check(is_possible, f"clients must be between 1 and the {given.size:,} samples, not {clients}")
        self.clients = int(clients)
        self.members = [np.flatnonzero(self.labels == label) for label in range(self.num_classes)]

    def partition(self, owned: Sequence[IntArray], rng: np.random.Generator, recipe: Recipe) -> Partition:
        """Shuffle each client's samples; all of them are for training."""
        return self.assembled([rng.permutation(part) for part in owned], [part[:0] for part in owned], recipe)

    def assembled(self, train: Sequence[IntArray], test: Sequence[IntArray], recipe: Recipe) -> Partition:
        """The finished partition."""
        return Partition(tuple(train), tuple(test), self.labels, self.num_classes, {**recipe, "clients": self.clients})


def _is_hopeless(data: _Labelled, alpha: float, draws: int) -> bool:
    """Whether a draw that leaves no client empty has less than one chance in a million.

    A class always goes to one client. It also reaches another client with a probability of about alpha log n, the
    probability that a Gamma(alpha) share is at least one of n samples. If there are more clients than classes, the
    additional clients depend on such events, whose number is about Poisson; Chernoff's bound limits the chance that
    there are enough of them.
    """
    classes = sum(members.size > 0 for members in data.members)
    needed = data.clients - classes
    if needed <= 0:
        return False
    expected = sum((data.clients - 1) * alpha * (2 + np.log(members.size)) for members in data.members if members.size)
    return bool(expected < needed and needed * (1 + np.log(expected / needed)) + np.log(draws) < np.log(1e-6))


def _generator(seed: int) -> np.random.Generator:
    _check(0 <= seed < 2**63, f"seed must be a whole number from 0 to {2**63 - 1}, not {seed}")
    return np.random.default_rng(seed)


def _fewer(clients: int, split: Callable[[int], Partition]) -> str:
    """In words, the largest number of clients for which a split is soon found."""

    def fails(number: int) -> bool:
        with suppress(InputError):
            split(number)
            return False
        return True

    return f"fewer clients ({bisect_left(range(1, clients), True, key=fails):,} work)"


def _too_many_lack(lacking: Sequence[int]) -> bool:
    """Whether in the first draws so many clients lacked samples that no draw will give all of them enough."""
    return len(lacking) == FIRST_DRAWS and bool(np.mean(lacking) > 8 * max(1.0, float(np.std(lacking))))


def _draw(
    data: _Labelled, alpha: float, rng: np.random.Generator, fair_share: float
) -> tuple[list[IntArray], IntArray]:
    """The samples of each class, shuffled, and where each client's part of them ends."""
    clients, shuffled = data.clients, list[IntArray]()
    ends = np.empty((len(data.members), clients), dtype=np.int64)
    sizes = np.zeros(clients)
    for members, its in zip(data.members, ends, strict=True):
        hungry = (sizes < fair_share).astype(np.float64)
        shares = rng.dirichlet(np.full(clients, alpha)) * hungry
        if not shares.sum() > 0:  # all the weight fell on clients that are full, or all clients are full
            shares = hungry if hungry.any() else np.ones(clients)
        # Rounded, not floored: floors would give the leftover sample of every class to the last client.
        its[:] = np.rint(np.cumsum(shares / shares.sum()) * members.size)
        its[-1] = members.size
        sizes += np.diff(its, prepend=0)
        shuffled.append(rng.permutation(members))
    return shuffled, ends


def _cut(flat: NDArray[Any], sizes: NDArray[Any], samples: int) -> tuple[IntArray, ...]:
    """The clients' parts of a list of samples, each of which must be there."""
    flat, sizes = _whole(flat), _whole(sizes)
    _check(sizes.size and sizes.min() >= 0 and sizes.sum() == flat.size, "sizes do not add up to the samples")
    _check(not flat.size or 0 <= flat.min() <= flat.max() < samples, "samples that are not there")
    return tuple(np.split(flat, np.cumsum(sizes)[:-1]))


def _whole(values: NDArray[Any]) -> IntArray:
    _check(values.ndim == 1 and (not values.size or values.dtype.kind in "iu"), "not lists of whole numbers")
    return values.astype(np.int64)


def _check(holds: bool | int | np.bool_, message: str) -> None:
    if not holds:
        raise InputError(message)
