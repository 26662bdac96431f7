"""The parts of a run that its config names, built once: device, data, algorithm and model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from fedeas.algorithms import FedAvg, parse_algorithm
from fedeas.algorithms.base import Arrays
from fedeas.config.run import RunConfig
from fedeas.data.client import ClientData, Normaliser
from fedeas.federation.backend import PLAIN, Backend
from fedeas.federation.identity import pinned
from fedeas.federation.split import FederatedData, load_data, split_data
from fedeas.models.build import build_model, suited_to


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of one run; `config` is the given config with the content of all parts pinned."""

    config: RunConfig
    device: torch.device
    algorithm: FedAvg
    data: FederatedData
    model: nn.Module
    normalise: Normaliser
    backend: Backend = PLAIN

    @staticmethod
    def of(config: RunConfig, device: torch.device, backend: Backend = PLAIN) -> Parts:
        """Build the parts that a config names, on this device."""
        algorithm = parse_algorithm(config.algorithm)
        data = split_data(config, load_data(config))
        complete, dataset = pinned(config, data), data.dataset
        model = new_model(complete, dataset.shape, dataset.num_classes).to(device)
        normalise = Normaliser.of(dataset.channel_mean, dataset.channel_std, device)
        return Parts(complete, device, algorithm, data, model, normalise, backend)

    def load_client(self, client: int) -> ClientData:
        """The real samples of a client."""
        mine = self.data.partition.indices[client]
        return ClientData.of(self.data.images[mine], self.data.labels[mine], self.normalise)

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
