"""FedProx: local training is held near the global model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedeas.algorithms.base import MODEL, Arrays, ClientJob
from fedeas.algorithms.fedavg import FedAvg
from fedeas.algorithms.local_sgd import Batch, Objective, cross_entropy
from fedeas.errors import InputError

ANCHOR = "anchor/"


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedProx (Li et al., MLSys 2020, Eq. 2): client k minimises F_k(w) + mu/2 ||w - w^t||^2.

    The norm is over trainable parameters; mu = 0 is FedAvg. The default is the paper's, supplement D.
    """

    mu: float = 0.01

    def __post_init__(self) -> None:
        if not 0 <= self.mu < float("inf"):
            raise InputError(f"mu must be a finite number, 0 or more, not {self.mu}")

    def objective(self, job: ClientJob) -> Objective:
        """Cross-entropy plus the proximal term."""
        anchors = {ANCHOR + name: job.broadcast[MODEL + name] for name, _ in job.model.named_parameters()}
        return Objective(self._loss, anchors)

    def _loss(self, model: nn.Module, batch: Batch, shared: Arrays) -> Tensor:
        pairs = ((parameter, shared[ANCHOR + name]) for name, parameter in model.named_parameters())
        distance = torch.stack([(parameter - anchor).square().sum() for parameter, anchor in pairs]).sum()
        return cross_entropy(model, batch, shared) + self.mu / 2 * distance
