"""FedProx: a proximal term keeps local training near the global model."""

import torch
from torch import Tensor, nn

from fedeas.algorithms.base import MODEL, Arrays, ClientJob
from fedeas.algorithms.fedavg import FedAvg
from fedeas.algorithms.local_sgd import Batch, Objective, cross_entropy
from fedeas.config import hyperparameters

ANCHOR = "anchor/"


class FedProx(hyperparameters.FedProx, FedAvg):
    """FedProx (Li et al., MLSys 2020, Eq. 2): client k minimises F_k(w) + mu/2 ||w - w^t||^2.

    The norm is over trainable parameters.
    """

    stacks = True

    def objective(self, job: ClientJob) -> Objective:
        """Cross-entropy plus the proximal term."""
        anchors = {ANCHOR + name: job.broadcast[MODEL + name] for name, _ in job.model.named_parameters()}
        return Objective(self.loss, anchors)

    def loss(self, model: nn.Module, batch: Batch, shared: Arrays) -> Tensor:
        """The loss of plain training and the proximal term."""
        pairs = ((parameter, shared[ANCHOR + name]) for name, parameter in model.named_parameters())
        distance = torch.stack([batch.total((parameter - anchor).square()) for parameter, anchor in pairs]).sum(dim=0)
        return cross_entropy(model, batch, shared) + self.mu / 2 * distance
