# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""GPU kernels for the diffusion network: group norm, attention with small heads, and sums around matrix products.

Needs Triton. Images are channels last, so that an image is a matrix of pixels x channels. Sums are in float32. Each
kernel includes the cheap steps around its main work, because most time goes into reading and writing images.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedeas.gpu.tile_kernels import cells, pixel_at, read, write

HEAD_TILE = 16
"""The fewest channels that a matrix product in Triton supports."""

MOST_TOKENS = 256
"""All scores of a token must fit into registers."""

NORM_LANES = 64
"""Most channels of a program of group norm; more if one group has more."""

NORM_KEPT = 256
"""Images of up to this many pixels are read once and kept in registers."""

NORM_ROWS = 128
"""Pixels of larger images that a program reads at once; it reads them twice, the second time from the cache."""

NORM_WARPS = 8

ATTENTION_ROWS, ATTENTION_WARPS = 64, 4
PROJECT_ROWS, PROJECT_LANES, PROJECT_DEPTH, PROJECT_WARPS = 128, 64, 32, 4
COPY_ROWS = 64


def group_norm(
    x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float, *,
    shift: Tensor, other: Tensor | None = None, silu: bool = True,
) -> Tensor:  # fmt: skip
    """SiLU(group_norm(cat(x, other) + shift)) for images, channels last; `shift` is (images, channels)."""
    images, first, height, width = x.shape
    second, pixels = 0 if other is None else other.shape[1], height * width
    per_group = (first + second) // groups
    most = max(1, NORM_LANES // per_group)
    taken = per_group * max(count for count in range(1, most + 1) if groups % count == 0)
    kept = pixels <= NORM_KEPT
    out = _images(x, first + second, height, width)
    _group_norm[((first + second) // taken, images)](
        x, other, shift, weight, bias, out,
        first, second, per_group, shift.stride(0), eps,
        pixels, taken, _power_of_2(taken), _power_of_2(pixels) if kept else NORM_ROWS, silu,
        num_warps=NORM_WARPS,
    )  # fmt: skip
    return out


def attention(qkv: Tensor, head: int) -> Tensor:
    """Self-attention with heads of fewer than `HEAD_TILE` channels, for at most `MOST_TOKENS` tokens.

    `qkv` has queries, keys and values side by side, (images, tokens, 3 x channels).
    """
    images, tokens, triple = qkv.shape
    channels, keys = triple // 3, max(16, _power_of_2(tokens))
    out = qkv.new_empty(images, tokens, channels)
    _attention[(channels // head, images)](
        qkv, out, channels, math.log2(math.e) / math.sqrt(head),
        tokens, head, HEAD_TILE, min(ATTENTION_ROWS, keys), keys, num_warps=ATTENTION_WARPS,
    )  # fmt: skip
    return out


def project(x: Tensor, weight: Tensor, bias: Tensor, add: Tensor, other: Tensor | None = None) -> Tensor:
    """Add + cat(x, other) @ weight.T + bias for every pixel of images, channels last; written over `add`."""
    first, second, columns = x.shape[1], 0 if other is None else other.shape[1], add.shape[1]
    rows = x.numel() // first
    lanes = min(PROJECT_LANES, max(16, _power_of_2(columns)))
    _project[(triton.cdiv(columns, lanes) * triton.cdiv(rows, PROJECT_ROWS),)](
        x, other, weight, bias, add,
        rows, columns, first, second, PROJECT_ROWS, lanes, PROJECT_DEPTH, num_warps=PROJECT_WARPS,
    )  # fmt: skip
    return add


def add_to(x: Tensor, bias: Tensor, add: Tensor) -> Tensor:
    """X + bias + add for images, channels last, written over x."""
    columns, lanes = x.shape[1], _lanes(x.shape[1])
    rows = x.numel() // columns
    _add[(triton.cdiv(columns, lanes) * triton.cdiv(rows, COPY_ROWS),)](x, bias, add, rows, columns, COPY_ROWS, lanes)
    return x


def interleave(x: Tensor, bias: Tensor) -> Tensor:
    """Assemble images of twice the size from the four quarters of their pixels, and add a bias.

    `x` is (images, 4 x channels, height + 1, width + 1), channels last. Channels of quarter (i, j) hold result pixel
    (2 y + i, 2 x + j) at (y + i, x + j).
    """
    columns, height, width = x.shape[1] // 4, x.shape[2] - 1, x.shape[3] - 1
    out = _images(x, columns, 2 * height, 2 * width)
    rows, lanes = out.numel() // columns, _lanes(columns)
    _interleave[(triton.cdiv(columns, lanes) * triton.cdiv(rows, COPY_ROWS),)](
        x, bias, out, rows, height, width, columns, COPY_ROWS, lanes
    )
    return out


def _images(like: Tensor, *shape: int) -> Tensor:
    """As many images as there are, with other channels, height and width."""
    return torch.empty((len(like), *shape), dtype=like.dtype, device=like.device, memory_format=torch.channels_last)


def _lanes(columns: int) -> int:
    """The largest power of two that divides the columns, within limits."""
    return max(16, min(128, columns & -columns))


def _power_of_2(number: int) -> int:
    result: Any = triton.next_power_of_2(number)
    return int(result)


@triton.jit
def _group_norm(
    x, other, shift, weight, bias, out, first, second, group, shift_stride, eps,
    PIXELS: tl.constexpr, WIDTH: tl.constexpr, LANES: tl.constexpr, ROWS: tl.constexpr, SILU: tl.constexpr,
):  # fmt: skip
    """Some groups of one image; if all its pixels are read at once, they are kept."""
    image, lane, row = tl.program_id(1).to(tl.int64), tl.arange(0, LANES), tl.arange(0, ROWS)
    column, inside = tl.program_id(0) * WIDTH + lane, lane < WIDTH
    x, out = x + image * PIXELS * first, out + image * PIXELS * (first + second)
    if other is not None:
        other += image * PIXELS * second
    # Sums of squared distances to a pixel stay accurate if the mean is far from zero.
    pivot = tl.sum(_read_both(x, other, tl.arange(0, 1), column, inside, first, second, PIXELS).to(tl.float32), 0)
    value = _read_both(x, other, row, column, inside, first, second, PIXELS)
    totals = _distance(value, pivot, row, PIXELS)
    squares = totals * totals
    for start in range(ROWS, PIXELS, ROWS):
        piece = _read_both(x, other, start + row, column, inside, first, second, PIXELS)
        away = _distance(piece, pivot, start + row, PIXELS)
        totals += away
        squares += away * away
    total, square = tl.sum(totals, 0), tl.sum(squares, 0)
    offset = read(shift + image * shift_stride, column, inside)
    mean = pivot + total / PIXELS + offset
    centre = _over_group(mean, lane, group) / group
    gap = tl.where(inside, mean - centre, 0.0)
    spread = _over_group(square - total * total / PIXELS + PIXELS * gap * gap, lane, group)
    scale = tl.rsqrt(spread / (group * PIXELS) + eps) * read(weight, column, inside)
    base = read(bias, column, inside) + (offset - centre) * scale
    for start in range(0, PIXELS, ROWS):
        piece = value
        if ROWS < PIXELS:
            piece = _read_both(x, other, start + row, column, inside, first, second, PIXELS)
        result = piece.to(tl.float32) * scale[None, :] + base[None, :]
        if SILU:
            result = result / (1 + tl.exp(-result))
        place = (start + row)[:, None] * (first + second) + column[None, :]
        write(out, place, result, (start + row < PIXELS)[:, None] & inside[None, :])


@triton.jit
def _read_both(x, other, row, column, inside, first, second, PIXELS: tl.constexpr):
    """Rows of x, and of the other images beside it."""
    there = (row < PIXELS)[:, None] & inside[None, :]
    if other is None:
        value = tl.load(x + row[:, None] * first + column[None, :], there, 0.0)
    else:
        value = tl.load(x + row[:, None] * first + column[None, :], there & (column < first)[None, :], 0.0)
        place = row[:, None] * second + (column - first)[None, :]
        value += tl.load(other + place, there & (column >= first)[None, :], 0.0)
    return value


@triton.jit
def _distance(value, pivot, row, PIXELS: tl.constexpr):
    return tl.where((row < PIXELS)[:, None], value.to(tl.float32) - pivot[None, :], 0.0)


@triton.jit
def _over_group(value, lane, group):
    """The sum over its group, for each channel."""
    same = (lane // group)[:, None] == (lane // group)[None, :]
    return tl.sum(tl.where(same, value[None, :], 0.0), 1)


@triton.jit
def _attention(
    qkv, out, channels, scale,
    TOKENS: tl.constexpr, HEAD: tl.constexpr, LANES: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """One head of one image. Queries and keys are padded with zeros, values with ones, which add up the weights."""
    head, image, lane, key = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.arange(0, LANES), tl.arange(0, KEYS)
    queries, out = qkv + image * TOKENS * 3 * channels + head * HEAD, out + image * TOKENS * channels + head * HEAD
    mine, real, place = lane < HEAD, key < TOKENS, key * 3 * channels
    keys = tl.load(queries + channels + place[None, :] + lane[:, None], mine[:, None] & real[None, :], 0.0)
    values = tl.load(queries + 2 * channels + place[:, None] + lane[None, :], real[:, None] & mine[None, :], 1.0)
    for start in range(0, TOKENS, ROWS):
        row = start + tl.arange(0, ROWS)
        there = (row < TOKENS)[:, None] & mine[None, :]
        query = tl.load(queries + row[:, None] * 3 * channels + lane[None, :], there, 0.0)
        scores = tl.dot(query, keys, input_precision="ieee")
        if KEYS > TOKENS:
            scores = tl.where(real[None, :], scores, float("-inf"))
        weights = tl.exp2(scores * scale - (tl.max(scores, 1) * scale)[:, None])
        mixed = tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        total = tl.sum(tl.where((lane == HEAD)[None, :], mixed, 0.0), 1)
        result = (mixed / total[:, None]).to(out.dtype.element_ty)
        tl.store(out + row[:, None] * channels + lane[None, :], result, there)


@triton.jit
def _place(rows, columns, ROWS: tl.constexpr, LANES: tl.constexpr):
    """The cells of a program; programs of the same rows follow each other, so that they share the cache."""
    beside = tl.cdiv(columns, LANES)
    row = tl.program_id(0) // beside * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) % beside * LANES + tl.arange(0, LANES)
    place, there = cells(row, column, rows, columns)
    return row, column, place, there


@triton.jit
def _project(
    x, other, weight, bias, add, rows, columns, FIRST: tl.constexpr, SECOND: tl.constexpr,
    ROWS: tl.constexpr, LANES: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    row, column, place, there = _place(rows, columns, ROWS, LANES)
    total = tl.zeros((ROWS, LANES), tl.float32)
    total = _product(total, x, weight, row, column, rows, columns, FIRST, FIRST + SECOND, DEPTH)
    if other is not None:
        total = _product(total, other, weight + FIRST, row, column, rows, columns, SECOND, FIRST + SECOND, DEPTH)
    total += read(bias, column, column < columns)[None, :]
    total += read(add, place, there)
    write(add, place, total, there)


@triton.jit
def _product(
    total, x, weight, row, column, rows, columns, INPUTS: tl.constexpr, STRIDE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Total + x @ weight.T; rows of the full weight matrix are `STRIDE` long."""
    for start in range(0, INPUTS, DEPTH):
        inner = start + tl.arange(0, DEPTH)
        place, there = cells(row, inner, rows, INPUTS)
        left = tl.load(x + place, there, 0.0)
        place = column[None, :] * STRIDE + inner[:, None]
        right = tl.load(weight + place, (inner < INPUTS)[:, None] & (column < columns)[None, :], 0.0)
        total = tl.dot(left, right, total, input_precision="ieee")
    return total


@triton.jit
def _add(x, bias, add, rows, columns, ROWS: tl.constexpr, LANES: tl.constexpr):
    _, column, place, there = _place(rows, columns, ROWS, LANES)
    value = read(x, place, there) + read(add, place, there)
    value += read(bias, column, column < columns)[None, :]
    write(x, place, value, there)


@triton.jit
def _interleave(x, bias, out, rows, height, width, columns, ROWS: tl.constexpr, LANES: tl.constexpr):
    row, column, target, there = _place(rows, columns, ROWS, LANES)
    image, down, across = pixel_at(row, 2 * height, 2 * width)
    i, j = down % 2, across % 2
    pixel = (image.to(tl.int64) * (height + 1) + down // 2 + i) * (width + 1) + across // 2 + j
    place = (pixel * 4 + 2 * i + j)[:, None] * columns + column[None, :]
    value = read(x, place, there) + read(bias, column, column < columns)[None, :]
    write(out, target, value, there)
