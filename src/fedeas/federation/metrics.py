"""The paper's measures of a run: accuracy over rounds, rounds to a threshold, and dissimilarity of updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedeas.algorithms.base import MODEL, Arrays, Reply, load_model
from fedeas.data.client import Normaliser
from fedeas.gpu.cuda_graphs import Captured
from fedeas.gpu.devices import autocast
from fedeas.runs.accuracy_curves import AccuracyCurve, measure_accuracy


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Accuracy and loss of the global model on the server's test set.

    The model is a separate workspace. On a GPU all batches have one shape, so that one graph is replayed for all.
    """

    model: nn.Module
    images: Tensor
    labels: Tensor
    normalise: Normaliser
    precision: str = "fp32"
    batch_size: int = 2500

    @torch.no_grad()
    def __call__(self, server: Arrays) -> dict[str, Any]:
        """Test the model that the server holds; a class without test images has no accuracy."""
        load_model(self.model, server)
        self.model.eval()
        right, loss = torch.zeros_like(self._sizes), torch.zeros((), device=self.labels.device)
        for start in range(0, len(self.labels), self.batch_size):
            images, labels = (part[start : start + self.batch_size] for part in (self.images, self.labels))
            logits = self._logits(images)
            right += torch.bincount(labels[logits.argmax(dim=1) == labels], minlength=len(right))
            loss += functional.cross_entropy(logits, labels, reduction="sum")
        by_class = zip(right.tolist(), self._sizes.tolist(), strict=True)
        return {
            "accuracy": int(right.sum()) / len(self.labels),
            "class_accuracy": [round(hits / size, 6) if size else None for hits, size in by_class],
            "test_loss": loss.item() / len(self.labels),
        }

    @cached_property
    def _sizes(self) -> Tensor:
        """Test images of each class."""
        return torch.bincount(self.labels)

    def _logits(self, images: Tensor) -> Tensor:
        missing = self.batch_size - len(images) if images.is_cuda else 0
        padded = functional.pad(images, (0, 0, 0, 0, 0, 0, 0, missing)) if missing else images
        return self._captured(padded)[: len(images)]

    @cached_property
    def _captured(self) -> Captured:
        return Captured(self._plain_logits, self.images.device)

    def _plain_logits(self, images: Tensor) -> Tensor:
        with autocast(self.precision, images.device):
            logits: Tensor = self.model(self.normalise(images))
        return logits.float()


@torch.no_grad()
def gamma_hat(before: Arrays, replies: Sequence[Reply], trainable: Sequence[str]) -> float:
    """Dissimilarity of the clients' update directions, supplement A: 1 - || sum_k w_k d_k / ||d_k|| ||^2.

    Over trainable parameters only: a BatchNorm step counter in the update would dominate its norm.
    """
    keys = [MODEL + name for name in trainable]
    total = sum(reply.weight for reply in replies)
    consensus: list[Tensor] = []
    for reply in replies:
        update = torch._foreach_sub([before[key] for key in keys], [reply.arrays[key] for key in keys])
        norm = torch.stack(torch._foreach_norm(update)).norm().clamp_min(1e-30)
        torch._foreach_mul_(update, reply.weight / total / norm)
        if consensus:
            torch._foreach_add_(consensus, update)
        else:
            consensus = list(update)
    return 1 - float(torch.stack(torch._foreach_norm(consensus)).norm().square())


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
