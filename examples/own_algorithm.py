"""An algorithm of one's own: change what you need of FedAvg, here what the server does.

From the root of the repository:

    fedeas run digits "algorithm=python:examples.own_algorithm:ServerMomentum(momentum=0.5)"
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from fedeas.algorithms import Arrays, FedAvg, Fleet, Reply


@dataclass(frozen=True)
class ServerMomentum(FedAvg):
    """FedAvgM (Hsu et al., 2019): the server moves with momentum. With momentum 0 it is FedAvg up to rounding."""

    momentum: float = 0.5

    def init(self, model: nn.Module, fleet: Fleet) -> Arrays:
        """The initial weights, and a speed of 0 for each parameter."""
        speeds = {f"speed/{name}": torch.zeros_like(parameter) for name, parameter in model.named_parameters()}
        return {**super().init(model, fleet), **speeds}

    def server_update(self, server: Arrays, replies: Sequence[Reply], round: int) -> Arrays:
        """Speed v = momentum * v + (mean - model), then model + v."""
        mean = super().server_update(server, replies, round)
        for name in (key.removeprefix("speed/") for key in server if key.startswith("speed/")):
            step = mean[f"model/{name}"] - server[f"model/{name}"]
            mean[f"speed/{name}"] = self.momentum * server[f"speed/{name}"] + step
            mean[f"model/{name}"] = server[f"model/{name}"] + mean[f"speed/{name}"]
        return mean
