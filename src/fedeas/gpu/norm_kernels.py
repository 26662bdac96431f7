# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""Batch norm for GPUs in four kernels: statistics, result, and the same for the gradients. Needs Triton.

The same kernels do the steps after it: result = relu(norm(x) + shortcut), where shortcut and relu are optional. torch
has no such kernel for bfloat16, and small batches spend a third of their time in its norms. Images are channels last,
so that a tensor is a matrix of pixels x channels. A column is summed in parts; the program that finishes last adds the
parts up in a fixed order, so that results are the same every time.

The images may belong to several clients, one after the other and each with the same number, with weights and
statistics for each client. Only the first images of a client may be valid: the others have no effect, and their
results and gradients are zero.
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
"""Most channels of a program."""

PROGRAMS = 512
"""A few for each processor of the GPU."""

PARTS = (32, 128)
"""Most parts of a column, for small and for large matrices; the kernels are compiled for each of these numbers."""

FEW = 1024
"""If a client has at most this many pixels, one kernel does all steps; a program holds `FEW_COLUMNS` channels."""

FEW_COLUMNS = 16

WARPS = 4
"""Warps of the programs that sum."""

HELD = 256
"""Programs that hold more pixels than this have twice as many warps."""

WITHOUT_VARIANTS = ["rows", "part", "parts", "pixels"]  # one compilation for all batch sizes


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
    valid: Tensor | None = None,
) -> Tensor:
    """Batch norm with the batch's own statistics; updates the `running` mean, variance and count of batches.

    Args:
        x: images, channels last.
        weight: of each channel, or of each client and channel.
        bias: likewise.
        running: running mean, variance and count of batches, changed in place.
        momentum: weight of this batch in the running statistics.
        eps: added to the variance.
        tickets: zeros from `tickets_for`, with which the programs count; they are zero again afterwards. Concurrent
            calls need separate tickets.
        shortcut: added to the result.
        relu: whether negative results become zero.
        valid: number of valid images of each client; all are valid if None.
    """
    result: Tensor = _Norm.apply(  # type: ignore[no-untyped-call]
        x, weight, bias, running, momentum, eps, tickets, shortcut, relu, valid
    )
    return result


def evaluated(
    x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, eps: float,
    shortcut: Tensor | None = None, relu: bool = False,
) -> Tensor:  # fmt: skip
    """Batch norm with given statistics, without gradients."""
    grid, result = Grid.of(x, weight), torch.empty_like(x)
    other = x if shortcut is None else shortcut
    _result[grid.tiles](
        x, other, result, mean, (variance + eps).rsqrt(), weight, bias, x,
        grid.rows, grid.columns, grid.pixels, shortcut is not None, relu, False, ROWS, grid.width,
    )  # fmt: skip
    return result


def tickets_for(clients: int, channels: int, device: torch.device) -> Tensor:
    """Counters at zero, one for each program that sums columns."""
    return torch.zeros(clients * triton.cdiv(channels, _width(channels)), dtype=torch.int32, device=device)


