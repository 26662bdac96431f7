# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""Batch norm for GPUs in four kernels: statistics, result, and the same for the gradients. Needs Triton.

The steps around it are done in the same kernels: result = relu(norm(x) + shortcut), the last two being optional. torch
has no such kernel for bfloat16, and small batches spend a third of their time in its norms. Images lie channels last,
so that a tensor is a matrix of pixels x channels. A column is summed in parts; whoever finishes the last part adds
them up in their order, so that results are the same every time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 64
"""Pixels that a program reads at once."""

COLUMNS = 64
"""Channels of a program, at most."""

PROGRAMS = 128
"""About as many as the GPU has processors; the other lanes want some too."""

WARPS = 4
"""Of the programs that sum."""

_WITHOUT_VARIANTS = ["rows", "part", "parts"]  # one compilation for all batch sizes


def norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running: tuple[Tensor, Tensor, Tensor],
    momentum: float,
    eps: float,
    tickets: Tensor,
    shortcut: Tensor | None = None,
    relu: bool = False,
) -> Tensor:
    """Batch norm with the batch's own statistics; `running` mean, variance and count of batches are brought up to date.

    Args:
        x: images, channels last.
        weight: of each channel.
        bias: of each channel.
        running: changed in place.
        momentum: weight of this batch in the running statistics.
        eps: added to the variance.
        tickets: zeros for the programs to count with, as `tickets_for` makes them; zeros again afterwards. Calls at the
            same time need their own.
        shortcut: added to the result.
        relu: whether negative results become zero.
    """
    result: Tensor = _Norm.apply(  # type: ignore[no-untyped-call]
        x, weight, bias, running, momentum, eps, tickets, shortcut, relu
    )
    return result


def evaluated(
    x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, eps: float,
    shortcut: Tensor | None = None, relu: bool = False,
) -> Tensor:  # fmt: skip
    """Batch norm with given statistics, without gradients."""
    grid, result = _Grid.of(x), torch.empty_like(x)
    other = x if shortcut is None else shortcut
    _result[grid.tiles](
        x, other, result, mean, (variance + eps).rsqrt(), weight, bias,
        grid.rows, grid.columns, shortcut is not None, relu, ROWS, grid.width,
    )  # fmt: skip
    return result


def tickets_for(channels: int, device: torch.device) -> Tensor:
    """A counter for each program that sums columns."""
    return torch.zeros(triton.cdiv(channels, _width(channels)), dtype=torch.int32, device=device)


class _Norm(torch.autograd.Function):
    """The first derivative only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, running: Any, momentum: float, eps: float,
                tickets: Tensor, shortcut: Tensor | None, relu: bool) -> Tensor:  # fmt: skip
        grid, result = _Grid.of(x), torch.empty_like(x)
        mean, inverse = x.new_empty((2, grid.columns), dtype=torch.float32)
        _statistics[grid.sums](
            x, *grid.sheets(x), tickets, mean, inverse, *running,
            grid.rows, grid.columns, grid.part, grid.parts, momentum, eps,
            ROWS, grid.width, grid.most_parts, num_warps=WARPS,
        )  # fmt: skip
        other = x if shortcut is None else shortcut
        _result[grid.tiles](
            x, other, result, mean, inverse, weight, bias,
            grid.rows, grid.columns, shortcut is not None, relu, ROWS, grid.width,
        )  # fmt: skip
        # Where x tells which results are positive, they need not be kept.
        ctx.save_for_backward(x, x if shortcut is None else result, weight, bias, mean, inverse)
        ctx.relu, ctx.with_shortcut, ctx.tickets = relu, shortcut is not None, tickets
        return result

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        x, result, weight, bias, mean, inverse = ctx.saved_tensors
        grid, slope = _Grid.of(x), slope.contiguous(memory_format=torch.channels_last)
        of_x = torch.empty_like(x)
        of_shortcut = torch.empty_like(x) if ctx.with_shortcut else None
        of_weight, of_bias, factor = x.new_empty((3, grid.columns), dtype=torch.float32)
        _slope_sums[grid.sums](
            slope, x, result, *grid.sheets(x), ctx.tickets, mean, inverse, weight, bias, of_weight, of_bias, factor,
            grid.rows, grid.columns, grid.part, grid.parts,
            ctx.relu, ctx.with_shortcut, ROWS, grid.width, grid.most_parts, num_warps=WARPS,
        )  # fmt: skip
        _slopes[grid.tiles](
            slope, x, result, of_x, of_x if of_shortcut is None else of_shortcut,
            mean, inverse, weight, bias, of_bias, factor,
            grid.rows, grid.columns, ctx.relu, ctx.with_shortcut, ROWS, grid.width,
        )  # fmt: skip
        return of_x, of_weight, of_bias, None, None, None, None, of_shortcut, None


@dataclass(frozen=True)
class _Grid:
    """How a matrix is cut: `sums` in parts of columns, `tiles` in small pieces."""

    rows: int
    columns: int
    width: int
    part: int
    parts: int
    most_parts: int

    @staticmethod
    def of(x: Tensor) -> _Grid:
        rows, columns = x.numel() // x.shape[1], x.shape[1]
        width = _width(columns)
        most = max(1, PROGRAMS // int(triton.next_power_of_2(triton.cdiv(columns, width))))
        part = triton.cdiv(triton.cdiv(rows, most), ROWS) * ROWS
        return _Grid(rows, columns, width, part, triton.cdiv(rows, part), most)

    @property
    def sums(self) -> tuple[int, int]:
        return self.parts, triton.cdiv(self.columns, self.width)

    @property
    def tiles(self) -> tuple[int, int]:
        return triton.cdiv(self.rows, ROWS), triton.cdiv(self.columns, self.width)

    def sheets(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Where the programs note two sums of every part."""
        first, second = like.new_empty((2, self.parts, self.columns), dtype=torch.float32)
        return first, second


