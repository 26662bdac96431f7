# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""Batch norm of values and their derivatives along a direction, for GPUs. Needs Triton.

The first half of a batch are values x, the second half their derivatives t. With z = (x - mean) / deviation, the norm
is weight z + bias, and its derivative along t is weight / deviation (t - mean(t) - z mean(z t)). The backward pass
differentiates both. Like `norm_kernels`, these kernels include the steps after the norm, relu(norm(x) + shortcut), and
sum columns in parts that are always added up in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedeas.gpu.norm_kernels import WARPS, WITHOUT_VARIANTS, Grid, is_positive, update
from fedeas.gpu.tile_kernels import cells, is_last, read, read_parts, tile, write

MORE_WARPS = 2 * WARPS
"""Warps of the programs that sum: they hold twice as many sums as those of `norm_kernels`, in as many registers."""


class _DoubledNorm(torch.autograd.Function):
    """First derivative only, of values and derivatives."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, running: tuple[Tensor, ...], momentum: float, eps: float,
        tickets: Tensor, shortcut: Tensor | None, relu: bool,
    ) -> Tensor:  # fmt: skip
        grid, result = Grid(x[: len(x) // 2], weight), torch.empty_like(x)
        known, (rows, columns, _) = grid.memory(x, 4), grid.size
        _doubled_statistics[grid.sums](
            x, grid.memory(x, 4, grid.parts), tickets, known, running, rows, columns, grid.part, grid.parts,
            momentum, eps, *grid.tile, grid.most_parts, num_warps=MORE_WARPS,
        )  # fmt: skip
        _doubled_result[grid.tiles](x, shortcut, result, known, weight, bias, rows, columns, relu, *grid.tile)
        ctx.save_for_backward(x, None if shortcut is None else result, weight, bias, *known)
        ctx.relu, ctx.tickets = relu, tickets
        return result

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        x, out, weight, bias, *known = ctx.saved_tensors
        grid, slope = Grid(x[: len(x) // 2], weight), slope.contiguous(memory_format=torch.channels_last)
        of_x, of_shortcut = torch.empty_like(x), None if out is None else torch.empty_like(x)
        of_weight, of_bias = (torch.empty_like(weight, dtype=torch.float32) for _ in range(2))
        sums, (rows, columns, _) = grid.memory(x, 5), grid.size
        _doubled_slope_sums[grid.sums](
            slope, x, out, grid.memory(x, 5, grid.parts), ctx.tickets, tuple(known), weight, bias, sums, of_weight,
            of_bias, rows, columns, grid.part, grid.parts, ctx.relu, *grid.tile, grid.most_parts, num_warps=MORE_WARPS,
        )  # fmt: skip
        _doubled_slopes[grid.tiles](
            slope, x, out, of_x, of_shortcut, tuple(known), sums, weight, bias, rows, columns, ctx.relu, *grid.tile
        )
        return of_x, of_weight, of_bias, None, None, None, None, of_shortcut, None


doubled_norm: Callable[..., Tensor] = _DoubledNorm.apply
"""`norm_kernels.norm` for a batch whose second half are derivatives; so is the second half of the result."""


@triton.jit
def _of_columns(pointers, column, inside):
    """What each of these holds of the columns: mean, 1 / deviation, mean derivative, mean of z times derivative."""
    return [read(each, column, inside)[None, :] for each in pointers]


@triton.jit(do_not_specialize=WITHOUT_VARIANTS)
def _doubled_statistics(
    x, sheets, done, known, running, rows, columns, part, parts, momentum, eps,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Of each channel: mean, 1 / deviation, mean of the derivatives, mean of z times derivative."""
    _, column = tile(ROWS, COLUMNS)
    inside, half = column < columns, rows.to(tl.int64) * columns
    start = tl.program_id(0) * part
    end = tl.minimum(start + part, rows)
    # Sums of squared distances to a pixel stay accurate if the mean is far from zero.
    pivot = read(x, start.to(tl.int64) * columns + column, inside)
    total, square = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    along, product = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(start, end, ROWS):
        place, there = cells(first + tl.arange(0, ROWS), column, end, columns)
        value, slope = tl.where(there, read(x, place, there) - pivot[None, :], 0.0), read(x + half, place, there)
        total += value
        square += value * value
        along += slope
        product += value * slope
    count = (end - start).to(tl.float32)
    away, slopes, sheet = tl.sum(total, 0) / count, tl.sum(along, 0), tl.program_id(0) * columns + column
    write(sheets[0], sheet, pivot + away, inside)
    write(sheets[1], sheet, tl.sum(square, 0) - count * away * away, inside)
    write(sheets[2], sheet, slopes, inside)
    write(sheets[3], sheet, tl.sum(product, 0) - away * slopes, inside)
    if is_last(done, parts):
        each = tl.arange(0, PARTS)
        counts = tl.maximum(tl.minimum(part, rows - each * part), 0).to(tl.float32)[:, None]
        means, squares, sums, products = [read_parts(one, column, columns, parts, PARTS) for one in sheets]
        mean = tl.sum(counts * means, 0) / rows
        apart = tl.where((each < parts)[:, None] & inside[None, :], means - mean[None, :], 0.0)
        spread, mixed = tl.sum(squares + counts * apart * apart, 0), tl.sum(products + apart * sums, 0)
        inverse = 1 / tl.sqrt(spread / rows + eps)
        write(known[0], column, mean, inside)
        write(known[1], column, inverse, inside)
        write(known[2], column, tl.sum(sums, 0) / rows, inside)
        write(known[3], column, inverse * mixed / rows, inside)
        update(running, 0, column, inside, mean, spread / (rows - 1), momentum)


