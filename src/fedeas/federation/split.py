"""Split a config's dataset: the samples of each client, and the server's test set."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedeas.config import PartitionConfig, RunConfig
from fedeas.core.arrays import IntArray
from fedeas.core.streams import stream
from fedeas.data.partition import Partition, dirichlet, iid, paper_replay, shards
from fedeas.data.sources import Dataset
from fedeas.errors import InputError
from fedeas.planning.counts import LabelCounts


@dataclass(frozen=True, eq=False)
class FederatedData:
    """A dataset split over clients, with the server's test set, for one protocol."""

    dataset: Dataset
    images: Any
    labels: IntArray
    partition: Partition
    test_images: Any
    test_labels: IntArray

    @property
    def counts(self) -> LabelCounts:
        """Label counts of the clients' training parts, with a column for every class of the dataset."""
        rows = [np.bincount(self.labels[part], minlength=self.dataset.num_classes) for part in self.partition.indices]
        return LabelCounts(np.stack(rows), classes=self.dataset.classes)


def split_data(config: RunConfig, dataset: Dataset) -> FederatedData:
    """Split a dataset by the config's protocol and scheme."""
    if config.data.protocol == "paper":
        images, labels = dataset.seen_under("merged")
        parts = split_as(labels, config.drawn_partition)
        pooled = np.concatenate(parts.test_indices)
        return FederatedData(dataset, images, labels, parts, images[pooled], labels[pooled])
    images, labels = dataset.images, dataset.labels
    if config.data.held_out:
        given, _ = set_aside(labels, config.data.held_out)
        images, labels = images[given], labels[given]
    parts = split_as(labels, config.drawn_partition)
    return FederatedData(dataset, images, labels, parts, dataset.test_images, dataset.test_labels)


def held_out(config: RunConfig, dataset: Dataset) -> tuple[Any, IntArray] | None:
    """Images and labels of the training part that no client gets; None if clients get all."""
    if not config.data.held_out:
        return None
    _, aside = set_aside(dataset.labels, config.data.held_out)
    return dataset.images[aside], dataset.labels[aside]


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
        raise InputError(f"data.held_out={count}: give a multiple of {classes.size} classes, {most} at most")
    aside = np.sort(np.concatenate([part[:each] for part in members]))
    return np.setdiff1d(np.arange(labels.size), aside), aside


def split_as(labels: ArrayLike, config: PartitionConfig) -> Partition:
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
    return dirichlet(labels, config.clients, alpha, seed=config.seed, min_size=least, cap=config.cap)


@lru_cache(maxsize=4)
def _replay(labels: bytes, clients: int, alpha: float, seed: int) -> Partition:
    """The paper's partition, cached for the next run: thousands of draws may be rejected before one succeeds."""
    return paper_replay(np.frombuffer(labels, dtype=np.int64), clients, alpha, seed)
