"""Read counts from CSV, Parquet and NPY; large files in parts.

How a table is read follows from its columns (`fedeas.planning.columns`). pyarrow is imported only when a file needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from fedeas.core.errors import InputError
from fedeas.core.files import PathLike
from fedeas.core.foreign_text import printable
from fedeas.core.inputs import DAMAGED_ARRAYS, checked_file, is_folder
from fedeas.planning.columns import Column, ColumnNames, Layout, is_total, layout_of
from fedeas.planning.counts import LabelCounts
from fedeas.planning.tables.formats import Chunk, format_of
from fedeas.planning.tables.opening import (
    STREAMED_CELLS_PER_BYTE,
    check_cells,
    check_header,
    check_number,
    check_points,
    coded,
    columns_of,
    is_text,
    names_as_written,
    open_parquet,
    plain,
    read_csv,
    stripped,
)
from fedeas.planning.validation import MAX_CLIENT_SIZE, TOO_LARGE

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_CELLS = 2**21
HEAD_ROWS = 1000  # of a column whose name does not say what it holds
FORMATS = (".csv", ".parquet", ".npy")

SizeCheck = Callable[[int, int], None]
"""Called with the numbers of clients and classes; may refuse a table before it takes memory."""


def read_counts(path: PathLike, num_classes: int | None = None, columns: ColumnNames | None = None) -> LabelCounts:
    """Read a whole table as `LabelCounts`, with the names that the file gives.

    `num_classes` is for long tables whose labels are numbers: classes are then 0 to `num_classes` - 1, including
    those without samples. Otherwise classes are the labels that occur. `columns` names those that are not to be
    recognised by their names.
    """
    return CountTable(path, columns).counts(num_classes)


def read_columns(path: PathLike, names_column: str | None = None) -> dict[str, list[Any]]:
    """The columns of a CSV or Parquet table by name; refuse missing values.

    `names_column` is the column with client names; if it is given, all other columns are read as counts.
    """
    suffix, size = format_of(path, ".csv", ".parquet"), checked_file(path)
    with _naming(path):
        if suffix == ".csv":
            table = read_csv(path)
        else:
            file = open_parquet(path)
            check_cells(file.metadata.num_rows * max(1, len(file.schema_arrow.names)), size)
            table = file.read()
        check_header(table.schema.names)
        if suffix == ".csv":
            table = names_as_written(path, table, [names_column] if names_column else _client_columns(table))
            if names_column is not None:
                check_points(path, table, [name for name in table.column_names if name != names_column])
        return {
            name: _names(plain(table.column(name)), f"value in {name!r}").to_pylist() for name in table.column_names
        }


def _client_columns(table: pa.Table) -> list[str]:
    return [name for name in table.column_names if Column(name, False, False, list).names_clients()]


class CountTable:
    """A file of counts. Its columns are recognised when it is opened; `how` says how it is read."""

    def __init__(self, path: PathLike, columns: ColumnNames | None = None) -> None:
        self.path = path
        if is_folder(path):
            raise InputError(f"{path}: a folder, not a table of counts; if it holds images, give folder:{path}")
        self.suffix, self.size = format_of(path, *FORMATS), checked_file(path)
        self.layout, self.how = Layout(None), "a table of clients x classes, without names"
        with _naming(path):
            if self.suffix == ".npy":
                if columns is not None and [*columns]:
                    raise InputError("an array has no columns; leave their names out (--client-column and the like)")
                return
            self._source = read_csv(path) if self.suffix == ".csv" else open_parquet(path)
            schema = self._source.schema if self.suffix == ".csv" else self._source.schema_arrow
            check_header(schema.names)
            self.layout = layout_of(columns_of(schema, self._head), columns)
            self.how = self.layout.describe()
            if self.suffix == ".csv":
                self.how += self.layout.remark_on_header(columns or ColumnNames())
                self._source = names_as_written(path, self._source, [self.layout.client, self.layout.label])
            for name in self.layout.classes:
                if not is_text(schema.field(name).type):  # of text, the row is named
                    check_number(schema.field(name).type, name)

    def counts(self, num_classes: int | None = None, check: SizeCheck | None = None) -> LabelCounts:
        """The whole table."""
        if num_classes is not None and num_classes < 2:
            raise InputError(f"the number of classes must be at least 2, not {num_classes}")
        accept = check or (lambda clients, classes: None)
        with _naming(self.path):
            if num_classes is not None and not self.layout.is_long:
                raise InputError("has a column for each class; leave the number of classes out (--classes)")
            if self.suffix == ".npy":
                return LabelCounts(_load_npy(self.path))
            if self.layout.is_long:
                return _tally(self._read(), self.layout, num_classes, accept)
            accept(self._rows, len(self.layout.classes))
            counts, names = _from_wide(self._read(), self.layout, 0)
            found = LabelCounts(counts.n, None if names is None else names.to_pylist(), counts.classes)
            _check_no_sums(found)
            return found

    @property
    def in_parts(self) -> bool:
        """Whether the file can be read part by part, as often as needed."""
        return self.suffix == ".npy" or (self.suffix == ".parquet" and not self.layout.is_long)

    @property
    def cells(self) -> int:
        """Counts in a file that is read in parts."""
        if self.suffix == ".npy":
            return int(_load_npy(self.path).size)
        return self._rows * len(self.layout.classes)

    def chunks(self, cells: int = CHUNK_CELLS, named: bool = True) -> Iterator[Chunk]:
        """The table in parts of about `cells` counts, so that it need not fit into memory (Parquet and NPY).

        Each part is checked when it is read. A client that appears twice is found, and refused, only at the end. If not
        `named`, names are neither read nor checked.
        """
        with _naming(self.path):
            if self.suffix == ".npy":
                yield from _npy_chunks(self.path, cells)
                return
            if self.in_parts:
                layout = self.layout if named else replace(self.layout, client=None)
                yield from _parquet_chunks(self._source, layout, self.size, cells)
                return
        counts = self.counts()
        yield Chunk(counts, counts.clients, 0)

    @property
    def _rows(self) -> int:
        return int(self._source.num_rows if self.suffix == ".csv" else self._source.metadata.num_rows)

    def _read(self) -> pa.Table:
        """The needed columns; refuse a Parquet table that is far larger than its file."""
        names = list(self.layout.needed)
        if self.suffix == ".csv":
            count = self.layout.count
            check_points(self.path, self._source, self.layout.classes if count is None else [count])
            return self._source.select(names)
        check_cells(self._rows * max(1, len(names)), self.size)
        return self._source.read(columns=names)

    def _head(self, name: str) -> list[Any]:
        """The first values of a column; missing ones are left out."""
        if self.suffix == ".csv":
            parts = iter([self._source.select([name]).slice(0, HEAD_ROWS)])
        else:
            parts = self._source.iter_batches(HEAD_ROWS, columns=[name])
        return [value for part in islice(parts, 1) for value in part.column(0).to_pylist() if value is not None]


def _check_no_sums(counts: LabelCounts) -> None:
    """Refuse a last row that is called total and is the sum of the others: it would be a client."""
    *_, last = counts.clients or ("",)
    if is_total(last) and len(counts.n) > 2 and np.array_equal(counts.n[:-1].sum(axis=0), counts.n[-1]):
        raise InputError(f": {last!r} is the sum of the rows above; remove it", row=len(counts.n) - 1)


@contextmanager
def _naming(path: PathLike) -> Iterator[None]:
    """Put the file's name before every error in it."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except MemoryError:  # pyarrow's is also one of the errors below
        raise
    except _unreadable() as error:
        raise InputError(f"{path}: cannot be read ({' '.join(str(error).split())})") from None


