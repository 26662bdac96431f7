"""The norms of our models; GPU kernels can fuse them with the sum and the ReLU after them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedeas.core.devices import load_kernels
from fedeas.core.errors import InputError

_kernels = partial(load_kernels, "norm_kernels")
_doubled_kernels: Callable[[], Any] = partial(load_kernels, "doubled_norm_kernels")

Norm = Literal["batch", "group", "none"]

MAX_GROUPS = 32
_CHANNELS_LAST = torch.channels_last


class NormThenRelu(nn.Module):
    """A norm that can be fused with the sum and the ReLU after it."""

    def fuses(self, x: Tensor) -> bool:
        """Whether it can be fused for these images."""
        raise NotImplementedError

    def then_relu(self, x: Tensor, shortcut: Tensor | None) -> Tensor:
        """Relu(norm(x) + shortcut) in one go, for images that `fuses` says yes to."""
        raise NotImplementedError


class BatchNorm(NormThenRelu, nn.BatchNorm2d):
    """torch's BatchNorm2d; after `fuse_norms` it computes in kernels that include the steps after it.

    In training these take only the first `valid` images of a batch, if that is set; the others become zero. If
    `doubled`, the second half of the batch are derivatives of the first along a direction, and so are the results.
    """

    tickets: Tensor | None = None
    valid: Tensor | None = None
    doubled: bool = False

    def forward(self, x: Tensor) -> Tensor:
        """The normalised images."""
        if self.fuses(x):
            return self._fused(x, None, relu=False)
        assert not self.training or (self.valid is None and not self.doubled)  # torch would take all images as values
        return super().forward(x)

    def then_relu(self, x: Tensor, shortcut: Tensor | None) -> Tensor:
        """Relu(norm(x) + shortcut) in one go, for images that `fuses` says yes to."""
        return self._fused(x, shortcut, relu=True)

    def fuses(self, x: Tensor) -> bool:
        """Whether the kernels can take these images."""
        if self.tickets is None or not x.is_contiguous(memory_format=_CHANNELS_LAST):
            return False
        # torch reports the error for a single value, which has no variance, and computes gradients in evaluation mode.
        return x.numel() > self.num_features if self.training else not torch.is_grad_enabled()

    def _fused(self, x: Tensor, shortcut: Tensor | None, relu: bool) -> Tensor:
        kernels, statistics = _kernels(), (self.running_mean, self.running_var)
        assert kernels is not None
        if shortcut is not None:
            shortcut = shortcut.to(x.dtype).contiguous(memory_format=_CHANNELS_LAST)
        result: Tensor
        if not self.training:
            result = kernels.evaluated(x, self.weight, self.bias, *statistics, self.eps, shortcut, relu)
        else:
            running = *statistics, self.num_batches_tracked
            own = self.weight, self.bias, running, self.momentum, self.eps, self.tickets
            if self.doubled:
                result = _doubled_kernels().doubled_norm(x, *own, shortcut, relu)
            else:
                result = kernels.norm(x, *own, shortcut, relu, self.valid)
        return result


def norm_layer(norm: Norm, channels: int) -> nn.Module:
    """Batch norm, group norm (Wu and He 2018) with at most 32 groups, or the identity.

    Group norm has no running statistics that clients with skewed labels would have to average.
    """
    if norm == "batch":
        return BatchNorm(channels)
    if norm == "group":
        return nn.GroupNorm(math.gcd(MAX_GROUPS, channels), channels)
    if norm == "none":
        return nn.Identity()
    raise InputError(f"norm must be 'batch', 'group' or 'none', not {norm!r}")


def norm_relu(norm: nn.Module, x: Tensor, shortcut: Tensor | None = None) -> Tensor:
    """Relu(norm(x) + shortcut), or relu(norm(x)) without a shortcut."""
    if isinstance(norm, NormThenRelu) and norm.fuses(x):
        return norm.then_relu(x, shortcut)
    result: Tensor = norm(x)
    return functional.relu(result if shortcut is None else result + shortcut, inplace=True)


def fuse_norms(model: nn.Module) -> None:
    """Let the model's batch norms compute in our GPU kernels, if these are available.

    Second derivatives are then not possible. The counters are copied with a model: make copies before this call.
    """
    kernels = _kernels()
    if kernels is None:
        return
    for module in model.modules():
        if isinstance(module, BatchNorm):
            module.tickets = kernels.tickets_for(1, module.num_features, module.weight.device)


def norms_can_be_masked(model: nn.Module) -> bool:
    """Whether `masked_norms` works: all norms are fused, or norms of single images."""
    return all(isinstance(norm, BatchNorm) and norm.tickets is not None for norm in _batch_norms(model))


@contextmanager
def masked_norms(model: nn.Module, valid: Tensor) -> Iterator[None]:
    """A context in which the model's norms take only the first images of a batch, as many as `valid` says."""
    for norm in _batch_norms(model):
        norm.valid = valid
    try:
        yield
    finally:
        for norm in _batch_norms(model):
            norm.valid = None


def _batch_norms(model: nn.Module) -> Iterator[Any]:
    return (module for module in model.modules() if isinstance(module, nn.modules.batchnorm._NormBase))
