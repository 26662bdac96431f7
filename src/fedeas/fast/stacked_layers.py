"""Layers that hold the weights of several clients at once, stacked along a first axis.

Images of the clients follow each other in the batch, each client with the same number of rows. A convolution becomes a
matrix product: every row holds the pixels that one output sees, and clients are the batch of the product. Weights have
the layout that the product needs; `laid_out` and `put_back` convert.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedeas.fast.fused_layers import KernelNorm
from fedeas.gpu import branch, load_kernels
from fedeas.models.layers import MaxPool, norm_relu
from fedeas.models.networks import BasicBlock

ALIGNMENT = 8
"""The rows of a weight matrix are padded to a multiple of this, since products of other sizes are slow on a GPU."""


@dataclass(frozen=True)
class KernelWindow:
    """The part of a kernel that is ever applied to a pixel, and how far it reaches over the border.

    On feature maps smaller than the kernel, the rest of it is only applied to padding and never trained.
    """

    rows: slice
    columns: slice
    top: int
    left: int

    @staticmethod
    def of(conv: nn.Conv2d, height: int, width: int, whole: bool = False) -> KernelWindow:
        """The window of a convolution over feature maps of this size; `whole` keeps all of the kernel."""
        stride, padding = conv.stride, conv.padding
        sizes = (conv.kernel_size[0], height), (conv.kernel_size[1], width)
        met = []
        for axis, (kernel, size) in enumerate(sizes):
            reach = (size + 2 * int(padding[axis]) - kernel) // stride[axis] * stride[axis] - int(padding[axis])
            seen = range(-int(padding[axis]), reach + 1, stride[axis])  # where the kernel begins
            at = [at for at in range(kernel) if whole or any(0 <= first + at < size for first in seen)]
            met.append(slice(at[0], at[-1] + 1))
        return KernelWindow(met[0], met[1], int(padding[0]) - met[0].start, int(padding[1]) - met[1].start)


class StackedConv(nn.Module):
    """A convolution for each client; in training it computes with `short`, its bfloat16 weight, if that is set.

    `beside` computes the gradient of the weight on a separate stream: only if nothing else in the pass adds to it.
    `update` takes the gradient at once instead of leaving it in ``weight.grad``.
    """

    short: Tensor | None = None
    beside: bool = False
    update: Callable[[Tensor], None] | None = None

    def __init__(self, conv: nn.Conv2d, clients: int, window: KernelWindow) -> None:
        super().__init__()
        self.window, self.stride, self.padding = window, conv.stride[0], int(conv.padding[0])
        self.kernel_size = conv.kernel_size
        self.weight = _stacked(self.laid_out(conv.weight), clients)
        self.bias = None if conv.bias is None else _stacked(conv.bias, clients)

    def laid_out(self, kernels: Tensor) -> Tensor:
        """Kernels of one or many clients in the layout of the stack: a matrix of (row, column, channel) x output."""
        matrix = self._window_of(kernels).movedim((-2, -1, -3, -4), (-4, -3, -2, -1)).flatten(-4, -2)
        return functional.pad(matrix, (0, 0, 0, -matrix.shape[-2] % ALIGNMENT))

    def put_back(self, kernels: Tensor) -> None:
        """Write the stacked weights into kernels of their usual shape, (clients, outputs, channels, rows, columns)."""
        target = self._window_of(kernels).movedim((-2, -1, -3, -4), (-4, -3, -2, -1))
        target.copy_(self.weight[:, : target[0, ..., 0].numel()].view(target.shape))

    def _window_of(self, kernels: Tensor) -> Tensor:
        return kernels[..., self.window.rows, self.window.columns]

    def forward(self, x: Tensor) -> Tensor:
        """The convolved images."""
        kernels = _kernels_for(x)
        short = self.short if self.training and kernels is not None else None  # torch gives a copy's slopes to the copy
        if short is None and torch.is_autocast_enabled(x.device.type):
            short = self.weight.to(torch.get_autocast_dtype(x.device.type))
        weight = self.weight if short is None else short
        x = x.to(weight.dtype)
        if kernels is None:
            result = _convolved(x, weight, self._geometry(x))
        else:
            result = kernels.convolved(x, self.weight, weight.detach(), self._geometry(x), self)
        if self.bias is not None:
            result = (_by_client(result, weight) + _per_channel(self.bias.to(result.dtype))).flatten(0, 1)
        return result

    def _geometry(self, x: Tensor) -> Geometry:
        height, width = (
            (size + 2 * self.padding - kernel) // self.stride + 1
            for size, kernel in zip(x.shape[2:], self.kernel_size, strict=True)
        )
        rows, columns = (part.stop - part.start for part in (self.window.rows, self.window.columns))
        return Geometry(rows, columns, self.stride, self.window.top, self.window.left, height, width)


@dataclass(frozen=True)
class Geometry:
    """How a window of `rows` x `columns` moves over images, and the height and width of the result."""

    rows: int
    columns: int
    stride: int
    top: int
    left: int
    height: int
    width: int

    def gathers_nothing(self, height: int, width: int) -> bool:
        """Whether each output sees one pixel, or one whole image of this size: then its inputs are a row already."""
        seen, inside = (self.rows, self.columns), (self.top, self.left) == (0, 0)
        whole_image = seen == (height, width) and (self.height, self.width) == (1, 1)
        return inside and (whole_image or (*seen, self.stride) == (1, 1, 1))


def _convolved(x: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """The convolution without our kernels, in torch's functions."""
    height, width, stride = geometry.height, geometry.width, geometry.stride
    bottom = (height - 1) * stride + geometry.rows - geometry.top - x.shape[2]
    right = (width - 1) * stride + geometry.columns - geometry.left - x.shape[3]
    padded = functional.pad(x, (geometry.left, right, geometry.top, bottom))
    seen = padded.unfold(2, geometry.rows, stride).unfold(3, geometry.columns, stride)
    patches = seen.permute(0, 2, 3, 4, 5, 1).flatten(3)  # the inputs of each output in (row, column, channel) order
    matrix = functional.pad(patches, (0, weight.shape[1] - patches.shape[-1]))
    result = torch.bmm(matrix.reshape(len(weight), -1, weight.shape[1]), weight)
    return result.view(len(x), height, width, -1).permute(0, 3, 1, 2)


