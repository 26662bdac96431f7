"""Counts in from CSV, Parquet and NPY, in parts where they are large.

A wide table has a row for each client: an optional column ``client`` and one column for each class. A long table has a
row for each sample, with the columns ``client`` and ``label``. pyarrow is imported only when a file asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

import numpy as np

from fedeas.counts import LabelCounts
from fedeas.errors import InputError
from fedeas.tables.formats import Chunk, PathLike, format_of

if TYPE_CHECKING:
    import pyarrow as pa

CLIENT_COLUMNS = ("client", "client_id")
LABEL_COLUMN = "label"
CHUNK_CELLS = 2**21


def read_counts(path: PathLike, num_classes: int | None = None) -> LabelCounts:
    """The whole table as `LabelCounts`, with the names that the file gives.

    `num_classes` is for long tables whose labels are numbers: classes are then 0 to `num_classes` - 1, including
    those that nobody holds. Otherwise classes are the labels that occur.
    """
    with _naming(path):
        if format_of(path, ".csv", ".parquet", ".npy") == ".npy":
            return LabelCounts(_load_npy(path))
        table = _read_csv(path) if format_of(path) == ".csv" else _open_parquet(path).read()
        if _is_long(table.schema.names):
            return _tally(table, num_classes)
        counts, names = _from_wide(table, 0)
        clients = None if names is None else names.to_pylist()
        return LabelCounts(counts.n, clients, counts.classes)


def count_chunks(path: PathLike, cells: int = CHUNK_CELLS) -> Iterator[Chunk]:
    """The table in parts of about `cells` counts, so that it need not fit into memory (Parquet and NPY).

    Each part is checked as it is read; that no client appears twice is known, and raised, only at the end.
    """
    suffix = format_of(path, ".csv", ".parquet", ".npy")
    with _naming(path):
        if suffix == ".npy":
            yield from _npy_chunks(path, cells)
            return
        if suffix == ".parquet" and not _is_long(_open_parquet(path).schema_arrow.names):
            yield from _parquet_chunks(path, cells)
            return
    counts = read_counts(path)
    yield Chunk(counts, counts.clients, 0)


@contextmanager
def _naming(path: PathLike) -> Iterator[None]:
    """Put the file's name in front of whatever goes wrong with it."""
    import pyarrow as pa

    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: cannot be read ({' '.join(str(error).split())})") from None


def _load_npy(path: PathLike) -> Any:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (MemoryError, OverflowError, SyntaxError, RecursionError, TokenError) as error:  # from a damaged header
        raise ValueError(str(error) or type(error).__name__) from None
    if not isinstance(array, np.ndarray):
        raise InputError("holds no single array; save the table with numpy.save")
    return array


