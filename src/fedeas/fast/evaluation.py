"""The test of the server's model as a CUDA graph."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor
from torch.nn import functional

from fedeas.fast.fused_layers import fuse_norms
from fedeas.federation.metrics import NO_CLASS, Evaluation
from fedeas.gpu import Captured


@dataclass(frozen=True, eq=False)
class CapturedEvaluation(Evaluation):
    """On a GPU all batches have one shape, so that one graph is replayed for all."""

    def __post_init__(self) -> None:
        self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        fuse_norms(self.model)

    @cached_property
    def batches(self) -> list[tuple[Tensor, Tensor]]:
        """Images and labels; the last batch is filled up with images of no class."""
        missing = -len(self.labels) % self.batch_size
        images = functional.pad(self.images, (0, 0, 0, 0, 0, 0, 0, missing))
        labels = functional.pad(self.labels, (0, missing), value=NO_CLASS)
        return list(zip(*(torch.split(each, self.batch_size) for each in (images, labels)), strict=True))

    def scores(self, images: Tensor, labels: Tensor) -> Tensor:
        """Hits of each class, and the sum of the losses, of a batch; overwritten by the next call."""
        return self._recorded(images, labels)

    @cached_property
    def _recorded(self) -> Captured:
        return Captured(partial(Evaluation.scores, self), self.images.device, pure=True)
