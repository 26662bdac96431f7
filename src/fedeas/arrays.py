"""The array types of the core, how arrays are kept from changing, and how large ones are worked off in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

# About this many cells at a time, so that temporaries stay in the processor's cache.
BLOCK_CELLS = 2**15


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """The same array, read-only from now on."""
    array.flags.writeable = False
    return array


def frozen_integers(values: ArrayLike) -> IntArray:
    """A read-only int64 array: shared if it is one already, else a copy."""
    array = np.asarray(values)
    if array.dtype == np.int64 and not array.flags.writeable:
        return array
    return frozen(array.astype(np.int64))


def row_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of rows that together hold about `BLOCK_CELLS` cells.

    >>> [block.stop - block.start for block in row_blocks(100_000, 2**14)][:2]
    [2, 2]
    """
    step = max(1, BLOCK_CELLS // max(1, columns))
    for start in range(0, rows, step):
        yield slice(start, start + step)
