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

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedeas.gpu.tile_kernels import cells, is_last, read, read_parts, tile, write

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


def evaluated(
    x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, eps: float,
    shortcut: Tensor | None = None, relu: bool = False,
) -> Tensor:  # fmt: skip
    """Batch norm with given statistics, without gradients."""
    grid, result, known = Grid(x, weight), torch.empty_like(x), (mean, (variance + eps).rsqrt(), weight, bias)
    _result[grid.tiles](x, shortcut, result, known, None, *grid.size, relu, *grid.tile)
    return result


def tickets_for(clients: int, channels: int, device: torch.device) -> Tensor:
    """Counters at zero, one for each program that sums columns."""
    return torch.zeros(clients * triton.cdiv(channels, _width(channels)), dtype=torch.int32, device=device)


class _Norm(torch.autograd.Function):
    """First derivative only."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, running: tuple[Tensor, ...], momentum: float, eps: float,
        tickets: Tensor, shortcut: Tensor | None, relu: bool, valid: Tensor | None,
    ) -> Tensor:  # fmt: skip
        grid, result = Grid(x, weight), torch.empty_like(x)
        known = *grid.memory(x, 2), weight, bias
        if grid.is_small:
            _result_of_few[grid.few](
                x, shortcut, result, known, running, valid, *grid.size, momentum, eps, relu, *grid.held,
                num_warps=grid.warps,
            )  # fmt: skip
        else:
            _statistics[grid.sums](
                x, grid.memory(x, 2, grid.parts), tickets, known, running, valid, *grid.size, grid.part, grid.parts,
                momentum, eps, *grid.tile, grid.most_parts, num_warps=WARPS,
            )  # fmt: skip
            _result[grid.tiles](x, shortcut, result, known, valid, *grid.size, relu, *grid.tile)
        # Without a shortcut, x alone determines which results are positive, so they need not be kept.
        ctx.save_for_backward(x, None if shortcut is None else result, *known)
        ctx.relu, ctx.tickets, ctx.valid = relu, tickets, valid  # `valid` does not change between forward and backward
        return result

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        x, out, *known = ctx.saved_tensors
        grid, slope = Grid(x, known[2]), slope.contiguous(memory_format=torch.channels_last)
        of_x, of_shortcut = torch.empty_like(x), None if out is None else torch.empty_like(x)
        of_weight, of_bias, factor = (torch.empty_like(known[2], dtype=torch.float32) for _ in range(3))
        if grid.is_small:
            _slopes_of_few[grid.few](
                slope, x, out, of_x, of_shortcut, tuple(known), of_weight, of_bias, ctx.valid, *grid.size,
                ctx.relu, *grid.held, num_warps=grid.warps,
            )  # fmt: skip
        else:
            _slope_sums[grid.sums](
                slope, x, out, grid.memory(x, 2, grid.parts), ctx.tickets, tuple(known), of_weight, of_bias, factor,
                ctx.valid, *grid.size, grid.part, grid.parts, ctx.relu, *grid.tile, grid.most_parts, num_warps=WARPS,
            )  # fmt: skip
            _slopes[grid.tiles](
                slope, x, out, of_x, of_shortcut, tuple(known), of_bias, factor, ctx.valid, *grid.size,
                ctx.relu, *grid.tile,
            )  # fmt: skip
        return of_x, of_weight, of_bias, None, None, None, None, of_shortcut, None, None


norm: Callable[..., Tensor] = _Norm.apply
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
    shortcut: added to the result, or None.
    relu: whether negative results become zero.
    valid: number of valid images of each client; all are valid if None.
"""


