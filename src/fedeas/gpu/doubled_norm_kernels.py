# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""Batch norm of values and their derivatives along a direction, for GPUs. Needs Triton.

The first half of a batch are values x, the second half their derivatives t. With z = (x - mean) / deviation, the norm
is weight z + bias, and its derivative along t is weight / deviation (t - mean(t) - z mean(z t)). The backward pass
differentiates both. Like `norm_kernels`, these kernels include the steps after the norm, relu(norm(x) + shortcut), and
sum columns in parts that are always added up in the same order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedeas.gpu.norm_kernels import ROWS, WARPS, WITHOUT_VARIANTS, Grid

MORE_WARPS = 2 * WARPS
"""Warps of the programs that sum: they hold twice as many sums as those of `norm_kernels`, in as many registers."""


def doubled_norm(
    x: Tensor, weight: Tensor, bias: Tensor, running: tuple[Tensor, Tensor, Tensor], momentum: float, eps: float,
    tickets: Tensor, shortcut: Tensor | None, relu: bool,
) -> Tensor:  # fmt: skip
    """`norm_kernels.norm` for a batch whose second half are derivatives; so is the second half of the result."""
    result: Tensor = _DoubledNorm.apply(  # type: ignore[no-untyped-call]
        x, weight, bias, running, momentum, eps, tickets, shortcut, relu
    )
    return result


class _DoubledNorm(torch.autograd.Function):
    """First derivative only, of values and derivatives."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, running: Any, momentum: float, eps: float,
                tickets: Tensor, shortcut: Tensor | None, relu: bool) -> Tensor:  # fmt: skip
        grid, result = Grid.of(x[: len(x) // 2], weight), torch.empty_like(x)
        known = x.new_empty((4, grid.columns), dtype=torch.float32)
        other = x if shortcut is None else shortcut
        _doubled_statistics[grid.sums](
            x, x.new_empty((4, grid.parts, grid.columns), dtype=torch.float32), tickets, known, *running,
            grid.rows, grid.columns, grid.part, grid.parts, momentum, eps,
            ROWS, grid.width, grid.most_parts, num_warps=MORE_WARPS,
        )  # fmt: skip
        _doubled_result[grid.tiles](
            x, other, result, known, weight, bias,
            grid.rows, grid.columns, shortcut is not None, relu, ROWS, grid.width,
        )  # fmt: skip
        ctx.save_for_backward(x, x if shortcut is None else result, weight, bias, known)
        ctx.relu, ctx.with_shortcut, ctx.tickets = relu, shortcut is not None, tickets
        return result

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        x, result, weight, bias, known = ctx.saved_tensors
        grid, slope = Grid.of(x[: len(x) // 2], weight), slope.contiguous(memory_format=torch.channels_last)
        of_x, of_shortcut = torch.empty_like(x), torch.empty_like(x) if ctx.with_shortcut else None
        of_weight, of_bias = (torch.empty_like(weight, dtype=torch.float32) for _ in range(2))
        sums = x.new_empty((5, grid.columns), dtype=torch.float32)
        _doubled_slope_sums[grid.sums](
            slope, x, result, x.new_empty((5, grid.parts, grid.columns), dtype=torch.float32), ctx.tickets, known,
            weight, bias, sums, of_weight, of_bias, grid.rows, grid.columns, grid.part, grid.parts,
            ctx.relu, ctx.with_shortcut, ROWS, grid.width, grid.most_parts, num_warps=MORE_WARPS,
        )  # fmt: skip
        _doubled_slopes[grid.tiles](
            slope, x, result, of_x, of_x if of_shortcut is None else of_shortcut, known, sums, weight, bias,
            grid.rows, grid.columns, ctx.relu, ctx.with_shortcut, ROWS, grid.width,
        )  # fmt: skip
        return of_x, of_weight, of_bias, None, None, None, None, of_shortcut, None


@triton.jit(do_not_specialize=WITHOUT_VARIANTS)
def _doubled_statistics(
    x, sheets, done, known, running_mean, running_var, batches, rows, columns, part, parts, momentum, eps,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Of each channel: mean, 1 / deviation, mean of the derivatives, mean of z times derivative."""
    number, column = tl.program_id(0), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside, half, sheet = column < columns, rows.to(tl.int64) * columns, parts * columns
    start = number * part
    end = tl.minimum(start + part, rows)
    # Sums of squared distances to a pixel stay accurate if the mean is far from zero.
    pivot = tl.load(x + start.to(tl.int64) * columns + column, inside, 0.0).to(tl.float32)
    total, square = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    along, product = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(start, end, ROWS):
        row = first + tl.arange(0, ROWS)
        there, place = (row < end)[:, None] & inside[None, :], row.to(tl.int64)[:, None] * columns + column[None, :]
        value = tl.where(there, tl.load(x + place, there, 0.0).to(tl.float32) - pivot[None, :], 0.0)
        slope = tl.load(x + half + place, there, 0.0).to(tl.float32)
        total += value
        square += value * value
        along += slope
        product += value * slope
    count = (end - start).to(tl.float32)
    away, slopes = tl.sum(total, 0) / count, tl.sum(along, 0)
    own = sheets + number * columns + column
    tl.store(own, pivot + away, inside)
    tl.store(own + sheet, tl.sum(square, 0) - count * away * away, inside)
    tl.store(own + 2 * sheet, slopes, inside)
    tl.store(own + 3 * sheet, tl.sum(product, 0) - away * slopes, inside)
    tl.debug_barrier()
    if tl.atomic_add(done + tl.program_id(1), 1, sem="acq_rel") == parts - 1:
        each = tl.arange(0, PARTS)
        noted = (each < parts)[:, None] & inside[None, :]
        places = sheets + each[:, None] * columns + column[None, :]
        counts = tl.maximum(tl.minimum(part, rows - each * part), 0).to(tl.float32)[:, None]
        means = tl.load(places, noted, 0.0, cache_modifier=".cg")
        mean = tl.sum(counts * means, 0) / rows
        apart = tl.where(noted, means - mean[None, :], 0.0)
        spread = tl.sum(tl.load(places + sheet, noted, 0.0, cache_modifier=".cg") + counts * apart * apart, 0)
        sums = tl.load(places + 2 * sheet, noted, 0.0, cache_modifier=".cg")
        mixed = tl.sum(tl.load(places + 3 * sheet, noted, 0.0, cache_modifier=".cg") + apart * sums, 0)
        inverse = 1 / tl.sqrt(spread / rows + eps)
        tl.store(known + column, mean, inside)
        tl.store(known + columns + column, inverse, inside)
        tl.store(known + 2 * columns + column, tl.sum(sums, 0) / rows, inside)
        tl.store(known + 3 * columns + column, inverse * mixed / rows, inside)
        old_mean, old_var = tl.load(running_mean + column, inside, 0.0), tl.load(running_var + column, inside, 0.0)
        tl.store(running_mean + column, old_mean + momentum * (mean - old_mean), inside)
        tl.store(running_var + column, old_var + momentum * (spread / (rows - 1) - old_var), inside)
        tl.store(done + tl.program_id(1), 0)
        if tl.program_id(1) == 0:
            tl.store(batches, tl.load(batches) + 1)


