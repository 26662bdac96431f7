"""FedProx: local training is held near the global model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedeas.algorithms.base import MODEL, ClientJob
from fedeas.algorithms.fedavg import FedAvg
from fedeas.algorithms.local_sgd import Loss, cross_entropy
from fedeas.errors import InputError


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedProx (Li et al., MLSys 2020, Eq. 2): client k minimises F_k(w) + mu/2 ||w - w^t||^2.

    The norm is over trainable parameters; mu = 0 is FedAvg. The default is the paper's, supplement D.
    """

    mu: float = 0.01

    def __post_init__(self) -> None:
        if not 0 <= self.mu < float("inf"):
            raise InputError(f"mu must be a finite number, 0 or more, not {self.mu}")

    def local_loss(self, job: ClientJob) -> Loss:
        """Cross-entropy plus the proximal term."""
        # A list, not a generator: it is gone through once for each batch.
        anchors = [job.broadcast[MODEL + name].clone() for name, _ in job.model.named_parameters()]

        def loss(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
            pairs = zip(model.parameters(), anchors, strict=True)
            distance = torch.stack([(parameter - anchor).square().sum() for parameter, anchor in pairs]).sum()
            return cross_entropy(model, images, labels) + self.mu / 2 * distance

        return loss