def _unreadable() -> tuple[type[Exception], ...]:
    """The errors of a file that cannot be read; pyarrow has raised none of its own unless it is loaded."""
    pyarrow = sys.modules.get("pyarrow")
    return OSError, ValueError, EOFError, *([pyarrow.ArrowException] if pyarrow else [])


def _load_npy(path: PathLike) -> Any:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except DAMAGED_ARRAYS as error:
        raise InputError(f"cannot be read ({printable(error)[:200]})") from None
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


def _parquet_chunks(file: Any, layout: Layout, size: int, cells: int) -> Iterator[Chunk]:
    import pyarrow as pa

    names, start = list(layout.needed), 0
    check_cells(file.metadata.num_rows * max(1, len(names)), size, STREAMED_CELLS_PER_BYTE)
    unique = _UniqueNames()
    for batch in file.iter_batches(max(1, cells // max(1, len(names))), columns=names):
        counts, clients = _from_wide(pa.Table.from_batches([batch]), layout, start)
        unique.add(clients)
        yield Chunk(counts, clients, start)
        start += len(batch)
    if not start:
        raise InputError("the table of counts is empty; give at least one client")
    if layout.client is not None:
        only = [layout.client]
        unique.check(
            lambda: (_client_column(pa.Table.from_batches([b]), layout, 0) for b in file.iter_batches(columns=only))
        )


def _from_wide(table: pa.Table, layout: Layout, first_row: int) -> tuple[LabelCounts, Any]:
    """Counts of a wide table, and its client column; refuse repeated names."""
    names = _unrepeated(_client_column(table, layout, first_row), first_row)
    with _shifted(first_row, names):
        columns = [_numbers(table.column(name), name) for name in layout.classes]
        if not columns:
            raise InputError("has no class columns; give one column of counts for each class")
        return LabelCounts(np.stack(columns, axis=1), classes=layout.classes), names


def _client_column(table: pa.Table, layout: Layout, first_row: int) -> Any:
    return None if layout.client is None else _names(table.column(layout.client), "client name", first_row)


def _names(column: pa.ChunkedArray, what: str, first_row: int = 0) -> pa.ChunkedArray:
    """A column of names or labels; refuse missing ones, including NaN."""
    import pyarrow as pa

    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        raise InputError(f"a {what} of type {column.type}; give text or whole numbers")
    column = stripped(column)
    missing = column.is_null(nan_is_null=True).to_numpy()
    if missing.any():
        raise InputError(f": missing {what}; give one", row=int(missing.argmax()) + first_row)
    return column


def _unrepeated(column: Any, first_row: int) -> Any:
    """The client column without dictionary encoding; refuse a name that repeats."""
    if column is None or not len(column):
        return column
    names, which = coded(column, "client name")
    if len(names) < len(which):
        order = np.argsort(which, kind="stable")
        place = int(np.argmax(which[order][1:] == which[order][:-1]))
        first, second = sorted(order[place : place + 2].tolist())
        raise _duplicate(names[int(which[first])], first + first_row, second + first_row)
    return plain(column)


def _numbers(column: pa.ChunkedArray, name: str) -> Any:
    """A column of counts as an array; missing values become NaN. Refuse text, naming its row."""
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if pa.types.is_string(column.type):
        numeric = compute.match_substring_regex(column, r"^\s*[-+]?(\d+\.?\d*|\.\d+)\s*$").fill_null(True)
        row = int(np.argmin(numeric.to_numpy()))
        shown = str(column[row])[:50]
        raise InputError(f", class {name!r}: {shown!r} is not a count; give a whole number", row=row)
    check_number(column.type, name)
    return column.to_numpy()


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


def _tally(table: pa.Table, layout: Layout, num_classes: int | None, accept: SizeCheck) -> LabelCounts:
    """Counts of a long table, with a row for each sample or for each client and class."""
    names, labels = _client_column(table, layout, 0), _names(table.column(layout.label), "label")
    if not len(table):
        raise InputError("the table of counts is empty; give at least one client")
    clients, client_rows = _sorted_names(names, "client name")
    classes, class_columns = _sorted_names(labels, "label")
    if num_classes is not None and (classes.dtype.kind not in "iu" or not 0 <= classes[0] <= classes[-1] < num_classes):
        raise InputError(f"labels are not all whole numbers from 0 to {num_classes - 1}; check the number of classes")
    width = len(classes) if num_classes is None else num_classes
    accept(len(clients), width)
    check_cells(len(clients) * width, len(table))
    if num_classes is not None:
        class_columns, classes = classes[class_columns], np.arange(num_classes)
    cells, size = client_rows * width + class_columns, len(clients) * width
    flat = np.bincount(cells, minlength=size)
    layout.check_counts(bool(flat.max() > 1), len(table))
    if layout.count is not None:
        flat = np.bincount(cells, _checked_counts(table.column(layout.count), layout.count), size).astype(np.int64)
    return LabelCounts(flat.reshape(len(clients), width), clients.tolist(), classes.tolist())


def _checked_counts(column: pa.ChunkedArray, name: str) -> Any:
    """The counts of a tidy table; refuse the first that is no count, naming its row."""
    counts = _numbers(column, name)
    for bad, words in (
        (np.isnan(counts), "missing count; write 0 for none"),
        (counts < 0, "negative count {}; give 0 or more"),
        (counts != np.floor(counts), "fractional count {}; give whole numbers"),
        (counts > MAX_CLIENT_SIZE, TOO_LARGE),
    ):
        if bad.any():
            row = int(bad.argmax())
            raise InputError(f", column {name!r}: {words.format(counts[row])}", row=row)
    return counts


def _sorted_names(column: pa.ChunkedArray, what: str) -> tuple[Any, Any]:
    """The distinct names, sorted, and the index of its name for each row."""
    names, which = coded(column, what)
    ordered, places = np.unique(names.to_numpy(zero_copy_only=False), return_inverse=True)
    return ordered, places[which]


class _UniqueNames:
    """Finds a client that appears twice, with 8 bytes of memory for each client."""

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
        """Compare the names themselves: different names may have equal hashes."""
        seen: dict[object, int] = {}
        row = 0
        for column in columns:
            for key, name in zip(_hashes(column).tolist(), column.to_pylist(), strict=True):
                if key in suspects:
                    if name in seen:
                        raise _duplicate(name, seen[name], row)
                    seen[name] = row
                row += 1


def _duplicate(name: object, first: int, second: int) -> InputError:
    return InputError(f"duplicate client {str(name)!r} (rows {first + 1:,} and {second + 1:,}); merge or rename one")


def _hashes(column: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_integer(column.type):
        return column.to_numpy().astype(np.int64)
    return np.fromiter(map(hash, column.to_pylist()), dtype=np.int64, count=len(column))