@triton.jit
def _known(known, columns, column, inside):
    """What `_doubled_statistics` found: mean, 1 / deviation, mean derivative, mean of z times derivative."""
    mean, inverse = tl.load(known + column, inside, 0.0), tl.load(known + columns + column, inside, 0.0)
    centre = tl.load(known + 2 * columns + column, inside, 0.0)
    return mean[None, :], inverse[None, :], centre[None, :], tl.load(known + 3 * columns + column, inside, 0.0)[None, :]


@triton.jit(do_not_specialize=WITHOUT_VARIANTS)
def _doubled_result(
    x, shortcut, out, known, weight, bias, rows, columns,
    ADD: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside, half = column < columns, rows.to(tl.int64) * columns
    there, place = (row < rows)[:, None] & inside[None, :], row.to(tl.int64)[:, None] * columns + column[None, :]
    mean, inverse, centre, mixed = _known(known, columns, column, inside)
    gain, shift = tl.load(weight + column, inside, 0.0)[None, :], tl.load(bias + column, inside, 0.0)[None, :]
    z = (tl.load(x + place, there, 0.0).to(tl.float32) - mean) * inverse
    value = gain * z + shift
    slope = gain * inverse * (tl.load(x + half + place, there, 0.0).to(tl.float32) - centre - z * mixed)
    if ADD:
        value += tl.load(shortcut + place, there, 0.0).to(tl.float32)
        slope += tl.load(shortcut + half + place, there, 0.0).to(tl.float32)
    if RELU:
        slope = tl.where(value > 0, slope, 0.0)
        value = tl.maximum(value, 0.0)
    tl.store(out + place, value.to(out.dtype.element_ty), there)
    tl.store(out + half + place, slope.to(out.dtype.element_ty), there)


@triton.jit
def _slopes_and_z(
    slope, x, out, mean, inverse, weight, bias, column, columns, half, place, there,
    RELU: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    """Gradients of the norm's values and derivatives, from those of the result; and z."""
    of_value = tl.load(slope + place, there, 0.0).to(tl.float32)
    of_slope = tl.load(slope + half + place, there, 0.0).to(tl.float32)
    z = tl.where(there, (tl.load(x + place, there, 0.0).to(tl.float32) - mean) * inverse, 0.0)
    if RELU:
        if ADD:
            height = tl.load(out + place, there, 0.0).to(tl.float32)
        else:
            gain = tl.load(weight + column, column < columns, 0.0)
            height = gain[None, :] * z + tl.load(bias + column, column < columns, 0.0)[None, :]
        of_value, of_slope = tl.where(height > 0, of_value, 0.0), tl.where(height > 0, of_slope, 0.0)
    return of_value, of_slope, z


@triton.jit(do_not_specialize=WITHOUT_VARIANTS)
def _doubled_slope_sums(
    slope, x, out, sheets, done, known, weight, bias, sums_out, of_weight, of_bias, rows, columns, part, parts,
    RELU: tl.constexpr, ADD: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Gradients of the weights; with g and h, those of values and slopes, sums of g, gz, h, hz and h (t - mean(t))."""
    number, column = tl.program_id(0), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside, half, sheet = column < columns, rows.to(tl.int64) * columns, parts * columns
    mean, inverse, centre, _ = _known(known, columns, column, inside)
    start = number * part
    end = tl.minimum(start + part, rows)
    g, gz = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    h, hz = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    ht = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(start, end, ROWS):
        row = first + tl.arange(0, ROWS)
        there, place = (row < end)[:, None] & inside[None, :], row.to(tl.int64)[:, None] * columns + column[None, :]
        of_value, of_slope, z = _slopes_and_z(
            slope, x, out, mean, inverse, weight, bias, column, columns, half, place, there, RELU, ADD
        )
        g += of_value
        gz += of_value * z
        h += of_slope
        hz += of_slope * z
        ht += of_slope * (tl.load(x + half + place, there, 0.0).to(tl.float32) - centre)
    own = sheets + number * columns + column
    tl.store(own, tl.sum(g, 0), inside)
    tl.store(own + sheet, tl.sum(gz, 0), inside)
    tl.store(own + 2 * sheet, tl.sum(h, 0), inside)
    tl.store(own + 3 * sheet, tl.sum(hz, 0), inside)
    tl.store(own + 4 * sheet, tl.sum(ht, 0), inside)
    tl.debug_barrier()
    if tl.atomic_add(done + tl.program_id(1), 1, sem="acq_rel") == parts - 1:
        each = tl.arange(0, PARTS)
        noted = (each < parts)[:, None] & inside[None, :]
        places = sheets + each[:, None] * columns + column[None, :]
        all_g = tl.sum(tl.load(places, noted, 0.0, cache_modifier=".cg"), 0)
        all_gz = tl.sum(tl.load(places + sheet, noted, 0.0, cache_modifier=".cg"), 0)
        all_h = tl.sum(tl.load(places + 2 * sheet, noted, 0.0, cache_modifier=".cg"), 0)
        all_hz = tl.sum(tl.load(places + 3 * sheet, noted, 0.0, cache_modifier=".cg"), 0)
        all_ht = tl.sum(tl.load(places + 4 * sheet, noted, 0.0, cache_modifier=".cg"), 0)
        deviation = tl.load(known + columns + column, inside, 0.0)
        q = tl.load(known + 3 * columns + column, inside, 0.0)
        tl.store(of_bias + column, all_g, inside)
        tl.store(of_weight + column, all_gz + deviation * (all_ht - q * all_hz), inside)
        tl.store(sums_out + column, all_g, inside)
        tl.store(sums_out + columns + column, all_gz, inside)
        tl.store(sums_out + 2 * columns + column, all_h, inside)
        tl.store(sums_out + 3 * columns + column, all_hz, inside)
        tl.store(sums_out + 4 * columns + column, all_ht, inside)
        tl.store(done + tl.program_id(1), 0)


@triton.jit(do_not_specialize=WITHOUT_VARIANTS)
def _doubled_slopes(
    slope, x, out, of_x, of_shortcut, known, sums, weight, bias, rows, columns,
    RELU: tl.constexpr, ADD: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Gradients of x, of its derivatives, and of both halves of the shortcut."""
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside, half = column < columns, rows.to(tl.int64) * columns
    there, place = (row < rows)[:, None] & inside[None, :], row.to(tl.int64)[:, None] * columns + column[None, :]
    mean, inverse, centre, mixed = _known(known, columns, column, inside)
    g, h, z = _slopes_and_z(slope, x, out, mean, inverse, weight, bias, column, columns, half, place, there, RELU, ADD)
    if ADD:
        tl.store(of_shortcut + place, g.to(of_shortcut.dtype.element_ty), there)
        tl.store(of_shortcut + half + place, h.to(of_shortcut.dtype.element_ty), there)
    mean_g = tl.load(sums + column, inside, 0.0)[None, :] / rows
    mean_gz = tl.load(sums + columns + column, inside, 0.0)[None, :] / rows
    mean_h = tl.load(sums + 2 * columns + column, inside, 0.0)[None, :] / rows
    mean_hz = tl.load(sums + 3 * columns + column, inside, 0.0)[None, :] / rows
    mean_ht = tl.load(sums + 4 * columns + column, inside, 0.0)[None, :] / rows
    scale = tl.load(weight + column, inside, 0.0)[None, :] * inverse
    along = tl.load(x + half + place, there, 0.0).to(tl.float32) - centre
    of_value = g - mean_g - z * mean_gz
    of_value -= inverse * (mixed * (h - mean_h - 3 * z * mean_hz) + mean_hz * along + z * mean_ht)
    tl.store(of_x + place, (scale * of_value).to(of_x.dtype.element_ty), there)
    tl.store(of_x + half + place, (scale * (h - mean_h - z * mean_hz)).to(of_x.dtype.element_ty), there)
