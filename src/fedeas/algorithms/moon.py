"""MOON: pulls features towards those of the global model and away from those of the client's previous model."""

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fedeas.algorithms.base import MODEL, Arrays, ClientJob, Reply, as_group, features_of, head_of, members
from fedeas.algorithms.fedavg import FedAvg
from fedeas.algorithms.local_sgd import Batch, Objective
from fedeas.config import hyperparameters

PREVIOUS, NEAR, FAR = "previous/", "near/", "far/"


class MOON(hyperparameters.MOON, FedAvg):
    """Model-contrastive learning (Li, He, Song, CVPR 2021, Eq. 3 and 4).

    With z, z_glob and z_prev the features of a sample under the local model, the global model and this client's own
    local model of its previous round, a client minimises cross-entropy + mu * l_con,

        l_con = -log( exp(sim(z, z_glob) / tau) / (exp(sim(z, z_glob) / tau) + exp(sim(z, z_prev) / tau)) ),

    where sim is the cosine. The global and the previous model are frozen and in evaluation mode. In a client's first
    round its previous model is the global one. The contrast is on the model's own ``features``.
    """

    stacks = True

    def client_update(self, job: ClientJob) -> tuple[Reply, Arrays]:
        """FedAvg with the contrastive loss; the client keeps its new model for its next round."""
        reply, _ = super().client_update(job)
        return reply, as_group(members(reply.arrays, MODEL), PREVIOUS)

    def objective(self, job: ClientJob) -> Objective:
        """Cross-entropy plus the contrast with two frozen models."""
        now, last = members(job.broadcast, MODEL), members(job.state, PREVIOUS)
        return Objective(self.loss, as_group(now, NEAR) | as_group(last or now, FAR))

    def loss(self, model: nn.Module, batch: Batch, shared: Arrays) -> Tensor:
        """The loss of plain training and the contrast, Eq. (4)."""
        features = features_of(model, batch.images)
        logits = head_of(model)(features)
        near, far = (frozen_features(model, batch.images, shared, which) for which in (NEAR, FAR))
        own = functional.cross_entropy(batch.adjusted(logits), batch.labels, reduction="none")
        return batch.mean(own + self.mu * contrast(features, near, far, self.tau))


def contrast(features: Tensor, near: Tensor, far: Tensor, tau: float) -> Tensor:
    """l_con of Eq. (3), for each sample."""
    similar = functional.cosine_similarity(features, near, dim=1) / tau
    dissimilar = functional.cosine_similarity(features, far, dim=1) / tau
    # -log(e^s / (e^s + e^d)) = log(1 + e^(d - s)), which cannot overflow
    return functional.softplus(dissimilar - similar)


@torch.no_grad()
def frozen_features(model: nn.Module, images: Tensor, shared: Arrays, which: str) -> Tensor:
    """Features of the model with the shared weights and statistics of this group, in evaluation mode."""
    model.eval()
    features: Tensor = functional_call(_Features(model), as_group(members(shared, which), "model."), (images,))
    model.train()
    return features


class _Features(nn.Module):
    """A model whose output is its features."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        return features_of(self.model, images)
