"""A batch of images and their derivatives: the second half holds, for each image of the first, a direction.

A model that is applied to such a batch returns its outputs and their derivatives along the directions, both
differentiable. Convolutions and averages are linear and take both halves as they are; norms and the max-pool know that
the second half are derivatives. This costs as much as a batch of twice the size, while a second backward pass takes
every norm apart into many small kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fedeas.models.norm import BatchNorm, norms_can_be_masked
from fedeas.models.resnet import MaxPool, ResNet18


def can_be_doubled(model: nn.Module) -> bool:
    """Whether `outputs_and_derivatives` works once the model's norms are fused: a ResNet-18 with batch norms."""
    return isinstance(model, ResNet18) and isinstance(model.bn1, BatchNorm)


def is_ready(model: nn.Module) -> bool:
    """Whether `outputs_and_derivatives` works now: only with our GPU kernels."""
    return can_be_doubled(model) and norms_can_be_masked(model)


def outputs_and_derivatives(model: nn.Module, images: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
    """The model's outputs for the images, and their derivatives along the directions."""
    assert isinstance(model, ResNet18)
    both = torch.cat([images, directions]).contiguous(memory_format=torch.channels_last)
    with _doubled(model):
        outputs, derivatives = model(both).chunk(2)
    return outputs, derivatives - model.head.bias  # the head has added it to both halves


@contextmanager
def _doubled(model: nn.Module) -> Iterator[None]:
    """A context in which the model takes the second half of its batches as derivatives."""
    layers = [module for module in model.modules() if isinstance(module, BatchNorm | MaxPool)]
    for layer in layers:
        layer.doubled = True
    try:
        yield
    finally:
        for layer in layers:
            layer.doubled = False