class Grid:
    """How each client's matrix is cut: `sums` in parts of columns, `tiles` in small pieces, `few` in whole columns."""

    def __init__(self, x: Tensor, weight: Tensor) -> None:
        self.columns = x.shape[1]
        self.clients = weight.numel() // self.columns
        rows, width = x.numel() // weight.numel(), _width(self.columns)
        across = triton.cdiv(self.columns, width)
        most = min(PARTS[-1], max(1, PROGRAMS // _power_of_2(self.clients * across)))
        self.part = triton.cdiv(triton.cdiv(rows, most), ROWS) * ROWS
        self.parts = triton.cdiv(rows, self.part)
        self.most_parts = next(number for number in PARTS if number >= self.parts)
        self.size, self.tile = (rows, self.columns, x.shape[2] * x.shape[3]), (ROWS, width)
        self.sums, self.tiles = (self.parts, across, self.clients), (triton.cdiv(rows, ROWS), across, self.clients)
        self.is_small = rows <= FEW
        self.few, self.held = (triton.cdiv(self.columns, FEW_COLUMNS), self.clients), (_power_of_2(rows), FEW_COLUMNS)
        self.warps = WARPS if self.held[0] <= HELD else 2 * WARPS

    def memory(self, like: Tensor, number: int, parts: int = 1) -> tuple[Tensor, ...]:
        """So many values of every column, or of each of its parts."""
        return tuple(like.new_empty((number, self.clients, parts, self.columns), dtype=torch.float32))


def _width(columns: int) -> int:
    return min(COLUMNS, _power_of_2(columns))


def _power_of_2(number: int) -> int:
    return int(triton.next_power_of_2(number))


@triton.jit
def _of_client(row, column, client, rows, columns):
    """Where a client's columns and values are, and which of both exist."""
    place, there = cells(row, column, rows, columns)
    return client * columns + column, column < columns, client.to(tl.int64) * rows * columns + place, there


@triton.jit
def _counted(valid, client, rows, pixels):
    """The client's valid rows."""
    return rows if valid is None else tl.load(valid + client) * pixels


@triton.jit
def _read_known(known, own, inside):
    """Mean, 1 / deviation, scale and shift of each column."""
    mean, inverse = read(known[0], own, inside), read(known[1], own, inside)
    return mean, inverse, inverse * read(known[2], own, inside), read(known[3], own, inside)


@triton.jit
def update(running, client, own, inside, mean, variance, momentum):
    """Change the running statistics as torch does."""
    old_mean, old_var = read(running[0], own, inside), read(running[1], own, inside)
    write(running[0], own, old_mean + momentum * (mean - old_mean), inside)
    write(running[1], own, old_var + momentum * (variance - old_var), inside)
    if tl.program_id(1) == 0:
        tl.store(running[2] + client, tl.load(running[2] + client) + 1)


@triton.jit
def is_positive(out, place, there, value, scale, shift):
    """Where the ReLU got positive values: `out`, or scale * value + shift if there was no shortcut."""
    return (value * scale[None, :] + shift[None, :] if out is None else read(out, place, there)) > 0


@triton.jit(do_not_specialize=WITHOUT_VARIANTS)
def _statistics(
    x, sheets, done, known, running, valid, rows, columns, pixels, part, parts, momentum, eps,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Mean and 1 / deviation of each channel; running statistics as torch keeps them."""
    _, column = tile(ROWS, COLUMNS)
    number, client = tl.program_id(0), tl.program_id(2)
    inside, own = column < columns, client * columns + column
    x += client.to(tl.int64) * rows * columns
    counted = _counted(valid, client, rows, pixels)
    start = number * part
    end = tl.maximum(tl.minimum(start + part, counted), start)
    # Sums of squared distances to a pixel stay accurate if the mean is far from zero.
    pivot = read(x, start.to(tl.int64) * columns + column, inside)
    total, square = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(start, end, ROWS):
        place, there = cells(first + tl.arange(0, ROWS), column, end, columns)
        value = tl.where(there, read(x, place, there) - pivot[None, :], 0.0)
        total += value
        square += value * value
    count = tl.maximum(end - start, 1).to(tl.float32)
    sums = tl.sum(total, 0)
    sheet = (client * parts + number) * columns + column
    write(sheets[0], sheet, pivot + sums / count, inside)
    write(sheets[1], sheet, tl.sum(square, 0) - sums * sums / count, inside)
    if is_last(done, parts):
        each = tl.arange(0, PARTS)
        noted = (each < parts)[:, None] & inside[None, :]
        counts = tl.maximum(tl.minimum(part, counted - each * part), 0).to(tl.float32)[:, None]
        means = read_parts(sheets[0], column, columns, parts, PARTS)
        mean = tl.sum(tl.where(noted, counts * means, 0.0), 0) / counted
        away, within = means - mean[None, :], read_parts(sheets[1], column, columns, parts, PARTS)
        spread = tl.sum(tl.where(noted & (counts > 0), within + counts * away * away, 0.0), 0)
        write(known[0], own, mean, inside)
        write(known[1], own, 1 / tl.sqrt(spread / counted + eps), inside)
        update(running, client, own, inside, mean, spread / (counted - 1), momentum)


@triton.jit(do_not_specialize=WITHOUT_VARIANTS)
def _result(
    x, shortcut, out, known, valid, rows, columns, pixels,
    RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """(x - mean) / deviation * weight + bias, then shortcut and relu."""
    row, column = tile(ROWS, COLUMNS)
    client = tl.program_id(2)
    own, inside, place, there = _of_client(row, column, client, rows, columns)
    mean, _, scale, shift = _read_known(known, own, inside)
    value = (read(x, place, there) - mean[None, :]) * scale[None, :] + shift[None, :]
    if shortcut is not None:
        value += read(shortcut, place, there)
    if RELU:
        value = tl.maximum(value, 0.0)
    if valid is not None:
        value = tl.where((row < _counted(valid, client, rows, pixels))[:, None], value, 0.0)
    write(out, place, value, there)


@triton.jit(do_not_specialize=WITHOUT_VARIANTS)
def _slope_sums(
    slope, x, out, sheets, done, known, of_weight, of_bias, factor, valid, rows, columns, pixels, part, parts,
    RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Gradients of weight and bias; `factor` is the coefficient of (x - mean) in the gradient of x."""
    _, column = tile(ROWS, COLUMNS)
    number, client = tl.program_id(0), tl.program_id(2)
    inside, own, above = column < columns, client * columns + column, client.to(tl.int64) * rows * columns
    counted = _counted(valid, client, rows, pixels)
    start = number * part
    end = tl.minimum(start + part, counted)
    mean, inverse, scale, shift = _read_known(known, own, inside)
    total, product = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(start, end, ROWS):
        place, there = cells(first + tl.arange(0, ROWS), column, end, columns)
        place += above
        value, away = read(slope, place, there), read(x, place, there) - mean[None, :]
        if RELU:
            value = tl.where(is_positive(out, place, there, away, scale, shift), value, 0.0)
        total += value
        product += value * away
    sheet = (client * parts + number) * columns + column
    write(sheets[0], sheet, tl.sum(total, 0), inside)
    write(sheets[1], sheet, tl.sum(product, 0), inside)
    if is_last(done, parts):
        mixed = tl.sum(read_parts(sheets[1], column, columns, parts, PARTS), 0)
        write(of_weight, own, mixed * inverse, inside)
        write(of_bias, own, tl.sum(read_parts(sheets[0], column, columns, parts, PARTS), 0), inside)
        write(factor, own, mixed * inverse * inverse / counted, inside)


@triton.jit(do_not_specialize=WITHOUT_VARIANTS)
def _slopes(
    slope, x, out, of_x, of_shortcut, known, of_bias, factor_in, valid, rows, columns, pixels,
    RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Gradients of x and of the shortcut."""
    row, column = tile(ROWS, COLUMNS)
    client = tl.program_id(2)
    own, inside, place, there = _of_client(row, column, client, rows, columns)
    counted = _counted(valid, client, rows, pixels)
    mean, _, scale, shift = _read_known(known, own, inside)
    value, away = read(slope, place, there), read(x, place, there) - mean[None, :]
    if RELU:
        value = tl.where(is_positive(out, place, there, away, scale, shift), value, 0.0)
    if valid is not None:
        value = tl.where((row < counted)[:, None], value, 0.0)
    if of_shortcut is not None:
        write(of_shortcut, place, value, there)
    centre, factor = read(of_bias, own, inside) / counted, read(factor_in, own, inside)
    result = scale[None, :] * (value - centre[None, :] - away * factor[None, :])
    if valid is not None:
        result = tl.where((row < counted)[:, None], result, 0.0)
    write(of_x, place, result, there)


@triton.jit(do_not_specialize=["rows", "pixels"])
def _result_of_few(
    x, shortcut, out, known, running, valid, rows, columns, pixels, momentum, eps,
    RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """`_statistics` and `_result` in one, for clients whose columns a program can hold.

    All loads come first: none depends on another, and those after a sum would have to wait for it.
    """
    row, column, client = tl.arange(0, ROWS), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.program_id(1)
    own, inside, place, there = _of_client(row, column, client, rows, columns)
    counted = _counted(valid, client, rows, pixels)
    value = read(x, place, there)
    added = 0.0 if shortcut is None else read(shortcut, place, there)
    gain, shift = read(known[2], own, inside), read(known[3], own, inside)
    old_mean, old_var = read(running[0], own, inside), read(running[1], own, inside)
    seen = tl.load(running[2] + client)
    counts = (row < counted)[:, None] & inside[None, :]
    mean = tl.sum(tl.where(counts, value, 0.0), 0) / counted
    away = tl.where(counts, value - mean[None, :], 0.0)
    spread = tl.sum(away * away, 0)
    inverse = 1 / tl.sqrt(spread / counted + eps)
    write(known[0], own, mean, inside)
    write(known[1], own, inverse, inside)
    write(running[0], own, old_mean + momentum * (mean - old_mean), inside)
    write(running[1], own, old_var + momentum * (spread / (counted - 1) - old_var), inside)
    if tl.program_id(0) == 0:
        tl.store(running[2] + client, seen + 1)
    value = away * (inverse * gain)[None, :] + shift[None, :] + added
    if RELU:
        value = tl.maximum(value, 0.0)
    write(out, place, tl.where(counts, value, 0.0), there)


@triton.jit(do_not_specialize=["rows", "pixels"])
def _slopes_of_few(
    slope, x, out, of_x, of_shortcut, known, of_weight, of_bias, valid, rows, columns, pixels,
    RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """`_slope_sums` and `_slopes` in one, for clients whose columns a program can hold; all loads come first."""
    row, column, client = tl.arange(0, ROWS), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.program_id(1)
    own, inside, place, there = _of_client(row, column, client, rows, columns)
    counted = _counted(valid, client, rows, pixels)
    value, before = read(slope, place, there), read(x, place, there)
    mean, inverse, scale, shift = _read_known(known, own, inside)
    counts = (row < counted)[:, None] & inside[None, :]
    value, away = tl.where(counts, value, 0.0), tl.where(counts, before - mean[None, :], 0.0)
    if RELU:
        value = tl.where(is_positive(out, place, there, away, scale, shift), value, 0.0)
    if of_shortcut is not None:
        write(of_shortcut, place, value, there)
    total, product = tl.sum(value, 0), tl.sum(value * away, 0)
    write(of_weight, own, product * inverse, inside)
    write(of_bias, own, total, inside)
    centre, factor = total / counted, product * inverse * inverse / counted
    result = scale[None, :] * (value - centre[None, :] - away * factor[None, :])
    write(of_x, place, tl.where(counts, result, 0.0), there)