def _npy_chunks(path: PathLike, cells: int) -> Iterator[Chunk]:
    array = _load_npy(path)
    if array.ndim != 2 or not array.size:
        LabelCounts(array)  # says what is wrong
    rows = max(1, cells // array.shape[1])
    for start in range(0, array.shape[0], rows):
        with _shifted(start):
            counts = LabelCounts(np.array(array[start : start + rows]))
        yield Chunk(counts, None, start)


def _read_csv(path: PathLike) -> pa.Table:
    from pyarrow.csv import ConvertOptions, read_csv

    return read_csv(path, convert_options=ConvertOptions(strings_can_be_null=True))


def _open_parquet(path: PathLike) -> Any:
    from pyarrow import parquet

    return parquet.ParquetFile(path)


def _parquet_chunks(path: PathLike, cells: int) -> Iterator[Chunk]:
    import pyarrow as pa

    file = _open_parquet(path)
    names, start = file.schema_arrow.names, 0
    unique = _UniqueNames()
    for batch in file.iter_batches(max(1, cells // max(1, len(names)))):
        counts, clients = _from_wide(pa.Table.from_batches([batch]), start)
        unique.add(clients)
        yield Chunk(counts, clients, start)
        start += len(batch)
    if not start:
        raise InputError("the table of counts is empty; give at least one client")
    unique.check(lambda: (_client_column(pa.Table.from_batches([b]), 0) for b in file.iter_batches()))


def _is_long(columns: list[str]) -> bool:
    return LABEL_COLUMN in columns and any(name.lower() in CLIENT_COLUMNS for name in columns)


def _from_wide(table: pa.Table, first_row: int) -> tuple[LabelCounts, Any]:
    """Counts of a wide table, and its client column."""
    names = _client_column(table, first_row)
    classes = [name for name in table.schema.names if name.lower() not in CLIENT_COLUMNS]
    with _shifted(first_row, names):
        columns = [_numbers(table.column(name), name) for name in classes]
        if not columns:
            raise InputError("has no class columns; give one column of counts for each class")
        return LabelCounts(np.stack(columns, axis=1), classes=classes), names


def _client_column(table: pa.Table, first_row: int) -> Any:
    found = [name for name in table.schema.names if name.lower() in CLIENT_COLUMNS]
    if len(found) > 1:
        raise InputError(f"has {len(found)} client columns ({', '.join(found)}); keep one")
    if len(set(table.schema.names)) < len(table.schema.names):
        twice = next(name for name in table.schema.names if table.schema.names.count(name) > 1)
        raise InputError(f"has two columns named {twice!r}; rename one (is the header row missing?)")
    if not found:
        return None
    column = table.column(found[0])
    if column.null_count:
        row = column.is_null().to_numpy().argmax()
        raise InputError(": missing client name; give one", row=int(row) + first_row)
    return column


def _numbers(column: pa.ChunkedArray, name: str) -> Any:
    """A column of counts as an array; missing values become NaN, text is refused with its row."""
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return column.to_numpy()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        numeric = compute.match_substring_regex(column, r"^\s*[-+]?(\d+\.?\d*|\.\d+)\s*$").fill_null(True)
        row = int(np.argmin(numeric.to_numpy()))
        raise InputError(f", class {name!r}: {column[row].as_py()!r} is not a count; give a whole number", row=row)
    raise InputError(f"column {name!r} holds {column.type}, not counts; give whole numbers")


@contextmanager
def _shifted(first_row: int, names: Any = None) -> Iterator[None]:
    """Turn the row of a part into the row of the file, with the client's name."""
    try:
        yield
    except InputError as error:
        if error.row is None:
            raise
        client = "" if names is None else f" (client {str(names[error.row].as_py())!r})"
        raise InputError(f"{client}{error.message}", row=error.row + first_row) from None


def _tally(table: pa.Table, num_classes: int | None) -> LabelCounts:
    """Counts of a long table with a row for each sample."""
    names = _client_column(table, 0)
    labels = table.column(LABEL_COLUMN)
    if labels.null_count:
        raise InputError(": missing label; give one", row=int(labels.is_null().to_numpy().argmax()))
    if not len(table):
        raise InputError("the table of counts is empty; give at least one client")
    clients, client_rows = np.unique(names.to_numpy(zero_copy_only=False), return_inverse=True)
    classes, class_columns = np.unique(labels.to_numpy(zero_copy_only=False), return_inverse=True)
    if num_classes is not None:
        if classes.dtype.kind not in "iu" or classes.min() < 0 or classes.max() >= num_classes:
            raise InputError(
                f"labels are not all whole numbers from 0 to {num_classes - 1}; check the number of classes"
            )
        class_columns, classes = classes[class_columns], np.arange(num_classes)
    flat = np.bincount(client_rows * len(classes) + class_columns, minlength=len(clients) * len(classes))
    return LabelCounts(flat.reshape(len(clients), len(classes)), clients.tolist(), classes.tolist())


class _UniqueNames:
    """Notices a client that appears twice, at the price of 8 bytes a client."""

    def __init__(self) -> None:
        self.parts: list[Any] = []

    def add(self, column: Any) -> None:
        if column is not None:
            self.parts.append(_hashes(column))

    def check(self, reread: Any) -> None:
        if not self.parts:
            return
        keys = np.concatenate(self.parts)
        self.parts = [keys]
        ordered = np.sort(keys)
        repeated = ordered[1:][ordered[1:] == ordered[:-1]]
        if repeated.size:
            self._raise_if_same(set(repeated.tolist()), reread())

    def _raise_if_same(self, suspects: set[int], columns: Iterator[Any]) -> None:
        """Equal hashes may belong to different names: look at the names themselves."""
        seen: dict[object, int] = {}
        row = 0
        for column in columns:
            for key, name in zip(_hashes(column).tolist(), column.to_pylist(), strict=True):
                if key in suspects:
                    if name in seen:
                        raise InputError(
                            f"duplicate client {str(name)!r} (rows {seen[name] + 1:,} and {row + 1:,}); "
                            "merge or rename one"
                        )
                    seen[name] = row
                row += 1


def _hashes(column: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_integer(column.type):
        return column.to_numpy().astype(np.int64)
    return np.fromiter(map(hash, column.to_pylist()), dtype=np.int64, count=len(column))
