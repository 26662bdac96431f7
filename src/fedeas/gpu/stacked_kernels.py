# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""Convolutions of several clients at once as batched matrix products, for GPUs. Needs Triton.

Two kernels move pixels: one gathers the inputs of every output into a row of a matrix, the other sums the gradients
back. cuBLAS computes the products in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedeas.gpu.norm_kernels import evaluated, norm, tickets_for
from fedeas.gpu.side_streams import beside_backward
from fedeas.gpu.tile_kernels import cells, pixel_at, read, tile, write

__all__ = ["batch_of", "convolved", "evaluated", "max_pooled", "norm", "tickets_for"]

ROWS, COLUMNS = 32, 128
"""Rows and columns of the part of a matrix that a program moves."""

NARROW_ROWS, NARROW_COLUMNS = 128, 32
"""The same for images of a few channels, whose rows are short and no multiple of `COLUMNS`."""

ALIGNED = 16
"""Rows of values are read in large pieces if their length is a multiple of this."""

WIDE = 1024
"""Values of a program of an elementwise kernel."""

_WITHOUT_VARIANTS = ["height", "width", "stride", "top", "left"]  # one compilation for many layers


TABLES = ("images", "labels", "index", "shares", "valid")
"""What all steps of a joint training read: the first two by sample, the others by step, client and row."""


def batch_of(
    tables: Mapping[str, Tensor], number: Tensor, valid: Tensor, normalise: Any, dtype: torch.dtype,
    images: Tensor | None = None,
) -> list[Tensor]:  # fmt: skip
    """Normalised images, labels and shares of a step, for as many clients as `valid` has; also writes to `valid`.

    `images` are those of the step, if they are not just rows of the table.
    """
    (_, clients, rows), (_, *shape) = tables["index"].shape, tables["images"].shape
    size, device = len(valid) * rows, valid.device
    result = _images((size, *shape), dtype, device)
    labels, shares = torch.empty(size, dtype=torch.int64, device=device), torch.empty(len(valid), rows, device=device)
    values = result[0].numel()
    _take[(triton.cdiv(values, WIDE), size)](
        *(tables[name] for name in TABLES), images, number, normalise.scale, normalise.shift, result, labels, shares,
        valid, values, shape[0], shape[1] * shape[2], clients, rows, WIDE,
    )  # fmt: skip
    return [result, labels, shares]


def _images(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=device, memory_format=torch.channels_last)


class _Convolved(torch.autograd.Function):
    """First derivative only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, short: Tensor, geometry: Any, layer: Any) -> Tensor:
        x, (clients, seen, outputs) = x.contiguous(memory_format=torch.channels_last), short.shape
        matrix = _gathered(x, geometry, seen).view(clients, -1, seen)
        ctx.save_for_backward(matrix, short)
        ctx.geometry, ctx.layer, ctx.shape, ctx.dtype = geometry, layer, x.shape, weight.dtype
        result = torch.bmm(matrix, short)
        return result.view(len(x), geometry.height, geometry.width, outputs).permute(0, 3, 1, 2)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        (matrix, short), layer = ctx.saved_tensors, ctx.layer
        slope = slope.permute(0, 2, 3, 1).contiguous().view(len(short), -1, short.shape[2])
        # The product returns the precision of the weight directly, which saves a second pass over all gradients.
        options = {} if ctx.dtype == slope.dtype else {"out_dtype": ctx.dtype}
        with beside_backward(matrix, slope) if layer.beside else nullcontext():
            of_weight = torch.bmm(matrix.transpose(1, 2), slope, **options)
        of_x = None
        if ctx.needs_input_grad[0]:
            of_x = _spread(torch.bmm(slope, short.transpose(1, 2)), ctx.shape, ctx.geometry)
        if layer.update is None:
            return of_x, of_weight, None, None, None
        layer.update(of_weight)
        return of_x, None, None, None, None


convolved: Callable[..., Tensor] = _Convolved.apply
"""Convolve each client's images with the client's own kernels.

Args:
    x: images of all clients, one after the other.
    weight: matrices of (clients, seen pixels x channels, outputs), which get the gradient.
    short: the same in the precision of the images, used for the computation.
    geometry: how the window moves.
    layer: says what happens to the gradient of the weight in the backward pass: `beside`, `update`.
