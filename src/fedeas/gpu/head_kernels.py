# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""The last layer of several clients at once, for GPUs. Needs Triton.

It is small, and torch spreads it over many kernels. Here it has one for the result and one for the gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedeas.gpu.tile_kernels import read, write

LEAST = 16
"""Triton multiplies matrices of at least this many rows and columns."""

MOST_ROWS, MOST_OUTPUTS = 256, 128
"""Larger batches and layers are left to torch."""

FEATURES = 64
"""Features that a program reads at once."""


def fits(rows: int, outputs: Tensor) -> bool:
    """Whether the kernels take clients with this many rows, and outputs of this size and precision."""
    small = rows <= MOST_ROWS and outputs.shape[1] <= MOST_OUTPUTS
    return small and outputs.dtype in (torch.float32, torch.bfloat16)


class _Linear(torch.autograd.Function):
    """First derivative only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        x = x.contiguous()
        clients, rows, features = x.shape
        outputs = weight.shape[1]
        result = x.new_empty((clients, rows, outputs))
        _outputs[(triton.cdiv(rows, LEAST), clients)](
            x, weight, bias, result, rows, outputs, features, LEAST, FEATURES, _padded(outputs)
        )
        ctx.save_for_backward(x, weight)
        return result

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        clients, rows, features = x.shape
        outputs = weight.shape[1]
        of_x, of_weight, of_bias = torch.empty_like(x), torch.empty_like(weight), weight.new_empty((clients, outputs))
        _output_slopes[(triton.cdiv(features, FEATURES), clients)](
            slope.contiguous(), x, weight, of_x, of_weight, of_bias, rows, features, outputs,
            _padded(rows), FEATURES, _padded(outputs),
        )  # fmt: skip
        return of_x, of_weight, of_bias


linear: Callable[..., Tensor] = _Linear.apply
"""A linear layer for each client, in the precision of x; gradients have the precision of the weights.

`x` is (clients, rows, features), `weight` (clients, outputs, features), `bias` (clients, outputs).
"""


def _padded(size: int) -> int:
    return max(LEAST, int(triton.next_power_of_2(size)))


@triton.jit(do_not_specialize=["rows"])
def _outputs(
    x, weight, bias, out, rows, outputs,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, FEATURES: tl.constexpr, OUTPUTS: tl.constexpr,
):  # fmt: skip
    row, output, client = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, OUTPUTS), tl.program_id(1)
    there, known = (row < rows)[:, None], output < outputs
    source = x + (client * rows + row)[:, None] * WIDTH
    kernel = weight + (client * outputs + output)[None, :] * WIDTH
    total = tl.zeros((ROWS, OUTPUTS), tl.float32)
    for first in range(0, WIDTH, FEATURES):
        feature = first + tl.arange(0, FEATURES)
        seen = tl.load(source + feature[None, :], there & (feature < WIDTH)[None, :], 0.0)
        its = tl.load(kernel + feature[:, None], known[None, :] & (feature < WIDTH)[:, None], 0.0)
        total = tl.dot(seen, its.to(seen.dtype), total, input_precision="ieee")
    total += read(bias, client * outputs + output, known)[None, :]
    place = (client * rows + row)[:, None] * outputs + output[None, :]
    write(out, place, total, there & known[None, :])


@triton.jit(do_not_specialize=["rows"])
def _output_slopes(
    slope, x, weight, of_x, of_weight, of_bias, rows, features, outputs,
    ROWS: tl.constexpr, FEATURES: tl.constexpr, OUTPUTS: tl.constexpr,
):  # fmt: skip
    row, output, client = tl.arange(0, ROWS), tl.arange(0, OUTPUTS), tl.program_id(1)
    feature = tl.program_id(0) * FEATURES + tl.arange(0, FEATURES)
    there, known, asked = (row < rows)[:, None], output < outputs, (feature < features)[None, :]
    steep = tl.load(slope + (client * rows + row)[:, None] * outputs + output[None, :], there & known[None, :], 0.0)
    place = (client * rows + row)[:, None] * features + feature[None, :]
    kernel = (client * outputs + output)[:, None] * features + feature[None, :]
    seen = tl.load(x + place, there & asked, 0.0)
    its = tl.load(weight + kernel, known[:, None] & asked, 0.0)
    write(of_x, place, tl.dot(steep, its.to(steep.dtype), input_precision="ieee"), there & asked)
    write(of_weight, kernel, tl.dot(tl.trans(steep), seen, input_precision="ieee"), known[:, None] & asked)
    if tl.program_id(0) == 0:
        write(of_bias, client * outputs + output, tl.sum(steep.to(tl.float32), 0), known)
