"""Layers of one client's model that compute in our kernels, or all at once; modules change their class to these.

*Norms* include the sum and the ReLU after them. *Convolutions* take bfloat16 copies of their weights that are made
together. A *doubled* batch has a direction for each image in its second half. Applied to it, a model returns its
outputs and their derivatives along the directions, both differentiable. Convolutions and averages are linear and take
both halves as they are; norms and the max-pool know that the second half are derivatives. This costs as much as a batch
of twice the size, while a second backward pass takes every norm apart into many small kernels.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedeas.gpu import load_kernels
from fedeas.models.layers import BatchNorm, Conv, MaxPool, NormThenRelu
from fedeas.models.networks import ResNet18

_kernels: Callable[[], Any] = partial(load_kernels, "norm_kernels")
_doubled_kernels: Callable[[], Any] = partial(load_kernels, "doubled_norm_kernels")
_CHANNELS_LAST = torch.channels_last


class KernelNorm(NormThenRelu):
    """A batch norm whose kernels include the sum and the ReLU after it.

    In training they take only the first images of a batch, or of each client's batch, as many as `valid` says, if that
    is set; the others become zero. If `doubled`, the second half of the batch are derivatives of the first along a
    direction, and so are the results.
    """

    weight: Any
    bias: Any
    running_mean: Any
    running_var: Any
    num_batches_tracked: Any
    momentum: Any
    eps: float
    num_features: int
    tickets: Tensor | None = None
    valid: Tensor | None = None
    doubled: bool = False

    def forward(self, x: Tensor) -> Tensor:
        """The normalised images."""
        return self.normalised(x, None, relu=False)

    def then_relu(self, x: Tensor, shortcut: Tensor | None) -> Tensor:
        """Relu(norm(x) + shortcut)."""
        return self.normalised(x, shortcut, relu=True)

    def kernels_for(self, x: Tensor) -> Any:
        """The kernels that take these images, if there are any: in training, or in evaluation without gradients."""
        raise NotImplementedError

    def in_torch(self, x: Tensor) -> Tensor:
        """The normalised images without kernels."""
        raise NotImplementedError

    def normalised(self, x: Tensor, shortcut: Tensor | None, relu: bool) -> Tensor:
        """The normalised images plus the shortcut, if there is one, and their ReLU if asked for."""
        kernels, statistics = self.kernels_for(x), (self.running_mean, self.running_var)
        if kernels is None:
            plain = self.in_torch(x)
            plain = plain if shortcut is None else plain + shortcut
            return functional.relu(plain, inplace=True) if relu else plain
        if shortcut is not None:
            shortcut = shortcut.to(x.dtype).contiguous(memory_format=_CHANNELS_LAST)
        result: Tensor
        if not self.training:
            result = kernels.evaluated(x, self.weight, self.bias, *statistics, self.eps, shortcut, relu)
            return result
        running = *statistics, self.num_batches_tracked
        own = self.weight, self.bias, running, self.momentum, self.eps, self.tickets
        if self.doubled:
            result = _doubled_kernels().doubled_norm(x, *own, shortcut, relu)
        else:
            result = kernels.norm(x, *own, shortcut, relu, self.valid)
        return result


class FusedBatchNorm(KernelNorm, BatchNorm):
    """A batch norm of one client; `fuse_norms` makes it."""

    def kernels_for(self, x: Tensor) -> Any:
        """The kernels, if they take these images."""
        # torch reports the error for a single value, which has no variance, and computes gradients in evaluation mode.
        fits = x.numel() > self.num_features if self.training else not torch.is_grad_enabled()
        return _kernels() if fits and x.is_contiguous(memory_format=_CHANNELS_LAST) else None

    def in_torch(self, x: Tensor) -> Tensor:
        """The normalised images without kernels."""
        assert not self.training or (self.valid is None and not self.doubled)  # torch would take all images as values
        return BatchNorm.forward(self, x)


def fuse_norms(model: nn.Module) -> None:
    """Let the model's batch norms compute in our GPU kernels, if these are available.

    Second derivatives are then not possible. The counters are copied with a model: make copies before this call.
    """
    kernels = _kernels()
    for module in model.modules() if kernels is not None else ():
        if isinstance(module, BatchNorm):
            module.__class__ = FusedBatchNorm
            module.tickets = kernels.tickets_for(1, module.num_features, module.weight.device)


def norms_can_be_masked(model: nn.Module) -> bool:
    """Whether `masked_norms` works: all norms are fused, or norms of single images."""
    return all(isinstance(norm, FusedBatchNorm) for norm in _batch_norms(model))


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


class ShortConv(Conv):
    """A convolution that computes with `short`, its bfloat16 weight, in training."""

    short: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """The convolved images."""
        # In evaluation mode the weights may be those of another model, which have no short form.
        result: Tensor = self._conv_forward(x, self.short if self.training else self.weight, self.bias)
        return result


@contextmanager
def shortened(model: nn.Module) -> Iterator[None]:
    """A context in which all convolutions of a model compute with bfloat16 copies of their weights, made together.

    Gradients flow to the weights themselves. The result equals autocast's, which casts them one by one.
    """
    convs: list[Any] = [module for module in model.modules() if isinstance(module, Conv)]
    short = _Shortened.apply(*(conv.weight for conv in convs)) if convs else ()  # type: ignore[no-untyped-call]
    for conv, weight in zip(convs, short, strict=True):
        conv.__class__, conv.short = ShortConv, weight
    try:
        yield
    finally:
        for conv in convs:
            conv.__class__ = Conv
            del conv.short


class _Shortened(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *weights: Tensor) -> tuple[Tensor, ...]:
        return tuple(_copies(weights, torch.bfloat16))

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, ...]:
        return tuple(_copies(slopes, torch.float32))


def _copies(tensors: tuple[Tensor, ...], dtype: torch.dtype) -> list[Tensor]:
    copies = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    torch._foreach_copy_(copies, list(tensors))
    return copies


class DoubledMaxPool(MaxPool):
    """A max-pool of doubled batches, which takes the derivatives of the largest values."""

    def forward(self, x: Tensor) -> Tensor:
        """Half as many rows and columns."""
        values, derivatives = x.chunk(2)
        largest, place = functional.max_pool2d(values, kernel_size=3, stride=2, padding=1, return_indices=True)
        taken = derivatives.flatten(2).gather(2, place.flatten(2)).view_as(largest)
        return torch.cat([largest, taken]).contiguous(memory_format=_CHANNELS_LAST)


class DoubledResNet18(ResNet18):
    """A ResNet-18 with fused norms that also computes derivatives; `double` makes it."""

    def outputs_and_derivatives(self, images: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs for the images, and their derivatives along the directions."""
        both = torch.cat([images, directions]).contiguous(memory_format=_CHANNELS_LAST)
        norms = [module for module in self.modules() if isinstance(module, FusedBatchNorm)]
        pools = [module for module in self.modules() if isinstance(module, MaxPool)]
        for norm in norms:
            norm.doubled = True
        for pool in pools:
            pool.__class__ = DoubledMaxPool
        try:
            outputs, derivatives = self(both).chunk(2)
        finally:
            for norm in norms:
                norm.doubled = False
            for pool in pools:
                pool.__class__ = MaxPool
        return outputs, derivatives - self.head.bias  # the head has added it to both halves


def can_be_doubled(model: nn.Module) -> bool:
    """Whether `double` works once the model's norms are fused: a ResNet-18 with batch norms."""
    return isinstance(model, ResNet18) and isinstance(model.bn1, BatchNorm)


def double(model: nn.Module) -> None:
    """Give the model `outputs_and_derivatives`, if its norms are fused: then second derivatives are not needed."""
    if can_be_doubled(model) and norms_can_be_masked(model):
        model.__class__ = DoubledResNet18
