"""What is measured in a round: accuracy and loss of the model, and the dissimilarity of updates."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional

from fedeas.algorithms.base import MODEL, Arrays, Reply, load_model
from fedeas.core.devices import autocast
from fedeas.core.errors import RunError
from fedeas.core.records import Record
from fedeas.data.client import Normaliser

NO_CLASS = -1  # the label of images that only fill up a batch


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Accuracy and loss of the global model on the server's test set; the model is a separate workspace."""

    model: nn.Module
    images: Tensor
    labels: Tensor
    num_classes: int
    normalise: Normaliser
    precision: str = "fp32"
    batch_size: int = 2500

    @classmethod
    def of(
        cls, model: nn.Module, images: ArrayLike, labels: ArrayLike, num_classes: int, normalise: Normaliser,
        precision: str = "fp32",
    ) -> Self:  # fmt: skip
        """The test on images and labels in the main memory, on the device of the normaliser."""
        device = normalise.scale.device
        shown, known = (torch.from_numpy(np.array(each)).to(device) for each in (images, labels))
        return cls(model, shown, known, num_classes, normalise, precision)

    def __call__(self, server: Arrays) -> Record:
        """Test the model that the server holds."""
        return self.record(self.totals(server).tolist())

    @torch.no_grad()
    def totals(self, server: Arrays) -> Tensor:
        """Hits of each class, and the sum of the losses, over all test images."""
        load_model(self.model, server)
        self.model.eval()
        totals = torch.zeros(self.num_classes + 1, device=self.labels.device)
        for images, labels in self.batches:
            totals += self.scores(images, labels)
        return totals

    def record(self, totals: Sequence[float]) -> Record:
        """The measures, given the values of `totals`; a class without test images has no accuracy."""
        *right, loss = totals
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
    def batches(self) -> list[tuple[Tensor, Tensor]]:
        """Images and labels."""
        return list(zip(*(torch.split(each, self.batch_size) for each in (self.images, self.labels)), strict=True))

    def scores(self, images: Tensor, labels: Tensor) -> Tensor:
        """Hits of each class, and the sum of the losses, of a batch."""
        with autocast(self.precision, images.device):
            logits: Tensor = self.model(self.normalise(images)).float()
        hits = torch.zeros(self.num_classes, device=labels.device)
        hits.scatter_add_(0, labels.clamp_min(0), (logits.argmax(dim=1) == labels).float())
        loss = functional.cross_entropy(logits, labels, reduction="sum", ignore_index=NO_CLASS)
        return torch.cat([hits, loss[None]])


@torch.no_grad()
def gamma_hat(before: Arrays, replies: Sequence[Reply], trainable: Sequence[str]) -> Tensor:
    """Dissimilarity of the clients' update directions, supplement A: 1 - || sum_k w_k d_k / ||d_k|| ||^2.

    Over trainable parameters only: a BatchNorm step counter in the update would dominate its norm.
    """
    keys = [MODEL + name for name in trainable]
    total, start = sum(reply.weight for reply in replies), [before[key] for key in keys]
    consensus = [torch.zeros_like(each) for each in start]
    for reply in replies:
        update = torch._foreach_sub(start, [reply.arrays[key] for key in keys])
        torch._foreach_mul_(update, reply.weight / total / _norm(update).clamp_min(1e-30))
        torch._foreach_add_(consensus, update)
    return 1 - _norm(consensus).square().double()


def _norm(tensors: Sequence[Tensor]) -> Tensor:
    """The norm of all of them as one vector."""
    return torch.stack(torch._foreach_norm(list(tensors))).square().sum().sqrt()
