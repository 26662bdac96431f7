"""The layers of our models whose classes may be replaced by faster ones that compute the same."""

import math
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional

from fedeas.core.errors import InputError

Norm = Literal["batch", "group", "none"]

MAX_GROUPS = 32


class Conv(nn.Conv2d):
    """A convolution of our models."""


class BatchNorm(nn.BatchNorm2d):
    """A batch norm of our models."""


class NormThenRelu(nn.Module):
    """A norm that includes the sum and the ReLU after it."""

    def then_relu(self, x: Tensor, shortcut: Tensor | None) -> Tensor:
        """Relu(norm(x) + shortcut)."""
        raise NotImplementedError


class MaxPool(nn.Module):
    """The largest value of each 3x3 window, at every second place."""

    def forward(self, x: Tensor) -> Tensor:
        """Half as many rows and columns."""
        return functional.max_pool2d(x, kernel_size=3, stride=2, padding=1)


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
    if isinstance(norm, NormThenRelu):
        return norm.then_relu(x, shortcut)
    result: Tensor = norm(x)
    return functional.relu(result if shortcut is None else result + shortcut, inplace=True)
