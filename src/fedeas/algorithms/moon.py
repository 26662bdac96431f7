"""MOON: features are drawn to those of the global model and away from those of the client's last one."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedeas.algorithms.base import MODEL, Arrays, ClientJob, Reply, features_of, group, head_of, load_model
from fedeas.algorithms.fedavg import FedAvg
from fedeas.algorithms.local_sgd import Loss
from fedeas.errors import InputError

PREVIOUS = "previous/"


@dataclass(frozen=True)
class MOON(FedAvg):
    """Model-contrastive learning (Li, He, Song, CVPR 2021, Eq. 3 and 4).

    With z, z_glob and z_prev the features of a sample under the local model, the global model and this client's own
    local model of its last round, a client minimises cross-entropy + mu * l_con,

        l_con = -log( exp(sim(z, z_glob) / tau) / (exp(sim(z, z_glob) / tau) + exp(sim(z, z_prev) / tau)) ),

    where sim is the cosine. The global and the last model are frozen and in evaluation mode. In a client's first round
    its last model is the global one. The contrast is on the model's own ``features``. The defaults are the paper's,
    supplement D.
    """

    mu: float = 5.0
    tau: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.mu < float("inf"):
            raise InputError(f"mu must be a finite number, 0 or more, not {self.mu}")
        if not 0 < self.tau < float("inf"):
            raise InputError(f"tau must be a finite number above 0, not {self.tau}")

    def client_update(self, job: ClientJob) -> tuple[Reply, Arrays]:
        """FedAvg with the contrastive loss; the client keeps its new model for the next time."""
        reply, _ = super().client_update(job)
        kept = {PREVIOUS + key.removeprefix(MODEL): tensor for key, tensor in group(reply.arrays, MODEL).items()}
        return reply, kept

    def local_loss(self, job: ClientJob) -> Loss:
        """Cross-entropy plus the contrast with two frozen models."""
        last = {MODEL + key.removeprefix(PREVIOUS): tensor for key, tensor in group(job.state, PREVIOUS).items()}
        anchor, opposite = (_frozen_copy(job.model, arrays) for arrays in (job.broadcast, last or job.broadcast))

        def loss(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
            features = features_of(model, images)
            logits = head_of(model)(features)
            with torch.no_grad():
                near, far = features_of(anchor, images), features_of(opposite, images)
            return functional.cross_entropy(logits, labels) + self.mu * contrast(features, near, far, self.tau)

        return loss


def contrast(features: Tensor, near: Tensor, far: Tensor, tau: float) -> Tensor:
    """l_con of Eq. (3), averaged over the batch."""
    similar = functional.cosine_similarity(features, near, dim=1) / tau
    dissimilar = functional.cosine_similarity(features, far, dim=1) / tau
    # -log(e^s / (e^s + e^d)) = log(1 + e^(d - s)), which cannot overflow
    return functional.softplus(dissimilar - similar).mean()


def _frozen_copy(model: nn.Module, arrays: Arrays) -> nn.Module:
    frozen = copy.deepcopy(model)
    load_model(frozen, arrays)
    return frozen.eval().requires_grad_(False)