@triton.jit(do_not_specialize=WITHOUT_VARIANTS)
def _doubled_result(
    x, shortcut, out, known, weight, bias, rows, columns,
    RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row, column = tile(ROWS, COLUMNS)
    inside, half = column < columns, rows.to(tl.int64) * columns
    place, there = cells(row, column, rows, columns)
    mean, inverse, centre, mixed = _of_columns(known, column, inside)
    gain, shift = _of_columns((weight, bias), column, inside)
    z = (read(x, place, there) - mean) * inverse
    value = gain * z + shift
    slope = gain * inverse * (read(x + half, place, there) - centre - z * mixed)
    if shortcut is not None:
        value += read(shortcut, place, there)
        slope += read(shortcut + half, place, there)
    if RELU:
        slope = tl.where(value > 0, slope, 0.0)
        value = tl.maximum(value, 0.0)
    write(out, place, value, there)
    write(out + half, place, slope, there)


@triton.jit
def _slopes_and_z(
    slope, x, out, mean, inverse, weight, bias, column, inside, half, place, there, RELU: tl.constexpr
):  # fmt: skip
    """Gradients of the norm's values and derivatives, from those of the result; and z."""
    of_value, of_slope = read(slope, place, there), read(slope + half, place, there)
    z = tl.where(there, (read(x, place, there) - mean) * inverse, 0.0)
    if RELU:
        gain, shift = read(weight, column, inside), read(bias, column, inside)
        positive = is_positive(out, place, there, z, gain, shift)
        of_value, of_slope = tl.where(positive, of_value, 0.0), tl.where(positive, of_slope, 0.0)
    return of_value, of_slope, z


@triton.jit(do_not_specialize=WITHOUT_VARIANTS)
def _doubled_slope_sums(
    slope, x, out, sheets, done, known, weight, bias, sums, of_weight, of_bias, rows, columns, part, parts,
    RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Gradients of the weights; with g and h, those of values and slopes, sums of g, gz, h, hz and h (t - mean(t))."""
    _, column = tile(ROWS, COLUMNS)
    inside, half = column < columns, rows.to(tl.int64) * columns
    mean, inverse, centre, _ = _of_columns(known, column, inside)
    start = tl.program_id(0) * part
    end = tl.minimum(start + part, rows)
    g, gz = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    h, hz = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    ht = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(start, end, ROWS):
        place, there = cells(first + tl.arange(0, ROWS), column, end, columns)
        of_value, of_slope, z = _slopes_and_z(
            slope, x, out, mean, inverse, weight, bias, column, inside, half, place, there, RELU
        )
        g += of_value
        gz += of_value * z
        h += of_slope
        hz += of_slope * z
        ht += of_slope * (read(x + half, place, there) - centre)
    totals, sheet = (g, gz, h, hz, ht), tl.program_id(0) * columns + column
    for i in tl.static_range(5):
        write(sheets[i], sheet, tl.sum(totals[i], 0), inside)
    if is_last(done, parts):
        whole = [tl.sum(read_parts(each, column, columns, parts, PARTS), 0) for each in sheets]
        deviation, q = read(known[1], column, inside), read(known[3], column, inside)
        write(of_bias, column, whole[0], inside)
        write(of_weight, column, whole[1] + deviation * (whole[4] - q * whole[3]), inside)
        for i in tl.static_range(5):
            write(sums[i], column, whole[i], inside)


@triton.jit(do_not_specialize=WITHOUT_VARIANTS)
def _doubled_slopes(
    slope, x, out, of_x, of_shortcut, known, sums, weight, bias, rows, columns,
    RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Gradients of x, of its derivatives, and of both halves of the shortcut."""
    row, column = tile(ROWS, COLUMNS)
    inside, half = column < columns, rows.to(tl.int64) * columns
    place, there = cells(row, column, rows, columns)
    mean, inverse, centre, mixed = _of_columns(known, column, inside)
    g, h, z = _slopes_and_z(slope, x, out, mean, inverse, weight, bias, column, inside, half, place, there, RELU)
    if of_shortcut is not None:
        write(of_shortcut, place, g, there)
        write(of_shortcut + half, place, h, there)
    mean_g, mean_gz, mean_h, mean_hz, mean_ht = [each / rows for each in _of_columns(sums, column, inside)]
    scale, along = read(weight, column, inside)[None, :] * inverse, read(x + half, place, there) - centre
    of_value = g - mean_g - z * mean_gz
    of_value -= inverse * (mixed * (h - mean_h - 3 * z * mean_hz) + mean_hz * along + z * mean_ht)
    write(of_x, place, scale * of_value, there)
    write(of_x + half, place, scale * (h - mean_h - z * mean_hz), there)
