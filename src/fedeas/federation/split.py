"""Split a config's dataset: the samples of each client, and the server's test set."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedeas.config.run import OWN, UNSEEDED, RunConfig
from fedeas.config.sections import PartitionConfig
from fedeas.core.arrays import IntArray, stream
from fedeas.core.errors import InputError
from fedeas.data.dataset import Dataset
from fedeas.data.names import KNOWN
from fedeas.data.partition import Partition, dirichlet, iid, natural_split, paper_replay, read_split, shards
from fedeas.data.sources import load_dataset, load_test_part
from fedeas.planning.counts import LabelCounts

OnDraw = Callable[[int], None]  # called with the number of each draw of a Dirichlet split


@dataclass(frozen=True, eq=False)
class FederatedData:
    """A dataset split over clients, with the server's test set, for one protocol."""

    dataset: Dataset
    images: Any
    labels: IntArray
    partition: Partition
    test_images: Any
    test_labels: IntArray
    notes: tuple[str, ...] = ()  # what a user should know of how dataset and split were read

    @property
    def counts(self) -> LabelCounts:
        """Label counts of the clients' training parts, with a column for every class of the dataset."""
        rows = [np.bincount(self.labels[part], minlength=self.dataset.num_classes) for part in self.partition.indices]
        return LabelCounts(np.stack(rows), self.partition.clients, self.dataset.classes)


def split_data(config: RunConfig, dataset: Dataset, on_draw: OnDraw | None = None) -> FederatedData:
    """Split a dataset by the config's protocol and scheme."""
    if config.data.protocol == "paper":
        images, labels = dataset.seen_under("merged")
        parts = split_as(labels, config.drawn_partition, on_draw)
        pooled = np.concatenate(parts.test_indices)
        return FederatedData(dataset, images, labels, parts, images[pooled], labels[pooled])
    images, labels, notes = dataset.images, dataset.labels, dataset.notes
    scheme, clients = config.partition.chosen(dataset.owners is not None), config.partition.clients
    if scheme in UNSEEDED and config.data.held_out:
        raise InputError(f"data.held_out does not go with partition.scheme {scheme!r}, which says who holds what")
    if scheme == OWN:
        nothing, recipe = (np.zeros(0, dtype=np.int64),) * clients, {"scheme": OWN, "clients": clients}
        parts = Partition(nothing, nothing, labels, dataset.num_classes, recipe)
    elif scheme == "file":
        parts, more = read_split(config.partition.file, dataset)
        notes = *notes, *more
    elif scheme in UNSEEDED:
        parts = natural_split(dataset)
    else:
        if config.data.held_out:
            given, _ = set_aside(labels, config.data.held_out)
            images, labels = images[given], labels[given]
        parts = split_as(labels, config.drawn_partition, on_draw)
    return FederatedData(dataset, images, labels, parts, dataset.test_images, dataset.test_labels, notes)


def load_data(config: RunConfig) -> Dataset:
    """The config's dataset; the test part alone if the clients bring their own data."""
    load = load_test_part if config.partition.scheme == OWN else load_dataset
    return load(config.data.dataset, config.data.root)


def refuse_own_data(config: RunConfig, what: str) -> None:
    """Refuse what needs the clients' samples, if these are on their nodes."""
    if config.partition.scheme == OWN:
        raise InputError(f"partition.scheme {OWN!r}: {what}; start it with `fedeas flower run`")


@dataclass(frozen=True, eq=False)
class Split:
    """Who holds which samples, without the images."""

    partition: Partition
    counts: LabelCounts
    test_samples: int
    notes: tuple[str, ...] = ()


def split_of(config: RunConfig, *, needs_indices: bool, on_draw: OnDraw | None = None) -> Split:
    """The split of a run with this config.

    The counts of a known dataset follow from its class sizes, so that it is loaded only if the split `needs_indices`.
    """
    refuse_own_data(config, "the clients' samples are on their nodes")
    name, merged = config.data.dataset, config.data.protocol == "paper"
    drawn = config.partition.chosen(has_clients=False) not in UNSEEDED
    if name in KNOWN and drawn and not needs_indices and not config.data.held_out:
        known = KNOWN[name]
        parts = split_as(known.labels(merged=merged), config.drawn_partition, on_draw)
        counts = LabelCounts(parts.counts.n, classes=known.classes)
        return Split(parts, counts, sum(part.size for part in parts.test_indices) if merged else sum(known.test))
    data = split_data(config, load_dataset(name, config.data.root), on_draw)
    recipe = {**data.partition.recipe, "dataset": name}
    return Split(replace(data.partition, recipe=recipe), data.counts, len(data.test_labels), data.notes)


def set_aside(labels: IntArray, count: int) -> tuple[IntArray, IntArray]:
    """Positions of the samples for clients, and of `count` held-out ones: equally many of each class, always the same.

    >>> labels = np.array([0, 0, 1, 1, 1])
    >>> given, aside = set_aside(labels, 2)
    >>> given.size, labels[aside]
    (3, array([0, 1]))
    """
    classes = np.unique(labels)
    each, rest = divmod(count, classes.size)
    members = [stream("held-out split", int(label)).permutation(np.flatnonzero(labels == label)) for label in classes]
    if rest or min(part.size for part in members) <= each:
        most = (min(part.size for part in members) - 1) * classes.size
        wanted = f"give a multiple of {classes.size} (the number of classes), at most {most}"
        raise InputError(f"data.held_out={count}: {wanted}")
    aside = np.sort(np.concatenate([part[:each] for part in members]))
    return np.setdiff1d(np.arange(labels.size), aside), aside


def split_as(labels: ArrayLike, config: PartitionConfig, on_draw: OnDraw | None = None) -> Partition:
    """The partition that a config describes; for the paper's, `labels` are the training part and then the test part.

    >>> split_as([0, 1] * 10, PartitionConfig(scheme="iid", clients=5)).counts.n[0].tolist()
    [2, 2]
    """
    if config.scheme == "paper":
        return _replay(np.asarray(labels, dtype=np.int64).tobytes(), config.clients, config.alpha, config.seed)
    if config.scheme == "iid":
        return iid(labels, config.clients, seed=config.seed)
    if config.scheme == "shards":
        return shards(labels, config.clients, config.per_client, seed=config.seed)
    alpha, least = config.alpha, config.min_size
    return dirichlet(labels, config.clients, alpha, seed=config.seed, min_size=least, cap=config.cap, on_draw=on_draw)


@lru_cache(maxsize=4)
def _replay(labels: bytes, clients: int, alpha: float, seed: int) -> Partition:
    """The paper's partition, cached for the next run: thousands of draws may be rejected before one succeeds."""
    return paper_replay(np.frombuffer(labels, dtype=np.int64), clients, alpha, seed)
