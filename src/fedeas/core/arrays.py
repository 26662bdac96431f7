"""Array types, read-only arrays, work in blocks of rows, digests of content, and independent random streams."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
ByteArray = NDArray[np.uint8]

# About this many cells at a time, so that temporaries stay in the processor's cache.
BLOCK_CELLS = 2**15

FREE_BYTES, BYTES_PER_BYTE = 2**28, 200  # arrays may take this much, or this many times the size of their file

# Tables of this size or more are processed by several threads.
THREADED_CELLS = 2**20


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


def row_blocks(rows: int, columns: int, cells: int = BLOCK_CELLS) -> Iterator[slice]:
    """Slices of rows that together hold about this many cells."""
    step = max(1, cells // max(1, columns))
    for start in range(0, rows, step):
        yield slice(start, start + step)


def for_row_blocks(work: Callable[[slice], None], rows: int, columns: int, cells: int = BLOCK_CELLS) -> None:
    """Call `work` for every block, on all cores if the table is large: numpy releases the interpreter lock.

    Blocks must not depend on each other, so that their order does not change the result. If a block is little work, on
    many cores the threads wait for the lock: give more `cells`.
    """
    blocks = list(row_blocks(rows, columns, cells))
    threads = min(cores(), len(blocks)) if rows * columns >= THREADED_CELLS else 1

    def work_on(share: int) -> None:
        for block in blocks[len(blocks) * share // threads : len(blocks) * (share + 1) // threads]:
            work(block)

    if threads <= 1:
        work_on(0)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work_on, range(threads)))  # raises what a thread raised


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def digest_of_arrays(arrays: Iterable[NDArray[Any]]) -> str:
    """SHA-256 of the arrays' types, shapes and values, in this order; the same on every machine."""
    digest = hashlib.sha256()
    for array in arrays:
        plain = np.ascontiguousarray(array)
        plain = plain.astype(plain.dtype.newbyteorder("<"), copy=False)
        digest.update(f"{plain.dtype.str} {plain.shape}".encode())
        digest.update(plain.data)
    return digest.hexdigest()


def bytes_of_parquet(about: Any, *plain: str) -> int:
    """The bytes of all pages of a Parquet file by its metadata, and 8 for each value, without some `plain` columns."""
    groups = map(about.row_group, range(about.num_row_groups))
    chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
    return sum(
        each.total_uncompressed_size + 8 * each.num_values for each in chunks if each.path_in_schema not in plain
    )


def json_digest(content: object, *, sort_keys: bool = False) -> str:
    """The SHA-256 of what JSON can hold; with `sort_keys` the order of keys makes no difference."""
    return hashlib.sha256(json.dumps(content, sort_keys=sort_keys).encode()).hexdigest()


def stream_seed(use: str, *numbers: int) -> int:
    """The seed of the stream for this use; it has 63 bits, so that NumPy and torch both accept it.

    NumPy pads short seed tuples with zeros, so that ``(seed, round)`` and ``(seed, round, 0)`` give the same numbers.
    Here the seed is a hash of the use and all its numbers, so that no two uses in a run share a stream.
    """
    return int(json_digest([use, *map(int, numbers)])[:16], 16) >> 1


def stream(use: str, *numbers: int) -> np.random.Generator:
    """NumPy's generator for this use, for example ``stream("batches", seed, round, client)``."""
    return np.random.default_rng(stream_seed(use, *numbers))
