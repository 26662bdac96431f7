"""Read counts from CSV, Parquet and NPY files, large ones in parts; write allocations, and read them back.

How a table is read follows from its columns (`fedeas.planning.columns`). pyarrow is imported only when a file needs it.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedeas.core.errors import InputError
from fedeas.core.files import PathLike, written_whole
from fedeas.core.foreign_text import for_csv, printable
from fedeas.core.records import DAMAGED_ARRAYS, checked_file, is_there
from fedeas.planning.columns import TOTAL, Column, ColumnNames, Layout, layout_of
from fedeas.planning.counts import Allocation, LabelCounts

CHUNK_CELLS = 2**21
FORMATS = (".csv", ".parquet", ".npy")
TABLE_FORMATS = (".csv", ".parquet")
REMEDY = "write it with `fedeas plan --out` or with `Plan.save`"


class Chunk(NamedTuple):
    """Some rows of a table: their counts, the client column as the file gives it, and where they start."""

    counts: LabelCounts
    names: Any
    first_row: int

    @property
    def client_names(self) -> Sequence[object]:
        """The clients' names, or the numbers of their rows."""
        if self.names is None:
            return range(self.first_row, self.first_row + self.counts.num_clients)
        return self.names if isinstance(self.names, tuple) else self.names.to_pylist()


PlannedParts = Iterable[tuple[Chunk, Allocation]]
"""Parts of a table with their allocations, in order."""


def format_of(path: PathLike, *allowed: str) -> str:
    """The file's ending; refuse one that is not allowed."""
    suffix = Path(path).suffix.lower()
    if suffix not in allowed:
        ending = repr(suffix) if suffix else "a name without an ending"
        raise InputError(f"{path}: cannot tell the format from {ending}; use {', '.join(allowed)}")
    return suffix


def read_counts(path: PathLike, num_classes: int | None = None, columns: ColumnNames | None = None) -> LabelCounts:
    """Read a whole table as `LabelCounts`, with the names that the file gives.

    `num_classes` is for long tables whose labels are numbers: classes are then 0 to `num_classes` - 1, including
    those without samples. Otherwise classes are the labels that occur. `columns` names those that are not to be
    recognised by their names.
    """
    return CountTable(path, columns).counts(num_classes)


def read_columns(path: PathLike) -> dict[str, list[Any]]:
    """The columns of a CSV or Parquet table by name; refuse missing values."""
    format_of(path, *TABLE_FORMATS)
    checked_file(path)
    with _naming(path):
        file = _opened(path)
        clients = [name for name in file.schema.names if Column(name).names_clients()]
        return _values(file.read(clients, [name for name in file.schema.names if name not in clients]))


class CountTable:
    """A file of counts. Its columns are recognised when it is opened; `how` says how it is read."""

    def __init__(self, path: PathLike, columns: ColumnNames | None = None) -> None:
        self.path, asked = path, columns or ColumnNames()
        if is_there(path) and Path(path).is_dir():
            raise InputError(f"{path}: a folder, not a table of counts; if it holds images, give folder:{path}")
        suffix = format_of(path, *FORMATS)
        checked_file(path)
        with _naming(path):
            self._file = _opened(path)
            if suffix != ".npy":
                self.layout = layout_of(self._file.columns(), asked)
                self.how = self.layout.describe() + (self.layout.remark_on_header(asked) if suffix == ".csv" else "")
            elif [*asked]:
                raise InputError("an array has no columns; leave their names out (--client-column and the like)")
            else:
                self.layout, self.how = Layout(None), "a table of clients x classes, without names"
        self.in_parts = suffix != ".csv" and not self.layout.is_long
        """Whether the file can be read part by part, as often as needed."""

    def counts(self, num_classes: int | None = None, check: Callable[[int, int], None] | None = None) -> LabelCounts:
        """The whole table; `check` may refuse the numbers of clients and classes before they take memory."""
        if num_classes is not None and num_classes < 2:
            raise InputError(f"the number of classes must be at least 2, not {num_classes}")
        with _naming(self.path):
            if num_classes is not None and not self.layout.is_long:
                raise InputError("has a column for each class; leave the number of classes out (--classes)")
            if self.layout.is_long:
                return LabelCounts(*self._file.tally(self.layout, num_classes, check))
            if check is not None:
                check(self._file.rows, len(self.layout.classes))
            n, names = self._file.wide(self.layout)
            found = LabelCounts(n, None if names is None else names.to_pylist(), self.layout.classes or None)
            above, name = found.n[:-1], found.client_name(len(found) - 1)
            if len(above) > 1 and Column(name).named_like(TOTAL) and np.array_equal(above.sum(axis=0), found.n[-1]):
                raise InputError(f": {name!r} is the sum of the rows above; remove it", row=len(above))
            return found

    @property
    def cells(self) -> int:
        """Counts in a wide table."""
        return int(self._file.rows * max(1, len(self.layout.classes)))

    def chunks(self, cells: int = CHUNK_CELLS, named: bool = True) -> Iterator[Chunk]:
        """The table in parts of about `cells` counts, so that it need not fit into memory (Parquet and NPY).

        Each part is checked when it is read. A client that appears twice is found, and refused, only at the end. If not
        `named`, names are neither read nor checked.
        """
        if not self.in_parts:
            counts = self.counts()
            yield Chunk(counts, counts.clients, 0)
            return
        with _naming(self.path):
            layout = self.layout if named else replace(self.layout, client=None)
            for start, n, names in self._file.parts(layout, cells):
                try:
                    counts = LabelCounts(n, classes=layout.classes or None)
                except InputError as error:
                    if error.row is None:
                        raise
                    client = "" if names is None else f" (client {str(names[error.row])!r})"
                    raise InputError(f"{client}{error.message}", row=error.row + start) from None
                yield Chunk(counts, names, start)