"""


class _MaxPooled(torch.autograd.Function):
    """First derivative only; of equal values the first one counts, as in torch."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x, (images, channels, height, width) = x.contiguous(memory_format=torch.channels_last), x.shape
        result = _images((images, channels, (height + 1) // 2, (width + 1) // 2), x.dtype, x.device)
        chosen = torch.empty_like(result, dtype=torch.uint8)
        outputs = result.numel() // channels
        grid, size = _tiles(outputs, channels)
        _pool[grid](x, result, chosen, outputs, channels, height, width, *result.shape[2:], *size)
        ctx.save_for_backward(chosen)
        ctx.shape = x.shape
        return result

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        (chosen,), (_, channels, height, width) = ctx.saved_tensors, ctx.shape
        slope = slope.contiguous(memory_format=torch.channels_last)
        result = _images(ctx.shape, slope.dtype, slope.device)
        pixels = result.numel() // channels
        grid, size = _tiles(pixels, channels)
        _pool_back[grid](slope, chosen, result, pixels, channels, height, width, *slope.shape[2:], *size)
        return result


max_pooled: Callable[..., Tensor] = _MaxPooled.apply
"""The largest value of each 3x3 window, at every second place."""


def _gathered(x: Tensor, geometry: Any, seen: int) -> Tensor:
    """The inputs of each output, one row for each; padding columns are zero."""
    images, channels, height, width = x.shape
    if geometry.gathers_nothing(height, width) and seen == geometry.rows * geometry.columns * channels:
        return x.permute(0, 2, 3, 1).reshape(-1, seen)
    rows = images * geometry.height * geometry.width
    matrix = x.new_empty((rows, seen))
    tall, wide = (ROWS, COLUMNS) if channels % ALIGNED == 0 else (NARROW_ROWS, NARROW_COLUMNS)
    _gather[(triton.cdiv(rows, tall), triton.cdiv(seen, wide))](
        x, matrix, rows, seen, channels, height, width, geometry.rows, geometry.columns,
        geometry.stride, geometry.top, geometry.left, geometry.height, geometry.width, tall, wide,
    )  # fmt: skip
    return matrix


def _spread(matrix: Tensor, shape: torch.Size, geometry: Any) -> Tensor:
    """The gradient of the images, from the gradient of the gathered matrix."""
    images, channels, height, width = shape
    if geometry.gathers_nothing(height, width) and matrix.shape[-1] == geometry.rows * geometry.columns * channels:
        return matrix.view(images, height, width, channels).permute(0, 3, 1, 2)
    result = _images(shape, matrix.dtype, matrix.device)
    pixels = images * height * width
    grid, size = _tiles(pixels, channels)
    _sum_back[grid](
        matrix, result, pixels, matrix.shape[-1], channels, height, width, geometry.height, geometry.width,
        geometry.top, geometry.left, geometry.stride, geometry.rows, geometry.columns, *size,
    )  # fmt: skip
    return result


def _tiles(pixels: int, channels: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """The number of programs for a matrix of pixels x channels, and the rows and columns of each."""
    columns = min(COLUMNS, int(triton.next_power_of_2(channels)))
    return (triton.cdiv(pixels, ROWS), triton.cdiv(channels, columns)), (ROWS, columns)


@triton.jit(do_not_specialize=[*_WITHOUT_VARIANTS, "rows", "window_rows", "window_columns"])
def _gather(
    x, matrix, rows, seen, channels, height, width, window_rows, window_columns, stride, top, left,
    OUT_HEIGHT: tl.constexpr, OUT_WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """A row for each output, a column for each pixel of the window and channel.

    Every thread divides by the size of the result once for each of its rows: with constants this is several times
    faster.
    """
    row, column = tile(ROWS, COLUMNS)
    image, output_row, output_column = pixel_at(row, OUT_HEIGHT, OUT_WIDTH)
    y, z = output_row * stride - top, output_column * stride - left
    tap, channel = column // channels, column % channels
    i, j = tap // window_columns, tap % window_columns
    below, right = (y[:, None] + i[None, :]).to(tl.uint32), (z[:, None] + j[None, :]).to(tl.uint32)
    there = (row < rows)[:, None] & (i < window_rows)[None, :] & (below < height) & (right < width)  # -1 is very large
    corner = ((image.to(tl.int64) * height + y) * width + z) * channels
    value = tl.load(x + corner[:, None] + ((i * width + j) * channels + channel)[None, :], there, 0.0)
    target, inside = cells(row, column, rows, seen)
    write(matrix, target, value, inside)


@triton.jit(do_not_specialize=["height", "width", "top", "left", "out_height", "out_width", "pixels"])
def _sum_back(
    matrix, result, pixels, seen, channels, height, width, out_height, out_width, top, left, STRIDE: tl.constexpr,
    WINDOW_ROWS: tl.constexpr, WINDOW_COLUMNS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Sum for each pixel over all outputs that depend on it."""
    pixel, channel = tile(ROWS, COLUMNS)
    image, y, z = pixel_at(pixel, height, width)
    target, inside = cells(pixel, channel, pixels, channels)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for i in tl.static_range(WINDOW_ROWS):
        for j in tl.static_range(WINDOW_COLUMNS):
            down, along = y + top - i, z + left - j
            saw = (down >= 0) & (down % STRIDE == 0) & (down // STRIDE < out_height)
            saw &= (along >= 0) & (along % STRIDE == 0) & (along // STRIDE < out_width)
            row = (image.to(tl.int64) * out_height + down // STRIDE) * out_width + along // STRIDE
            place = row[:, None] * seen + (i * WINDOW_COLUMNS + j) * channels + channel[None, :]
            total += read(matrix, place, inside & saw[:, None])
    write(result, target, total, inside)


@triton.jit(do_not_specialize=["outputs", "height", "width", "out_height", "out_width"])
def _pool(
    x, result, chosen, outputs, channels, height, width, out_height, out_width,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The largest of nine values, and its position."""
    output, channel = tile(ROWS, COLUMNS)
    image, y, z = pixel_at(output, out_height, out_width)
    target, inside = cells(output, channel, outputs, channels)
    best, which = tl.full((ROWS, COLUMNS), float("-inf"), tl.float32), tl.zeros((ROWS, COLUMNS), tl.int32)
    for tap in tl.static_range(9):
        row, column = 2 * y - 1 + tap // 3, 2 * z - 1 + tap % 3
        there = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        source = ((image * height + row) * width + column).to(tl.int64) * channels
        value = tl.load(x + source[:, None] + channel[None, :], there[:, None] & inside, float("-inf")).to(tl.float32)
        larger = value > best
        best, which = tl.where(larger, value, best), tl.where(larger, tap, which)
    write(result, target, best, inside)
    write(chosen, target, which, inside)


@triton.jit(do_not_specialize=["pixels", "height", "width", "out_height", "out_width"])
def _pool_back(
    slope, chosen, result, pixels, channels, height, width, out_height, out_width,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """A value gets the slopes of the windows in which it was chosen."""
    pixel, channel = tile(ROWS, COLUMNS)
    image, y, z = pixel_at(pixel, height, width)
    target, inside = cells(pixel, channel, pixels, channels)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for window in tl.static_range(4):  # an odd row is seen by two windows, an even one by one; likewise columns
        row, column = (y + window // 2) // 2, (z + window % 2) // 2
        there = (row < out_height) & (column < out_width) & (y % 2 >= window // 2) & (z % 2 >= window % 2)
        source = ((image * out_height + row) * out_width + column).to(tl.int64) * channels
        place, known = source[:, None] + channel[None, :], there[:, None] & inside
        tap = (y - 2 * row + 1) * 3 + z - 2 * column + 1
        its = tl.load(chosen + place, known, 255).to(tl.int32) == tap[:, None]
        total += tl.where(its, read(slope, place, known), 0.0)
    write(result, target, total, inside)


@triton.jit
def _take(
    all_images, all_labels, all_index, all_shares, all_valid, own_images, number, scale, shift, images, labels, shares,
    valid, values, channels, pixels, clients, rows, WIDE: tl.constexpr,
):  # fmt: skip
    """Each program normalises a piece of one image, the first also copies its label and share."""
    row, place, step = tl.program_id(1), tl.program_id(0) * WIDE + tl.arange(0, WIDE), tl.load(number)
    source = step * clients * rows + row
    sample = tl.load(all_index + source).to(tl.int64)
    image = all_images + sample * values if own_images is None else own_images + row.to(tl.int64) * values
    inside, channel = place < values, place % channels
    value = tl.load(image + channel * pixels + place // channels, inside, 0).to(tl.float32)
    value = value * tl.load(scale + channel, inside) + tl.load(shift + channel, inside)
    write(images, row.to(tl.int64) * values + place, value, inside)
    if tl.program_id(0) == 0:
        tl.store(labels + row, tl.load(all_labels + sample))
        tl.store(shares + row, tl.load(all_shares + source))
        if row % rows == 0:
            tl.store(valid + row // rows, tl.load(all_valid + step * clients + row // rows))
