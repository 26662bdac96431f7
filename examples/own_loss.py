"""A loss of one's own: an algorithm says what its clients minimise.

From the root of the repository:

    fedeas run digits "algorithm=python:examples.own_loss:FocalAvg(gamma=2)"
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional

from fedeas.algorithms import Arrays, Batch, ClientJob, FedAvg, Objective


@dataclass(frozen=True)
class FocalAvg(FedAvg):
    """FedAvg with the focal loss (Lin et al., 2017): samples that are recognised well count less."""

    gamma: float = 2.0
    stacks: ClassVar[bool] = True  # the loss sums over samples by batch.mean alone

    def objective(self, job: ClientJob) -> Objective:
        """What a client minimises."""
        return Objective(self._loss)

    def _loss(self, model: nn.Module, batch: Batch, shared: Arrays) -> Tensor:
        losses = functional.cross_entropy(batch.adjusted(model(batch.images)), batch.labels, reduction="none")
        return batch.mean((1 - (-losses).exp()) ** self.gamma * losses)
