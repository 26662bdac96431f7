"""The parts of a run that its config names: the data, split over clients, the model, and the run's identity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn

from fedeas.algorithms import FedAvg, parse_algorithm
from fedeas.algorithms.base import Arrays
from fedeas.config.run import OWN, UNSEEDED, RunConfig
from fedeas.config.sections import ContentConfig, PartitionConfig
from fedeas.core.arrays import IntArray
from fedeas.core.digests import stream
from fedeas.core.errors import InputError
from fedeas.core.own_code import code_digest, imported_code
from fedeas.core.provenance import Answer, refuse_unknown
from fedeas.core.spec import own_code_in
from fedeas.data.client import ClientData, Normaliser
from fedeas.data.dataset import Dataset
from fedeas.data.known import KNOWN
from fedeas.data.partition import Partition, dirichlet, iid, paper_replay, shards
from fedeas.data.sources import load_dataset, load_test_part
from fedeas.data.split_file import natural_split, read_split
from fedeas.federation.rounds import Schedule
from fedeas.generators.kinds import content_digest, federated_in, parse_generator
from fedeas.models.build import build_model, suited_to
from fedeas.models.initial_weights import check_clean_start
from fedeas.models.initial_weights import content as content_of_start
from fedeas.planning.counts import LabelCounts

OnDraw = Callable[[int], None]
"""Called with the number of each draw of a Dirichlet split."""


@dataclass(frozen=True, eq=False)
class FederatedData:
    """A dataset split over clients, with the server's test set, for one protocol."""

    dataset: Dataset
    images: Any
    labels: IntArray
    partition: Partition
    test_images: Any
    test_labels: IntArray
    notes: tuple[str, ...] = ()
    """What a user should know of how dataset and split were read."""

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


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of one run; `config` is the given config with the content of all parts pinned."""

    config: RunConfig
    device: torch.device
    algorithm: FedAvg
    data: FederatedData
    model: nn.Module
    normalise: Normaliser

    @staticmethod
    def of(config: RunConfig, device: torch.device) -> Parts:
        """Build the parts that a config names, on this device."""
        algorithm = parse_algorithm(config.algorithm)
        data = split_data(config, load_data(config))
        complete, dataset = pinned(config, data), data.dataset
        model = new_model(complete, dataset.shape, dataset.num_classes).to(device)
        normalise = Normaliser.of(dataset.channel_mean, dataset.channel_std, device)
        return Parts(complete, device, algorithm, data, model, normalise)

    def load_client(self, client: int) -> ClientData:
        """The real samples of a client."""
        mine = self.data.partition.indices[client]
        return ClientData.of(self.data.images[mine], self.data.labels[mine], self.normalise)

    def schedule(self, start: int) -> Schedule:
        """The schedule of a run that has done `start` rounds."""
        config, rounds = self.config, self.config.rounds
        clients = config.partition.clients
        return Schedule(rounds.total, clients, config.participants, config.seed, rounds.eval_every, start)

    def on_device(self, arrays: Arrays) -> Arrays:
        """These tensors on the run's device."""
        return {key: tensor.to(self.device) for key, tensor in arrays.items()}


def new_model(config: RunConfig, shape: tuple[int, int, int], num_classes: int) -> nn.Module:
    """The config's model with its initial weights, on the CPU."""
    chosen = config.model
    return build_model(
        suited_to(shape) if chosen.name == "auto" else chosen.name,
        shape,
        num_classes,
        seed=config.seed,
        stem=chosen.stem,
        norm=None if chosen.norm == "auto" else chosen.norm,
        weights=chosen.weights,
        projection=chosen.projection,
    )


def pinned(config: RunConfig, data: FederatedData) -> RunConfig:
    """The complete config: names of model and scheme, number of clients, and the content of every part as a digest.

    Its fingerprint is the run's identity. A digest that is already in the config must be right.
    """
    dataset, split, partition, model = data.dataset, data.partition, config.partition, config.model
    found = ContentConfig(
        data=dataset.digest,
        partition=split.digest,
        weights=content_of_start(model.weights).get("weights", ""),
        generator=content_digest(config.generator, config.data.dataset) if config.generates else "",
        **{kind: code_digest(names, kind) for kind, names in own_code_of(config).items()},
    )
    for part, wanted in config.content:
        if wanted and wanted != getattr(found, part):
            raise InputError(f"content.{part}: not the {part} that is here; bring back the right one or drop the line")
    chosen = {"scheme": partition.chosen(dataset.owners is not None), "clients": split.num_clients}
    named = model.named(suited_to(dataset.shape) if model.name == "auto" else model.name)
    complete = {"partition": partition.model_copy(update=chosen), "model": named, "content": found}
    return config.model_copy(update=complete)


def own_code_of(config: RunConfig) -> dict[str, tuple[str, ...]]:
    """Every ``python:module:name`` that a config names as its policy, its algorithm or its model."""
    parts = {"policy": config.policy, "algorithm": config.algorithm, "model": config.model.name}
    return {kind: own_code_in(text) for kind, text in parts.items()}


def unknown_content(config: RunConfig) -> tuple[str, ...]:
    """What affects the result but cannot be verified, one sentence each.

    In the clean protocol, initial weights that have seen test images of the dataset are refused.
    """
    dataset, protocol = config.data.dataset, config.data.protocol
    start = check_clean_start(config.model.weights, dataset) if protocol == "clean" else ()
    generator = parse_generator(config.generator).unknown(dataset, protocol) if config.generates else ()
    code = (imported_code(name) for names in own_code_of(config).values() for name in names)
    return (*start, *generator, *code)


def seen_by_generator(config: RunConfig, dataset: Dataset) -> Answer:
    """Whether a run's generator was made from images that the run tests on; the clean protocol refuses that."""
    if not config.generates:
        return Answer.CLEAN
    answer = parse_generator(config.generator).seen(dataset.parts, config.data.protocol)
    trained = federated_in(config.generator)
    # Nobody can compare a start with images that the nodes alone have.
    hidden = trained is not None and bool(trained.start) and config.partition.scheme == OWN
    return Answer.worst([answer, Answer.UNKNOWN]) if hidden else answer


def refuse_unknown_ancestors(config: RunConfig) -> None:
    """Refuse a run if it is not known which images its generator was made from."""
    refuse_unknown(f"generator {config.generator}", config.data.dataset, seen_by_generator(config, load_data(config)))
