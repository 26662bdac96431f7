"""The norms of our models, and the steps after them, which a GPU can do in the same kernels."""

from __future__ import annotations

import importlib
import math
from functools import cache
from types import ModuleType
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedeas.errors import InputError

Norm = Literal["batch", "group", "none"]

MAX_GROUPS = 32
_CHANNELS_LAST = torch.channels_last


class NormThenRelu(nn.Module):
    """A norm that can do the steps after it as well."""

    def fuses(self, x: Tensor) -> bool:
        """Whether it can do so for these images."""
        raise NotImplementedError

    def then_relu(self, x: Tensor, shortcut: Tensor | None) -> Tensor:
        """Relu(norm(x) + shortcut) in one go, for images that `fuses` says yes to."""
        raise NotImplementedError


class BatchNorm(NormThenRelu, nn.BatchNorm2d):
    """torch's own, until `fuse_norms` lets it train in kernels that do the steps after it as well."""

    tickets: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """The normalised images."""
        return self._fused(x, None, relu=False) if self.fuses(x) else super().forward(x)

    def then_relu(self, x: Tensor, shortcut: Tensor | None) -> Tensor:
        """Relu(norm(x) + shortcut) in one go, for images that `fuses` says yes to."""
        return self._fused(x, shortcut, relu=True)

    def fuses(self, x: Tensor) -> bool:
        """Whether the kernels can take these images."""
        if self.tickets is None or not x.is_contiguous(memory_format=_CHANNELS_LAST):
            return False
        # A single value has no spread, which is torch's to say. Gradients in evaluation mode are torch's, too.
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
            result = kernels.norm(x, *own, shortcut, relu)
        return result


def norm_layer(norm: Norm, channels: int) -> nn.Module:
    """Batch norm, group norm (Wu and He 2018) of at most 32 groups, or nothing.

    Group norm keeps no running statistics, which clients with skewed labels would have to average.
    """
    if norm == "batch":
        return BatchNorm(channels)
    if norm == "group":
        return nn.GroupNorm(math.gcd(MAX_GROUPS, channels), channels)
    if norm == "none":
        return nn.Identity()
    raise InputError(f"norm must be 'batch', 'group' or 'none', not {norm!r}")


def norm_relu(norm: nn.Module, x: Tensor, shortcut: Tensor | None = None) -> Tensor:
    """Relu(norm(x) + shortcut), where there is one."""
    if isinstance(norm, NormThenRelu) and norm.fuses(x):
        return norm.then_relu(x, shortcut)
    result: Tensor = norm(x)
    return functional.relu(result if shortcut is None else result + shortcut, inplace=True)


def fuse_norms(model: nn.Module) -> None:
    """From now on the model's batch norms compute in the kernels of a GPU, where there are any.

    Second derivatives cannot be taken then. A model that is copied takes its counters along: copy it before.
    """
    kernels = _kernels()
    if kernels is None:
        return
    for module in model.modules():
        if isinstance(module, BatchNorm):
            module.tickets = kernels.tickets_for(1, module.num_features, module.weight.device)


@cache
def _kernels() -> ModuleType | None:
    """The module that needs Triton, which comes with torch for GPUs."""
    try:
        return importlib.import_module("fedeas.gpu.norm_kernels")
    except ImportError:
        return None
