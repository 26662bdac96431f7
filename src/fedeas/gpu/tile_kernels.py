# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""What our GPU kernels share: the part of a matrix that a program works on, and how it is read and written.

Needs Triton. Images are channels last, so that they are a matrix of pixels x channels. Kernels compute in float32.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tile(ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The rows and columns of this program."""
    return tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)


@triton.jit
def cells(row, column, rows, columns):
    """Where these rows and columns are in the memory of a matrix, and which of them exist."""
    there = (row < rows)[:, None] & (column < columns)[None, :]
    return row.to(tl.int64)[:, None] * columns + column[None, :], there


@triton.jit
def pixel_at(number, height, width):
    """The image, row and column of a pixel."""
    return number // (height * width), number // width % height, number % width


@triton.jit
def read(pointer, place, there):
    """Values as float32; zero where there are none."""
    return tl.load(pointer + place, there, 0.0).to(tl.float32)


@triton.jit
def write(pointer, place, value, there):
    """Store values in the precision of their target."""
    tl.store(pointer + place, value.to(pointer.dtype.element_ty), there)


@triton.jit
def is_last(done, parts):
    """Whether the other parts of this program's columns are stored; then the counter is zero again."""
    tl.debug_barrier()
    ticket = done + tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)
    last = tl.atomic_add(ticket, 1, sem="acq_rel") == parts - 1
    tl.store(ticket, 0, last)
    return last


@triton.jit
def read_parts(pointer, column, columns, parts, PARTS: tl.constexpr):
    """What all programs of these columns have stored, past the cache of this processor."""
    first = tl.program_id(2) * parts
    place, there = cells(first + tl.arange(0, PARTS), column, first + parts, columns)
    return tl.load(pointer + place, there, 0.0, cache_modifier=".cg")
