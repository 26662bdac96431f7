"""Read counts from CSV, Parquet and NPY; large files in parts.

How a table is read follows from its columns (`fedeas.planning.columns`). pyarrow is imported only when a file needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedeas.core.errors import InputError
from fedeas.core.files import PathLike
from fedeas.core.foreign_text import printable
from fedeas.core.records import DAMAGED_ARRAYS, checked_file, is_there
from fedeas.planning.columns import Column, ColumnNames, Layout, is_total, layout_of
from fedeas.planning.counts import LabelCounts
from fedeas.planning.tables.formats import Chunk, SizeCheck, format_of, shifted

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_CELLS = 2**21
HEAD_ROWS = 1000  # of a column whose name does not say what it holds
FORMATS = (".csv", ".parquet", ".npy")


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
    from fedeas.planning.tables import arrow

    suffix, size = format_of(path, ".csv", ".parquet"), checked_file(path)
    with _naming(path):
        if suffix == ".csv":
            table = arrow.read_csv(path)
        else:
            file = arrow.open_parquet(path)
            arrow.check_cells(file.metadata.num_rows * max(1, len(file.schema_arrow.names)), size)
            table = file.read()
        arrow.check_header(table.schema.names)
        if suffix == ".csv":
            clients = [name for name in table.column_names if Column(name, False, False, list).names_clients()]
            table = arrow.names_as_written(path, table, [names_column] if names_column else clients)
            if names_column is not None:
                arrow.check_points(path, table, [name for name in table.column_names if name != names_column])
        return {
            name: arrow.checked_names(arrow.plain(table.column(name)), f"value in {name!r}").to_pylist()
            for name in table.column_names
        }


class CountTable:
    """A file of counts. Its columns are recognised when it is opened; `how` says how it is read."""

    def __init__(self, path: PathLike, columns: ColumnNames | None = None) -> None:
        self.path = path
        if is_there(path) and Path(path).is_dir():
            raise InputError(f"{path}: a folder, not a table of counts; if it holds images, give folder:{path}")
        self.suffix, self.size = format_of(path, *FORMATS), checked_file(path)
        self.layout, self.how = Layout(None), "a table of clients x classes, without names"
        with _naming(path):
            if self.suffix == ".npy":
                if columns is not None and [*columns]:
                    raise InputError("an array has no columns; leave their names out (--client-column and the like)")
                return
            from fedeas.planning.tables import arrow

            self._source = arrow.read_csv(path) if self.suffix == ".csv" else arrow.open_parquet(path)
            schema = self._source.schema if self.suffix == ".csv" else self._source.schema_arrow
            arrow.check_header(schema.names)
            kinds = ((field.name, arrow.is_text(field.type), arrow.is_number(field.type)) for field in schema)
            self.layout = layout_of([Column(*kind, partial(self._head, kind[0])) for kind in kinds], columns)
            self.how = self.layout.describe()
            if self.suffix == ".csv":
                self.how += self.layout.remark_on_header(columns or ColumnNames())
                self._source = arrow.names_as_written(path, self._source, [self.layout.client, self.layout.label])
            for name in self.layout.classes:
                if not arrow.is_text(schema.field(name).type):  # of text, the row is named
                    arrow.check_number(schema.field(name).type, name)

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
            from fedeas.planning.tables import arrow

            if self.layout.is_long:
                return arrow.tally(self._read(), self.layout, num_classes, accept)
            accept(self._rows, len(self.layout.classes))
            counts, names = arrow.from_wide(self._read(), self.layout, 0)
            found = LabelCounts(counts.n, None if names is None else names.to_pylist(), counts.classes)
            *_, last = found.clients or ("",)
            if is_total(last) and len(found.n) > 2 and np.array_equal(found.n[:-1].sum(axis=0), found.n[-1]):
                raise InputError(f": {last!r} is the sum of the rows above; remove it", row=len(found.n) - 1)
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
                array = _load_npy(self.path)
                if array.ndim != 2 or not array.size:
                    LabelCounts(array)  # says what is wrong
                rows = max(1, cells // array.shape[1])
                for start in range(0, array.shape[0], rows):
                    with shifted(start):
                        counts = LabelCounts(np.array(array[start : start + rows]))
                    yield Chunk(counts, None, start)
                return
            if self.in_parts:
                from fedeas.planning.tables import arrow

                layout = self.layout if named else replace(self.layout, client=None)
                yield from arrow.parquet_chunks(self._source, layout, self.size, cells)
                return
        counts = self.counts()
        yield Chunk(counts, counts.clients, 0)

    @property
    def _rows(self) -> int:
        return int(self._source.num_rows if self.suffix == ".csv" else self._source.metadata.num_rows)

    def _read(self) -> pa.Table:
        """The needed columns; refuse a Parquet table that is far larger than its file."""
        from fedeas.planning.tables import arrow

        names = list(self.layout.needed)
        if self.suffix == ".csv":
            count = self.layout.count
            arrow.check_points(self.path, self._source, self.layout.classes if count is None else [count])
            return self._source.select(names)
        arrow.check_cells(self._rows * max(1, len(names)), self.size)
        return self._source.read(columns=names)

    def _head(self, name: str) -> list[Any]:
        """The first values of a column; missing ones are left out."""
        if self.suffix == ".csv":
            parts = iter([self._source.select([name]).slice(0, HEAD_ROWS)])
        else:
            parts = self._source.iter_batches(HEAD_ROWS, columns=[name])
        return [value for part in islice(parts, 1) for value in part.column(0).to_pylist() if value is not None]


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
    """The errors of an unreadable file; those of pyarrow only if it is loaded."""
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