def write_counts(path: PathLike, counts: LabelCounts) -> None:
    """Write a wide table that `read_counts` reads back, as CSV or Parquet."""
    write_allocation(path, counts, Allocation(counts.n, "label counts"))


def write_allocation(path: PathLike, counts: LabelCounts, allocation: Allocation) -> None:
    """Write an allocation as CSV or Parquet."""
    write_parts(path, allocation.policy, [(Chunk(counts, counts.clients, 0), allocation)])


def write_parts(path: PathLike, policy: str, parts: PlannedParts) -> None:
    """Write an allocation part by part, by the file's ending; the file appears when all parts are written."""
    suffix = format_of(path, *TABLE_FORMATS)
    with written_whole(path) as part:
        if suffix == ".parquet":
            from fedeas.planning.arrow_tables import write_parquet

            write_parquet(part, policy, parts)
            return
        with part.open("w", encoding="utf-8", newline="") as file:  # CSV cannot hold the policy's name
            rows = csv.writer(file, lineterminator="\n")
            for chunk, allocation in parts:
                if not chunk.first_row:
                    rows.writerow(["client", *map(for_csv, chunk.counts.class_names)])
                names = (for_csv(name) if isinstance(name, str) else name for name in chunk.client_names)
                rows.writerows([name, *row] for name, row in zip(names, allocation.n.tolist(), strict=True))


def read_allocation(path: PathLike) -> Allocation:
    """Read a plan from CSV or Parquet, with its names; Parquet also names the policy."""
    format_of(path, *TABLE_FORMATS)
    checked_file(path)
    with _naming(path):
        file = _opened(path)
        classes = [name for name in file.schema.names if name != "client"]
        if not 0 < len(classes) < len(file.schema.names):
            raise InputError(f"no plan, which has a column client and one for each class; {REMEDY}")
        clients, *columns = _values(file.read(["client"], classes)).values()
    rows = [list(row) for row in zip(*columns, strict=True)]
    policy = ((file.schema.metadata or {}).get(b"fedeas.policy") or b"").decode()
    try:
        return Allocation(rows, policy, clients, classes)
    except InputError as error:
        raise InputError(f"{path}: {error}; {REMEDY}") from None


def _opened(path: PathLike) -> Any:
    if (suffix := Path(path).suffix.lower()) == ".npy":
        return ArrayFile(path)
    from fedeas.planning import arrow_tables

    return (arrow_tables.CsvFile if suffix == ".csv" else arrow_tables.ParquetFile)(Path(path))


def _values(table: Any) -> dict[str, list[Any]]:
    from fedeas.planning.arrow_tables import coded_names

    coded = {name: coded_names(table[name], f"value in {name!r}") for name in table.column_names}
    return {name: values.take(which).to_pylist() for name, (values, which) in coded.items()}


@contextmanager
def _naming(path: PathLike) -> Iterator[None]:
    """Put the file's name before every error in it."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except Exception as error:
        unreadable = isinstance(error, OSError | ValueError | EOFError) or type(error).__module__ == "pyarrow.lib"
        if not unreadable or isinstance(error, MemoryError):
            raise
        raise InputError(f"{path}: cannot be read ({' '.join(str(error).split())})") from None


class ArrayFile:
    """An array of counts without names, of which only what is used is read from the disk."""

    def __init__(self, path: PathLike) -> None:
        try:
            self.array = np.load(path, mmap_mode="r", allow_pickle=False)
        except DAMAGED_ARRAYS as error:
            raise InputError(f"cannot be read ({printable(error)[:200]})") from None
        if not isinstance(self.array, np.ndarray):
            raise InputError("holds no single array; save the table with numpy.save")
        self.rows = self.array.size  # its classes are not known by names

    def wide(self, layout: Layout) -> tuple[Any, None]:
        """All counts; nothing names the clients."""
        return self.array, None

    def parts(self, layout: Layout, cells: int) -> Iterator[tuple[int, Any, None]]:
        """The counts in parts of so many, with the first row of each."""
        if self.array.ndim != 2 or not self.array.size:
            LabelCounts(self.array)  # says what is wrong
        rows = max(1, cells // self.array.shape[1])
        for start in range(0, len(self.array), rows):
            yield start, np.array(self.array[start : start + rows]), None
