"""The parts of a run that its config names, built once, and the run's identity: its config with their digests."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from fedeas.algorithms import FedAvg, parse_algorithm
from fedeas.algorithms.base import Arrays
from fedeas.config.run import OWN, RunConfig
from fedeas.config.sections import ContentConfig
from fedeas.core.errors import InputError
from fedeas.core.provenance import Answer, refuse_unknown
from fedeas.core.spec import code_digest, imported_code, own_code_in
from fedeas.data.client import ClientData, Normaliser
from fedeas.data.dataset import Dataset
from fedeas.federation.rounds import Schedule
from fedeas.federation.split import FederatedData, load_data, split_data
from fedeas.generators.kinds import content_digest, federated_in, parse_generator
from fedeas.models.build import build_model, check_clean_start, start_digest, suited_to


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
        weights=start_digest(model.weights),
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
