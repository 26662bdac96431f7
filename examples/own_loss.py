"""Two losses that depend on the label counts of a client. The loss belongs to the algorithm.

From the root of the repository:

    fedeas run digits "algorithm=python:examples.own_loss:FedRS(alpha=0.5)"
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, bincount, nn, where

from fedeas.algorithms import Arrays, Batch, ClientJob, FedAvg, Objective


@dataclass(frozen=True)
class FedLC(FedAvg):
    """A margin of tau n_c^(-1/4) is taken off the logit of class c (Zhang et al., 2022); 0 is FedAvg."""

    tau: float = 1.0
    alpha: float = 1.0

    def objective(self, job: ClientJob) -> Objective:
        """Cross-entropy of adjusted logits, given how many samples of each class the client trains on."""
        n = bincount(job.data.labels, minlength=len(job.broadcast["model/head.bias"])).clamp(min=1e-8)
        return Objective(self._loss, {"rs/factor": where(n < 1, self.alpha, 1.0), "lc/margin": self.tau * n**-0.25})

    def _loss(self, model: nn.Module, batch: Batch, shared: Arrays) -> Tensor:
        return batch.cross_entropy(model(batch.images) * shared["rs/factor"] - shared["lc/margin"])


@dataclass(frozen=True)
class FedRS(FedLC):
    """Logits of classes that a client lacks are multiplied by alpha (Li and Zhan, 2021); 1 is FedAvg."""

    tau: float = 0.0
    alpha: float = 0.5