class _Norm(torch.autograd.Function):
    """First derivative only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, running: Any, momentum: float, eps: float,
                tickets: Tensor, shortcut: Tensor | None, relu: bool, valid: Tensor | None) -> Tensor:  # fmt: skip
        grid, result = Grid.of(x, weight), torch.empty_like(x)
        mean, inverse = x.new_empty((2, grid.clients, grid.columns), dtype=torch.float32)
        masked, counts = valid is not None, x if valid is None else valid
        other = x if shortcut is None else shortcut
        if grid.rows <= FEW:
            _result_of_few[grid.few](
                x, other, result, mean, inverse, weight, bias, *running, counts,
                grid.rows, grid.columns, grid.pixels, momentum, eps,
                shortcut is not None, relu, masked, grid.few_rows, FEW_COLUMNS, num_warps=grid.few_warps,
            )  # fmt: skip
        else:
            _statistics[grid.sums](
                x, *grid.sheets(x), tickets, mean, inverse, *running, counts,
                grid.rows, grid.columns, grid.pixels, grid.part, grid.parts, momentum, eps,
                masked, ROWS, grid.width, grid.most_parts, num_warps=WARPS,
            )  # fmt: skip
            _result[grid.tiles](
                x, other, result, mean, inverse, weight, bias, counts,
                grid.rows, grid.columns, grid.pixels, shortcut is not None, relu, masked, ROWS, grid.width,
            )  # fmt: skip
        # Without a shortcut, x alone determines which results are positive, so they need not be kept.
        ctx.save_for_backward(x, x if shortcut is None else result, weight, bias, mean, inverse)
        ctx.relu, ctx.with_shortcut, ctx.tickets = relu, shortcut is not None, tickets
        ctx.masked, ctx.counts = masked, counts  # the counts do not change between forward and backward
        return result

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        x, result, weight, bias, mean, inverse = ctx.saved_tensors
        grid, slope = Grid.of(x, weight), slope.contiguous(memory_format=torch.channels_last)
        of_x = torch.empty_like(x)
        of_shortcut = torch.empty_like(x) if ctx.with_shortcut else None
        of_weight, of_bias, factor = (torch.empty_like(weight, dtype=torch.float32) for _ in range(3))
        with_shortcut = of_x if of_shortcut is None else of_shortcut
        if grid.rows <= FEW:
            _slopes_of_few[grid.few](
                slope, x, result, of_x, with_shortcut, mean, inverse, weight, bias, of_weight, of_bias, ctx.counts,
                grid.rows, grid.columns, grid.pixels,
                ctx.relu, ctx.with_shortcut, ctx.masked, grid.few_rows, FEW_COLUMNS, num_warps=grid.few_warps,
            )  # fmt: skip
            return of_x, of_weight, of_bias, None, None, None, None, of_shortcut, None, None
        _slope_sums[grid.sums](
            slope, x, result, *grid.sheets(x), ctx.tickets, mean, inverse, weight, bias, of_weight, of_bias, factor,
            ctx.counts, grid.rows, grid.columns, grid.pixels, grid.part, grid.parts,
            ctx.relu, ctx.with_shortcut, ctx.masked, ROWS, grid.width, grid.most_parts, num_warps=WARPS,
        )  # fmt: skip
        _slopes[grid.tiles](
            slope, x, result, of_x, with_shortcut, mean, inverse, weight, bias, of_bias, factor, ctx.counts,
            grid.rows, grid.columns, grid.pixels, ctx.relu, ctx.with_shortcut, ctx.masked, ROWS, grid.width,
        )  # fmt: skip
        return of_x, of_weight, of_bias, None, None, None, None, of_shortcut, None, None


@dataclass(frozen=True)
class Grid:
    """How each client's matrix is cut: `sums` in parts of columns, `tiles` in small pieces, `few` in whole columns."""

    clients: int
    rows: int
    columns: int
    pixels: int
    width: int
    part: int
    parts: int
    most_parts: int

    @staticmethod
    def of(x: Tensor, weight: Tensor) -> Grid:
        """For these images and weights."""
        columns = x.shape[1]
        clients = weight.numel() // columns
        rows, width = x.numel() // columns // clients, _width(columns)
        programs = int(triton.next_power_of_2(clients * triton.cdiv(columns, width)))
        most = min(PARTS[-1], max(1, PROGRAMS // programs))
        part = triton.cdiv(triton.cdiv(rows, most), ROWS) * ROWS
        parts = triton.cdiv(rows, part)
        most = next(number for number in PARTS if number >= parts)
        return Grid(clients, rows, columns, x.shape[2] * x.shape[3], width, part, parts, most)

    @property
    def sums(self) -> tuple[int, int, int]:
        """Programs of kernels that sum columns."""
        return self.parts, triton.cdiv(self.columns, self.width), self.clients

    @property
    def tiles(self) -> tuple[int, int, int]:
        """Programs of kernels that work value by value."""
        return triton.cdiv(self.rows, ROWS), triton.cdiv(self.columns, self.width), self.clients

    @property
    def few(self) -> tuple[int, int]:
        """Programs of kernels that hold whole columns."""
        return triton.cdiv(self.columns, FEW_COLUMNS), self.clients

    @property
    def few_rows(self) -> int:
        """Rows that such a program holds."""
        return int(triton.next_power_of_2(self.rows))

    @property
    def few_warps(self) -> int:
        """Warps of such a program."""
        return WARPS if self.few_rows <= HELD else 2 * WARPS

    def sheets(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Memory for two sums of every part."""
        first, second = like.new_empty((2, self.clients, self.parts, self.columns), dtype=torch.float32)
        return first, second


def _width(columns: int) -> int:
    return min(COLUMNS, int(triton.next_power_of_2(columns)))


@triton.jit(do_not_specialize=WITHOUT_VARIANTS)
def _statistics(
    x, means, squares, done, mean_out, inverse_out, running_mean, running_var, batches, valid,
    rows, columns, pixels, part, parts, momentum, eps,
    MASKED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Mean and 1 / deviation of each channel; running statistics as torch keeps them."""
    number, column, client = tl.program_id(0), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS), tl.program_id(2)
    inside, own = column < columns, client * columns + column
    x += client.to(tl.int64) * rows * columns
    counted = tl.load(valid + client) * pixels if MASKED else rows
    start = number * part
    end = tl.maximum(tl.minimum(start + part, counted), start)
    # Sums of squared distances to a pixel stay accurate if the mean is far from zero.
    pivot = tl.load(x + start.to(tl.int64) * columns + column, inside, 0.0).to(tl.float32)
    total, square = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(start, end, ROWS):
        row = first + tl.arange(0, ROWS)
        there = (row < end)[:, None] & inside[None, :]
        value = tl.load(x + row.to(tl.int64)[:, None] * columns + column[None, :], there, 0.0).to(tl.float32)
        value = tl.where(there, value - pivot[None, :], 0.0)
        total += value
        square += value * value
    count = tl.maximum(end - start, 1).to(tl.float32)
    sums = tl.sum(total, 0)
    sheet = (client * parts + number) * columns + column
    tl.store(means + sheet, pivot + sums / count, inside)
    tl.store(squares + sheet, tl.sum(square, 0) - sums * sums / count, inside)
    tl.debug_barrier()
    ticket = done + client * tl.num_programs(1) + tl.program_id(1)
    if tl.atomic_add(ticket, 1, sem="acq_rel") == parts - 1:
        each = tl.arange(0, PARTS)
        noted = (each < parts)[:, None] & inside[None, :]
        place = (client * parts + each)[:, None] * columns + column[None, :]
        counts = tl.maximum(tl.minimum(part, counted - each * part), 0).to(tl.float32)[:, None]
        their_means = tl.load(means + place, noted, 0.0, cache_modifier=".cg")
        mean = tl.sum(tl.where(noted, counts * their_means, 0.0), 0) / counted
        away = their_means - mean[None, :]
        within = tl.load(squares + place, noted, 0.0, cache_modifier=".cg")
        spread = tl.sum(tl.where(noted & (counts > 0), within + counts * away * away, 0.0), 0)
        tl.store(mean_out + own, mean, inside)
        tl.store(inverse_out + own, 1 / tl.sqrt(spread / counted + eps), inside)
        old_mean, old_var = tl.load(running_mean + own, inside, 0.0), tl.load(running_var + own, inside, 0.0)
        tl.store(running_mean + own, old_mean + momentum * (mean - old_mean), inside)
        tl.store(running_var + own, old_var + momentum * (spread / (counted - 1) - old_var), inside)
        tl.store(ticket, 0)
        if tl.program_id(1) == 0:
            tl.store(batches + client, tl.load(batches + client) + 1)


@triton.jit(do_not_specialize=WITHOUT_VARIANTS)
def _result(
    x, shortcut, out, mean_in, inverse_in, weight, bias, valid, rows, columns, pixels,
    ADD: tl.constexpr, RELU: tl.constexpr, MASKED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """(x - mean) / deviation * weight + bias, then shortcut and relu."""
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    client, inside = tl.program_id(2), column < columns
    own = client * columns + column
    there = (row < rows)[:, None] & inside[None, :]
    place = (client.to(tl.int64) * rows + row)[:, None] * columns + column[None, :]
    mean, shift = tl.load(mean_in + own, inside, 0.0), tl.load(bias + own, inside, 0.0)
    scale = tl.load(inverse_in + own, inside, 0.0) * tl.load(weight + own, inside, 0.0)
    value = (tl.load(x + place, there, 0.0).to(tl.float32) - mean[None, :]) * scale[None, :] + shift[None, :]
    if ADD:
        value += tl.load(shortcut + place, there, 0.0).to(tl.float32)
    if RELU:
        value = tl.maximum(value, 0.0)
    if MASKED:
        value = tl.where((row < tl.load(valid + client) * pixels)[:, None], value, 0.0)
    tl.store(out + place, value.to(out.dtype.element_ty), there)


@triton.jit(do_not_specialize=WITHOUT_VARIANTS)
def _slope_sums(
    slope, x, out, sums, products, done, mean_in, inverse_in, weight, bias, of_weight, of_bias, factor, valid,
    rows, columns, pixels, part, parts,
    RELU: tl.constexpr, ADD: tl.constexpr, MASKED: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Gradients of weight and bias; `factor` is the coefficient of (x - mean) in the gradient of x."""
    number, column, client = tl.program_id(0), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS), tl.program_id(2)
    inside, own, above = column < columns, client * columns + column, client.to(tl.int64) * rows
    counted = tl.load(valid + client) * pixels if MASKED else rows
    start = number * part
    end = tl.minimum(start + part, counted)
    mean, shift = tl.load(mean_in + own, inside, 0.0), tl.load(bias + own, inside, 0.0)
    inverse = tl.load(inverse_in + own, inside, 0.0)
    scale = inverse * tl.load(weight + own, inside, 0.0)
    total, product = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(start, end, ROWS):
        row = first + tl.arange(0, ROWS)
        there, place = (row < end)[:, None] & inside[None, :], (above + row)[:, None] * columns + column[None, :]
        value = tl.load(slope + place, there, 0.0).to(tl.float32)
        away = tl.load(x + place, there, 0.0).to(tl.float32) - mean[None, :]
        if RELU:
            height = tl.load(out + place, there, 0.0).to(tl.float32) if ADD else away * scale[None, :] + shift[None, :]
            value = tl.where(height > 0, value, 0.0)
        total += value
        product += value * away
    sheet = (client * parts + number) * columns + column
    tl.store(sums + sheet, tl.sum(total, 0), inside)
    tl.store(products + sheet, tl.sum(product, 0), inside)
    tl.debug_barrier()
    ticket = done + client * tl.num_programs(1) + tl.program_id(1)
    if tl.atomic_add(ticket, 1, sem="acq_rel") == parts - 1:
        each = tl.arange(0, PARTS)
        noted = (each < parts)[:, None] & inside[None, :]
        place = (client * parts + each)[:, None] * columns + column[None, :]
        whole = tl.sum(tl.load(sums + place, noted, 0.0, cache_modifier=".cg"), 0)
        mixed = tl.sum(tl.load(products + place, noted, 0.0, cache_modifier=".cg"), 0)
        tl.store(of_weight + own, mixed * inverse, inside)
        tl.store(of_bias + own, whole, inside)
        tl.store(factor + own, mixed * inverse * inverse / counted, inside)
        tl.store(ticket, 0)


@triton.jit(do_not_specialize=WITHOUT_VARIANTS)
def _slopes(
    slope, x, out, of_x, of_shortcut, mean_in, inverse_in, weight, bias, of_bias, factor_in, valid,
    rows, columns, pixels,
    RELU: tl.constexpr, ADD: tl.constexpr, MASKED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Gradients of x and of the shortcut."""
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    client, inside = tl.program_id(2), column < columns
    own = client * columns + column
    counted = tl.load(valid + client) * pixels if MASKED else rows
    there = (row < rows)[:, None] & inside[None, :]
    place = (client.to(tl.int64) * rows + row)[:, None] * columns + column[None, :]
    mean, shift = tl.load(mean_in + own, inside, 0.0), tl.load(bias + own, inside, 0.0)
    scale = tl.load(inverse_in + own, inside, 0.0) * tl.load(weight + own, inside, 0.0)
    value = tl.load(slope + place, there, 0.0).to(tl.float32)
    away = tl.load(x + place, there, 0.0).to(tl.float32) - mean[None, :]
    if RELU:
        height = tl.load(out + place, there, 0.0).to(tl.float32) if ADD else away * scale[None, :] + shift[None, :]
        value = tl.where(height > 0, value, 0.0)
    if MASKED:
        value = tl.where((row < counted)[:, None], value, 0.0)
    if ADD:
        tl.store(of_shortcut + place, value.to(of_shortcut.dtype.element_ty), there)
    centre, factor = tl.load(of_bias + own, inside, 0.0) / counted, tl.load(factor_in + own, inside, 0.0)
    result = scale[None, :] * (value - centre[None, :] - away * factor[None, :])
    if MASKED:
        result = tl.where((row < counted)[:, None], result, 0.0)
    tl.store(of_x + place, result.to(of_x.dtype.element_ty), there)


@triton.jit(do_not_specialize=["rows", "pixels"])
def _result_of_few(
    x, shortcut, out, mean_out, inverse_out, weight, bias, running_mean, running_var, batches, valid,
    rows, columns, pixels, momentum, eps,
    ADD: tl.constexpr, RELU: tl.constexpr, MASKED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """`_statistics` and `_result` in one, for clients whose columns a program can hold.

    All loads come first: none depends on another, and those after a sum would have to wait for it.
    """
    row, column, client = tl.arange(0, ROWS), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.program_id(1)
    inside, own = column < columns, client * columns + column
    there = (row < rows)[:, None] & inside[None, :]
    place = (client.to(tl.int64) * rows + row)[:, None] * columns + column[None, :]
    counted = tl.load(valid + client) * pixels if MASKED else rows
    value = tl.load(x + place, there, 0.0).to(tl.float32)
    added = tl.load(shortcut + place, there, 0.0).to(tl.float32) if ADD else 0.0
    gain, shift = tl.load(weight + own, inside, 0.0), tl.load(bias + own, inside, 0.0)
    old_mean, old_var = tl.load(running_mean + own, inside, 0.0), tl.load(running_var + own, inside, 0.0)
    seen = tl.load(batches + client)
    counts = (row < counted)[:, None] & inside[None, :]
    mean = tl.sum(tl.where(counts, value, 0.0), 0) / counted
    away = tl.where(counts, value - mean[None, :], 0.0)
    spread = tl.sum(away * away, 0)
    inverse = 1 / tl.sqrt(spread / counted + eps)
    tl.store(mean_out + own, mean, inside)
    tl.store(inverse_out + own, inverse, inside)
    tl.store(running_mean + own, old_mean + momentum * (mean - old_mean), inside)
    tl.store(running_var + own, old_var + momentum * (spread / (counted - 1) - old_var), inside)
    if tl.program_id(0) == 0:
        tl.store(batches + client, seen + 1)
    value = away * (inverse * gain)[None, :] + shift[None, :] + added
    if RELU:
        value = tl.maximum(value, 0.0)
    tl.store(out + place, tl.where(counts, value, 0.0).to(out.dtype.element_ty), there)


@triton.jit(do_not_specialize=["rows", "pixels"])
def _slopes_of_few(
    slope, x, out, of_x, of_shortcut, mean_in, inverse_in, weight, bias, of_weight, of_bias, valid,
    rows, columns, pixels,
    RELU: tl.constexpr, ADD: tl.constexpr, MASKED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """`_slope_sums` and `_slopes` in one, for clients whose columns a program can hold; all loads come first."""
    row, column, client = tl.arange(0, ROWS), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.program_id(1)
    inside, own = column < columns, client * columns + column
    there = (row < rows)[:, None] & inside[None, :]
    place = (client.to(tl.int64) * rows + row)[:, None] * columns + column[None, :]
    counted = tl.load(valid + client) * pixels if MASKED else rows
    value, before = tl.load(slope + place, there, 0.0).to(tl.float32), tl.load(x + place, there, 0.0).to(tl.float32)
    mean, shift = tl.load(mean_in + own, inside, 0.0), tl.load(bias + own, inside, 0.0)
    inverse = tl.load(inverse_in + own, inside, 0.0)
    scale = inverse * tl.load(weight + own, inside, 0.0)
    counts = (row < counted)[:, None] & inside[None, :]
    value, away = tl.where(counts, value, 0.0), tl.where(counts, before - mean[None, :], 0.0)
    if RELU:
        height = tl.load(out + place, there, 0.0).to(tl.float32) if ADD else away * scale[None, :] + shift[None, :]
        value = tl.where(height > 0, value, 0.0)
    if ADD:
        tl.store(of_shortcut + place, value.to(of_shortcut.dtype.element_ty), there)
    total, product = tl.sum(value, 0), tl.sum(value * away, 0)
    tl.store(of_weight + own, product * inverse, inside)
    tl.store(of_bias + own, total, inside)
    centre, factor = total / counted, product * inverse * inverse / counted
    result = scale[None, :] * (value - centre[None, :] - away * factor[None, :])
    tl.store(of_x + place, tl.where(counts, result, 0.0).to(of_x.dtype.element_ty), there)