class StackedBatchNorm(KernelNorm):
    """Batch norm of each client over its own valid rows; the other rows become zero and give no gradient."""

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor
    valid: Tensor

    def __init__(self, norm: nn.BatchNorm2d, clients: int, valid: Tensor) -> None:
        super().__init__()
        self.momentum, self.eps, self.num_features, self.valid = norm.momentum, norm.eps, norm.num_features, valid
        self.weight, self.bias = _stacked(norm.weight, clients), _stacked(norm.bias, clients)
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            like = getattr(norm, name)
            self.register_buffer(name, like.new_zeros(clients, *like.shape))
        kernels = _kernels_for(valid)  # tickets are made here, since a recorded step would make them each time
        self.tickets = None if kernels is None else kernels.tickets_for(clients, norm.num_features, valid.device)

    def kernels_for(self, x: Tensor) -> Any:
        """The kernels, if they take these images."""
        return _kernels_for(x) if self.training or not torch.is_grad_enabled() else None

    def in_torch(self, x: Tensor) -> Tensor:
        """Normalise by the statistics of the valid rows, and update the running ones; in evaluation, by these."""
        if not self.training:
            scale = self.weight * torch.rsqrt(self.running_var + self.eps)
            shift = _per_channel(self.bias - self.running_mean * scale)
            return (_by_client(x, self.weight) * _per_channel(scale) + shift).flatten(0, 1).to(x.dtype)
        assert self.momentum is not None
        images = _by_client(x, self.weight).to(self.weight.dtype)  # (K, B, C, H, W)
        rows = torch.arange(images.shape[1], device=x.device)[None, :] < self.valid[:, None]
        mask = rows[:, :, None, None, None].to(images.dtype)
        count = (self.valid * x.shape[2] * x.shape[3])[:, None].to(images.dtype)
        mean = (images * mask).sum(dim=(1, 3, 4)) / count
        away = (images - _per_channel(mean)) * mask
        variance = away.square().sum(dim=(1, 3, 4)) / count
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * count / (count - 1), self.momentum)
            self.num_batches_tracked.add_(1)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        result = (away * _per_channel(scale) + _per_channel(self.bias)) * mask
        return result.flatten(0, 1).to(x.dtype)


