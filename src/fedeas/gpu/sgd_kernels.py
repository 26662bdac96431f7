# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""Plain SGD for many tensors in one kernel, which also writes their bfloat16 copies. Needs Triton."""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl
from torch import Tensor

WIDE = 2048
"""Values of a program."""


def descend(weights: Sequence[Tensor], slopes: Sequence[Tensor], copies: Sequence[Tensor], rate: Tensor) -> None:
    """Subtract rate * slope from each weight in place, and write the new weights to their bfloat16 copies.

    The weights are contiguous float32 tensors whose first axis is the same; the rate is on the GPU.
    """
    sizes = tuple(weight[0].numel() for weight in weights)
    clients = len(weights[0])
    programs = sum(triton.cdiv(size * clients, WIDE) for size in sizes)
    slopes = [slope.contiguous() for slope in slopes]
    _descend[(programs,)](tuple(weights), tuple(slopes), tuple(copies), rate, clients, sizes, WIDE)


@triton.jit(do_not_specialize=["clients"])
def _descend(weights, slopes, copies, rate, clients, SIZES: tl.constexpr, WIDE: tl.constexpr):
    """Each program finds its tensor by its number; the tensors follow each other."""
    program = tl.program_id(0)
    weight, slope, copy, size, first = weights[0], slopes[0], copies[0], SIZES[0] * clients, program * 0
    begin = tl.cdiv(size, WIDE)  # the first program of the next tensor
    for i in tl.static_range(1, len(SIZES)):
        here = program >= begin
        weight, slope = tl.where(here, weights[i], weight), tl.where(here, slopes[i], slope)
        copy = tl.where(here, copies[i], copy)
        size, first = tl.where(here, SIZES[i] * clients, size), tl.where(here, begin, first)
        begin += tl.cdiv(SIZES[i] * clients, WIDE)
    place = (program - first) * WIDE + tl.arange(0, WIDE)
    inside = place < size
    value = tl.load(weight + place, inside, 0.0) - tl.load(rate) * tl.load(slope + place, inside, 0.0)
    tl.store(weight + place, value, inside)
    tl.store(copy + place, value.to(tl.bfloat16), inside)
