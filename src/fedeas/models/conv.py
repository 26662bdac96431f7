"""Convolutions whose weights can be cast to bfloat16 all at once; autocast casts them one by one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class Conv(nn.Conv2d):
    """torch's Conv2d; in training it computes with `short`, its bfloat16 weight, if that is set."""

    short: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """The convolved images."""
        # In evaluation mode the weights may be those of another model, which have no short form.
        weight = self.weight if self.short is None or not self.training else self.short
        result: Tensor = self._conv_forward(x, weight, self.bias)
        return result


@contextmanager
def shortened(model: nn.Module) -> Iterator[None]:
    """A context in which all convolutions of a model compute with bfloat16 copies of their weights, made together.

    Gradients flow to the weights themselves. The result equals autocast's, with two kernels for all weights.
    """
    convs = [module for module in model.modules() if isinstance(module, Conv)]
    short = _Shortened.apply(*(conv.weight for conv in convs)) if convs else ()  # type: ignore[no-untyped-call]
    for conv, weight in zip(convs, short, strict=True):
        conv.short = weight
    try:
        yield
    finally:
        for conv in convs:
            conv.short = None


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