class StackedGroupNorm(nn.Module):
    """Group norm with weight and bias for each client; its statistics belong to each image."""

    def __init__(self, norm: nn.GroupNorm, clients: int) -> None:
        super().__init__()
        self.groups, self.eps = norm.num_groups, norm.eps
        self.weight, self.bias = _stacked(norm.weight, clients), _stacked(norm.bias, clients)

    def forward(self, x: Tensor) -> Tensor:
        """The normalised images."""
        plain = _by_client(functional.group_norm(x, self.groups, eps=self.eps), self.weight)
        return (plain * _per_channel(self.weight) + _per_channel(self.bias)).flatten(0, 1)


class StackedBlock(BasicBlock):
    """A block that projects its shortcut beside the convolutions."""

    def forward(self, x: Tensor) -> Tensor:
        """Relu(x + F(x)), where x is projected if the shapes differ."""
        if self.downsample is None or not x.is_cuda:
            return super().forward(x)
        shortcut, wait = branch(partial(self.downsample, x), x.device)
        inner = self.conv2(norm_relu(self.bn1, self.conv1(x)))
        wait()
        return norm_relu(self.bn2, inner, shortcut)


class FastMaxPool(MaxPool):
    """`MaxPool` in our own kernels, if available; first derivative only."""

    def forward(self, x: Tensor) -> Tensor:
        """The largest values."""
        kernels = _kernels_for(x)
        result: Tensor = super().forward(x) if kernels is None else kernels.max_pooled(x)
        return result


class StackedLinear(nn.Module):
    """A linear layer for each client."""

    def __init__(self, linear: nn.Linear, clients: int) -> None:
        super().__init__()
        self.weight, self.bias = _stacked(linear.weight, clients), _stacked(linear.bias, clients)

    def forward(self, x: Tensor) -> Tensor:
        """The outputs, client after client."""
        rows, kernels = x.view(len(self.weight), -1, x.shape[-1]), _kernels_for(x, "head_kernels")
        if kernels is None or not kernels.fits(rows.shape[1], self.bias):
            return torch.baddbmm(self.bias[:, None], rows, self.weight.transpose(1, 2)).flatten(0, 1)
        if torch.is_autocast_enabled(x.device.type):
            rows = rows.to(torch.get_autocast_dtype(x.device.type))
        result: Tensor = kernels.linear(rows, self.weight, self.bias).flatten(0, 1)
        return result


def _stacked(like: Tensor, clients: int) -> nn.Parameter:
    """Zeros with the shape of one client's parameter for each client."""
    return nn.Parameter(like.detach().new_zeros(clients, *like.shape))


def _per_channel(values: Tensor) -> Tensor:
    """Values of each client and channel, beside the client's images."""
    return values[:, None, :, None, None]


def _by_client(images: Tensor, like: Tensor) -> Tensor:
    """Split the first axis into clients and images of a client; `like` has as many rows as there are clients."""
    return images.view(len(like), -1, *images.shape[1:])


def _kernels_for(x: Tensor, name: str = "stacked_kernels") -> ModuleType | None:
    """Our own kernels, if the tensor is on a GPU and they can be loaded."""
    return load_kernels(name) if x.is_cuda else None