def _width(columns: int) -> int:
    return min(COLUMNS, int(triton.next_power_of_2(columns)))


@triton.jit(do_not_specialize=_WITHOUT_VARIANTS)
def _statistics(
    x, means, squares, done, mean_out, inverse_out, running_mean, running_var, batches,
    rows, columns, part, parts, momentum, eps, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Mean and 1 / deviation of each channel; running statistics as torch keeps them."""
    number, column = tl.program_id(0), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < columns
    start, end = number * part, tl.minimum(number * part + part, rows)
    # Squares of the distance to some pixel lose no digits where the mean is far from zero.
    pivot = tl.load(x + start.to(tl.int64) * columns + column, inside, 0.0).to(tl.float32)
    total, square = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(start, end, ROWS):
        row = first + tl.arange(0, ROWS)
        there = (row < end)[:, None] & inside[None, :]
        value = tl.load(x + row.to(tl.int64)[:, None] * columns + column[None, :], there, 0.0).to(tl.float32)
        value = tl.where(there, value - pivot[None, :], 0.0)
        total += value
        square += value * value
    count = (end - start).to(tl.float32)
    sums = tl.sum(total, 0)
    tl.store(means + number * columns + column, pivot + sums / count, inside)
    tl.store(squares + number * columns + column, tl.sum(square, 0) - sums * sums / count, inside)
    tl.debug_barrier()
    if tl.atomic_add(done + tl.program_id(1), 1, sem="acq_rel") == parts - 1:
        each = tl.arange(0, PARTS)
        noted, place = (each < parts)[:, None] & inside[None, :], each[:, None] * columns + column[None, :]
        counts = tl.minimum(part, rows - each * part).to(tl.float32)[:, None]
        their_means = tl.load(means + place, noted, 0.0, cache_modifier=".cg")
        mean = tl.sum(tl.where(noted, counts * their_means, 0.0), 0) / rows
        away = their_means - mean[None, :]
        within = tl.load(squares + place, noted, 0.0, cache_modifier=".cg")
        spread = tl.sum(tl.where(noted, within + counts * away * away, 0.0), 0)
        tl.store(mean_out + column, mean, inside)
        tl.store(inverse_out + column, 1 / tl.sqrt(spread / rows + eps), inside)
        old_mean, old_var = tl.load(running_mean + column, inside, 0.0), tl.load(running_var + column, inside, 0.0)
        tl.store(running_mean + column, old_mean + momentum * (mean - old_mean), inside)
        tl.store(running_var + column, old_var + momentum * (spread / (rows - 1) - old_var), inside)
        tl.store(done + tl.program_id(1), 0)
        if tl.program_id(1) == 0:
            tl.store(batches, tl.load(batches) + 1)


@triton.jit(do_not_specialize=_WITHOUT_VARIANTS)
def _result(
    x, shortcut, out, mean_in, inverse_in, weight, bias, rows, columns,
    ADD: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """(x - mean) / deviation * weight + bias, and what follows."""
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < columns
    there, place = (row < rows)[:, None] & inside[None, :], row.to(tl.int64)[:, None] * columns + column[None, :]
    mean, shift = tl.load(mean_in + column, inside, 0.0), tl.load(bias + column, inside, 0.0)
    scale = tl.load(inverse_in + column, inside, 0.0) * tl.load(weight + column, inside, 0.0)
    value = (tl.load(x + place, there, 0.0).to(tl.float32) - mean[None, :]) * scale[None, :] + shift[None, :]
    if ADD:
        value += tl.load(shortcut + place, there, 0.0).to(tl.float32)
    if RELU:
        value = tl.maximum(value, 0.0)
    tl.store(out + place, value.to(out.dtype.element_ty), there)


@triton.jit(do_not_specialize=_WITHOUT_VARIANTS)
def _slope_sums(
    slope, x, out, sums, products, done, mean_in, inverse_in, weight, bias, of_weight, of_bias, factor,
    rows, columns, part, parts,
    RELU: tl.constexpr, ADD: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Gradients of weight and bias; `factor` is what the gradient of x takes of (x - mean)."""
    number, column = tl.program_id(0), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < columns
    start, end = number * part, tl.minimum(number * part + part, rows)
    mean, shift = tl.load(mean_in + column, inside, 0.0), tl.load(bias + column, inside, 0.0)
    inverse = tl.load(inverse_in + column, inside, 0.0)
    scale = inverse * tl.load(weight + column, inside, 0.0)
    total, product = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(start, end, ROWS):
        row = first + tl.arange(0, ROWS)
        there, place = (row < end)[:, None] & inside[None, :], row.to(tl.int64)[:, None] * columns + column[None, :]
        value = tl.load(slope + place, there, 0.0).to(tl.float32)
        away = tl.load(x + place, there, 0.0).to(tl.float32) - mean[None, :]
        if RELU:
            height = tl.load(out + place, there, 0.0).to(tl.float32) if ADD else away * scale[None, :] + shift[None, :]
            value = tl.where(height > 0, value, 0.0)
        total += value
        product += value * away
    tl.store(sums + number * columns + column, tl.sum(total, 0), inside)
    tl.store(products + number * columns + column, tl.sum(product, 0), inside)
    tl.debug_barrier()
    if tl.atomic_add(done + tl.program_id(1), 1, sem="acq_rel") == parts - 1:
        each = tl.arange(0, PARTS)
        noted, place = (each < parts)[:, None] & inside[None, :], each[:, None] * columns + column[None, :]
        whole = tl.sum(tl.load(sums + place, noted, 0.0, cache_modifier=".cg"), 0)
        mixed = tl.sum(tl.load(products + place, noted, 0.0, cache_modifier=".cg"), 0)
        tl.store(of_weight + column, mixed * inverse, inside)
        tl.store(of_bias + column, whole, inside)
        tl.store(factor + column, mixed * inverse * inverse / rows, inside)
        tl.store(done + tl.program_id(1), 0)


@triton.jit(do_not_specialize=_WITHOUT_VARIANTS)
def _slopes(
    slope, x, out, of_x, of_shortcut, mean_in, inverse_in, weight, bias, of_bias, factor_in, rows, columns,
    RELU: tl.constexpr, ADD: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Gradients of x and of the shortcut."""
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < columns
    there, place = (row < rows)[:, None] & inside[None, :], row.to(tl.int64)[:, None] * columns + column[None, :]
    mean, shift = tl.load(mean_in + column, inside, 0.0), tl.load(bias + column, inside, 0.0)
    scale = tl.load(inverse_in + column, inside, 0.0) * tl.load(weight + column, inside, 0.0)
    value = tl.load(slope + place, there, 0.0).to(tl.float32)
    away = tl.load(x + place, there, 0.0).to(tl.float32) - mean[None, :]
    if RELU:
        height = tl.load(out + place, there, 0.0).to(tl.float32) if ADD else away * scale[None, :] + shift[None, :]
        value = tl.where(height > 0, value, 0.0)
    if ADD:
        tl.store(of_shortcut + place, value.to(of_shortcut.dtype.element_ty), there)
    centre, factor = tl.load(of_bias + column, inside, 0.0) / rows, tl.load(factor_in + column, inside, 0.0)
    result = scale[None, :] * (value - centre[None, :] - away * factor[None, :])
    tl.store(of_x + place, result.to(of_x.dtype.element_ty), there)
