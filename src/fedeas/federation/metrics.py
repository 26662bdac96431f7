"""The paper's measures of a run: accuracy over rounds, rounds to a threshold, and dissimilarity of updates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedeas.algorithms.base import MODEL, Arrays, Reply, load_model
from fedeas.core.devices import autocast, values_of
from fedeas.core.errors import RunError
from fedeas.data.client import Normaliser
from fedeas.gpu.cuda_graphs import Captured
from fedeas.runs.accuracy_curves import AccuracyCurve, measure_accuracy

NO_CLASS = -1
"""The label of images that only fill up a batch."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Accuracy and loss of the global model on the server's test set.

    The model is a separate workspace. On a GPU all batches have one shape, so that one graph is replayed for all.
    """

    model: nn.Module
    images: Tensor
    labels: Tensor
    num_classes: int
    normalise: Normaliser
    precision: str = "fp32"
    batch_size: int = 2500

    @torch.no_grad()
    def __call__(self, server: Arrays) -> Callable[[], dict[str, Any]]:
        """Start a test of the model that the server holds; the returned function waits for the result."""
        load_model(self.model, server)
        self.model.eval()
        totals = torch.zeros(len(self._sizes) + 1, device=self.labels.device)
        for images, labels in self._batches:
            totals += self._scores(images, labels)
        return partial(self._read, values_of(totals))

    def _read(self, totals: Callable[[], list[float]]) -> dict[str, Any]:
        """The measures; a class without test images has no accuracy."""
        *right, loss = totals()
        if not math.isfinite(loss):
            remedy = "lower train.lr, or mend the algorithm if it is your own"
            raise RunError(f"the test loss is {loss}: numbers of the model are no longer finite; {remedy}")
        return {
            "accuracy": sum(right) / len(self.labels),
            "class_accuracy": [
                round(hits / size, 6) if size else None for hits, size in zip(right, self._sizes, strict=True)
            ],
            "test_loss": loss / len(self.labels),
        }

    @cached_property
    def _sizes(self) -> list[int]:
        """Test images of each class."""
        sizes: list[int] = torch.bincount(self.labels, minlength=self.num_classes).tolist()
        return sizes

    @cached_property
    def _batches(self) -> list[tuple[Tensor, Tensor]]:
        """Images and labels; on a GPU the last batch is filled up with images of no class."""
        images, labels = self.images, self.labels
        if labels.is_cuda and (missing := -len(labels) % self.batch_size):
            images = functional.pad(images, (0, 0, 0, 0, 0, 0, 0, missing))
            labels = functional.pad(labels, (0, missing), value=NO_CLASS)
        return list(zip(*(torch.split(each, self.batch_size) for each in (images, labels)), strict=True))

    @cached_property
    def _scores(self) -> Captured:
        return Captured(self._plain_scores, self.images.device, pure=True)

    def _plain_scores(self, images: Tensor, labels: Tensor) -> Tensor:
        """Hits of each class, and the sum of the losses."""
        with autocast(self.precision, images.device):
            logits: Tensor = self.model(self.normalise(images)).float()
        hits = torch.zeros(len(self._sizes), device=labels.device)
        hits.scatter_add_(0, labels.clamp_min(0), (logits.argmax(dim=1) == labels).float())
        loss = functional.cross_entropy(logits, labels, reduction="sum", ignore_index=NO_CLASS)
        return torch.cat([hits, loss[None]])


@torch.no_grad()
def probe_gamma_hat(
    before: Arrays, replies: Sequence[Reply], trainable: Sequence[str]
) -> Callable[[], dict[str, float]]:
    """Dissimilarity of the clients' update directions, supplement A: 1 - || sum_k w_k d_k / ||d_k|| ||^2.

    The returned function waits for the result. Over trainable parameters only: a BatchNorm step counter in the update
    would dominate its norm.
    """
    keys = [MODEL + name for name in trainable]
    total, start = sum(reply.weight for reply in replies), [before[key] for key in keys]
    consensus = [torch.zeros_like(each) for each in start]
    for reply in replies:
        update = torch._foreach_sub(start, [reply.arrays[key] for key in keys])
        torch._foreach_mul_(update, reply.weight / total / _norm(update).clamp_min(1e-30))
        torch._foreach_add_(consensus, update)
    agreement = values_of(_norm(consensus).square()[None])
    return lambda: {"gamma_hat": 1 - agreement()[0]}


def _norm(tensors: Sequence[Tensor]) -> Tensor:
    """The norm of all of them as one vector."""
    return torch.stack(torch._foreach_norm(list(tensors))).square().sum().sqrt()


def summarise(rounds: Sequence[dict[str, Any]], threshold: float) -> dict[str, Any]:
    """A run's measures from its round records: accuracy and work, first round at the threshold, median Gamma-hat.

    `accuracy_curves.measure_accuracy` defines accuracy. If the threshold was never reached, its round is None.
    """
    curve = AccuracyCurve.of(rounds)
    hats = [record["gamma_hat"] for record in rounds if record.get("gamma_hat") is not None]
    return {
        **measure_accuracy(rounds),
        "rounds_to_threshold": next((r for r, value in zip(*curve, strict=True) if value >= threshold), None),
        "threshold": threshold,
        "gamma_hat": median(hats) if hats else None,
    }
