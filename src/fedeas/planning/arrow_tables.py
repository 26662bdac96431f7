"""Counts from CSV and Parquet files, Arrow tables and pandas' frames; refuse tables far larger than their file.

All become Arrow tables, which are read alike. Text may have any of the usual encodings.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import compute, csv, parquet

from fedeas.core.arrays import BYTES_PER_BYTE, FREE_BYTES, bytes_of_parquet
from fedeas.core.errors import InputError
from fedeas.core.foreign_text import FORM, FORMULA_IN_CSV, from_csv
from fedeas.planning.columns import NUMBER, Column, Layout, layout_of, wrong_counts

if TYPE_CHECKING:
    from fedeas.planning.tables import PlannedParts

MAX_COLUMNS = 100_000
MAX_NAME_LENGTH = 1_000
FREE_CELLS = 10**7
"""A table of up to this size is read however small its file is."""
CELLS_PER_BYTE = 100
STREAMED_CELLS_PER_BYTE = 1_000
HEAD_ROWS = 1000  # of a column whose name does not say what it holds

_BLOCK = 2**20
THOUSANDS = r"^\s*[1-9]\d{0,2}\.\d{3}\s*$"  # 1.000 is a thousand in some languages and one in others
_LINES = 10
_SEPARATORS = ",;\t"
_PARQUET_START = b"PAR1"

EMPTY = "the table of counts is empty; give at least one client"

Counted = tuple[Any, Any, Any]
"""Counts of clients x classes, the clients' names, if there are any, and those of the classes."""


class ArrowTable:
    """A table in memory, and how counts are read from it."""

    def __init__(self, table: pa.Table) -> None:
        self.table, self.rows = table, table.num_rows
        self.first = table[:HEAD_ROWS]
        self.check_header(table.schema)

    def check_header(self, schema: pa.Schema) -> None:
        """Refuse too many columns, and two of one name."""
        self.schema = schema
        _check_columns(len(schema))
        twice = next((name for name, count in Counter(schema.names).items() if count > 1), None)
        if twice is not None:
            raise InputError(f"has two columns named {twice!r}; rename one (is the header row missing?)")

    def columns(self) -> list[Column]:
        """The columns, with their names and what they hold."""
        return [Column(each.name, is_text(each.type), is_number(each.type), partial(self.head, each.name))
                for each in self.schema]  # fmt: skip

    def head(self, name: str) -> list[Any]:
        """The first values of a column; missing ones are left out."""
        return list(self.first.column(name).drop_null().to_pylist())

    def read(self, names: Sequence[str], counts: Sequence[str] = ()) -> pa.Table:
        """Columns of names and of counts."""
        return self.table.select([*names, *counts])

    def wide(self, layout: Layout) -> tuple[Any, Any]:
        """Counts with a row for each client, and the column of the clients' names."""
        return from_wide(self.read(layout.names, layout.counts), layout)

    def tally(
        self, layout: Layout, num_classes: int | None = None, accept: Callable[[int, int], None] | None = None
    ) -> Counted:
        """Counts of a long table, with a row for each sample or for each client and class.

        `accept` may refuse the number of clients and classes before they take memory.
        """
        client, label, count = *layout.names, layout.count
        table = self.read(layout.names, layout.counts)
        if not len(table):
            raise InputError(EMPTY)
        clients, client_rows = _sorted_names(table.column(client), "client name")
        classes, class_columns = _sorted_names(table.column(label), "label")
        if num_classes is not None:
            if classes.dtype.kind not in "iu" or not 0 <= classes[0] <= classes[-1] < num_classes:
                wanted = f"whole numbers from 0 to {num_classes - 1}"
                raise InputError(f"labels are not all {wanted}; check the number of classes")
            class_columns = classes[class_columns]
        shape = len(clients), num_classes or len(classes)
        if accept is not None:
            accept(*shape)
        check_cells(shape[0] * shape[1], len(table))
        cells = client_rows * shape[1] + class_columns
        flat = np.bincount(cells, minlength=shape[0] * shape[1])
        layout.check_counts(bool(flat.max() > 1), len(table))
        if count is not None:
            numbers = _numbers(table.column(count), count)
            for wrong, message in wrong_counts(numbers):
                if wrong.any():
                    row = int(wrong.argmax())
                    raise InputError(f", column {count!r}: {message.format(numbers[row])}", row=row)
            flat = np.bincount(cells, numbers, flat.size).astype(np.int64)
        return flat.reshape(shape), clients, range(num_classes) if num_classes else classes


class CsvFile(ArrowTable):
    """A table of text, separated by commas, semicolons or tabs, in UTF-8, UTF-16 or Windows' Latin-1.

    Cells stay text until their column is read, so that names are kept as they are written: 007 is no number, NA a name.
    """

    def __init__(self, path: Path) -> None:
        encoding, separator, width = _text_format(path)
        wrong: list[csv.InvalidRow] = []

        def remember(row: csv.InvalidRow) -> str:
            wrong.append(row)
            return "error"

        def parsed(**options: Any) -> pa.Table:
            reading = csv.ReadOptions(encoding=encoding, autogenerate_column_names=True, **options)
            kinds = {f"f{place}": pa.string() for place in range(width)}  # as pyarrow calls them
            text = csv.ConvertOptions(column_types=kinds, strings_can_be_null=True, null_values=[""])
            return csv.read_csv(
                path, reading, csv.ParseOptions(delimiter=separator, invalid_row_handler=remember), text
            )

        try:
            table = parsed()
        except pa.ArrowInvalid:
            if not wrong:
                raise
            with suppress(pa.ArrowInvalid):
                parsed(use_threads=False)  # only one core knows the row's number
            row = wrong[-1]
            cells = "1 cell" if row.actual_columns == 1 else f"{row.actual_columns:,} cells"
            unclosed = " (is a quotation mark not closed?)" if row.actual_columns < row.expected_columns else ""
            raise InputError(
                f" has {cells}, the header {row.expected_columns:,}{unclosed}; give it as many, and put names that "
                f"contain {separator!r} in quotes",
                row=row.number - 2,  # the first line is row 1, and the first client row 0
            ) from None
        names = [from_csv(column[0].as_py() or "").strip() for column in table.columns]
        super().__init__(table.rename_columns(names)[1:])
        self.first = pa.table([_as_numbers(column) for column in self.first.columns], names=names)
        self.schema = self.first.schema

    def read(self, names: Sequence[str], counts: Sequence[str] = ()) -> pa.Table:
        """Columns of names and of counts; names become numbers only if all are written as usual.

        A count such as 1.000 is refused: its point may separate thousands.
        """
        table, are_names = super().read(names, counts), {*names}
        known = self.first.select(table.column_names) if self.rows <= HEAD_ROWS else None
        columns = []
        for place, (name, texts) in enumerate(zip(table.column_names, table.columns, strict=True)):
            numbers = _as_numbers(texts) if known is None else known.column(place)
            stays_text, has_points = is_text(numbers.type), pa.types.is_floating(numbers.type)
            if name in are_names and not stays_text:
                usual = numbers.cast(pa.string())
                if has_points:
                    usual = compute.replace_substring_regex(usual, r"^(-?\d+)$", r"\1.0")  # as Python writes them
                stays_text = not compute.all(compute.equal(usual, compute.utf8_trim_whitespace(texts))).as_py()
            if stays_text:
                numbers = compute.replace_substring_regex(texts, *FORMULA_IN_CSV)  # as it was before `for_csv`
            elif name not in are_names and has_points:
                row = compute.index(compute.match_substring_regex(texts, THOUSANDS), value=True).as_py()
                if row >= 0:
                    text = str(texts[row]).strip()
                    ways = f"can be read as {float(text):g} or as {text.replace('.', '')}"
                    raise InputError(f", column {name!r}: {text} {ways}; write it without the point", row=row)
            columns.append(numbers)
        return pa.table(columns, names=table.column_names)


class ParquetFile(ArrowTable):
    """A Parquet file of numbers and names, which is read when it is needed; names are dictionary-encoded.

    Long names that repeat take little room in the file, but could take gigabytes of memory written out.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            if file.read(len(_PARQUET_START)) != _PARQUET_START:
                raise InputError("is not a Parquet file; if it is CSV, let its name end in .csv")
        self.check_header(parquet.read_schema(path))
        self.bytes = path.stat().st_size
        texts = [field.name for field in self.schema if is_text(field.type)]
        self.file = parquet.ParquetFile(path, read_dictionary=texts)
        self.rows = self.file.metadata.num_rows
        numbers = [field.name for field in self.schema if is_number(field.type)]  # `check_cells` counts them
        unpacked = bytes_of_parquet(self.file.metadata, *numbers)
        if unpacked > max(FREE_BYTES, BYTES_PER_BYTE * self.bytes):
            raise InputError(f"its {self.bytes:,} bytes would become {unpacked:,}; check the file")

    def head(self, name: str) -> list[Any]:
        """The first values of a column, long ones cut; missing ones are left out."""
        kind = self.schema.field(name).type
        if not (is_text(kind) or is_number(kind)):
            return []
        first = next(self.file.iter_batches(HEAD_ROWS, columns=[name]), None)
        if first is None:
            return []
        values = first.column(0)
        if pa.types.is_dictionary(values.type):  # one long name may be there often
            values = compute.utf8_slice_codeunits(values.dictionary, 0, MAX_NAME_LENGTH).take(values.indices)
        return list(values.drop_null().to_pylist())

    def read(self, names: Sequence[str], counts: Sequence[str] = ()) -> pa.Table:
        """Columns of names and of counts; refuse a table that is far larger than its file."""
        columns = [*names, *counts]
        check_cells(self.rows * max(1, len(columns)), self.bytes)
        return self.file.read(columns=columns)

    def parts(self, layout: Layout, cells: int) -> Iterator[tuple[int, Any, Any]]:
        """A wide table in parts of so many counts: first row, counts and names of clients.

        A client that appears twice in different parts is refused at the end; 8 bytes for each client find it.
        """
        columns, start, hashes = [*layout.names, *layout.counts], 0, []
        width = max(1, len(columns))
        check_cells(self.rows * width, self.bytes, STREAMED_CELLS_PER_BYTE)
        if not self.rows:
            raise InputError(EMPTY)
        for batch in self.file.iter_batches(max(1, cells // width), columns=columns):
            counts, clients = from_wide(pa.Table.from_batches([batch]), layout, start)
            if clients is not None and pa.types.is_integer(clients.type):
                hashes.append(clients.to_numpy().astype(np.int64))
            elif clients is not None:
                hashes.append(np.fromiter(map(hash, clients.to_pylist()), dtype=np.int64, count=len(clients)))
            yield start, counts, clients
            start += len(batch)
        if hashes:
            ordered = np.sort(np.concatenate(hashes))
            if (ordered[1:] == ordered[:-1]).any():  # different names may have equal hashes
                client_names(self.file.read(columns=[layout.client]).column(0))


def counts_of_frame(frame: Any) -> Counted:
    """Counts of an Arrow table or a pandas frame, whose columns are recognised as those of a file.

    pandas' index names the clients, unless it only numbers the rows or a column names them.
    """
    if hasattr(frame, "iloc"):
        columns = [(str(name), _array(frame.iloc[:, place])) for place, name in enumerate(frame.columns)]
        are_named = any(Column(name).names_clients() for name, _ in columns)
        if not are_named and not np.array_equal(np.asarray(frame.index), np.arange(len(frame))):
            columns.insert(0, ("client", _array(frame.index)))
        frame = pa.table([each for _, each in columns], names=[name for name, _ in columns])
    table = ArrowTable(frame if isinstance(frame, pa.Table) else pa.Table.from_batches([frame]))
    names = table.schema.names
    is_numbered = names == [*map(str, range(len(names)))]  # such names tell nothing
    layout = Layout(None, classes=tuple(names)) if is_numbered else layout_of(table.columns())
    if layout.is_long:
        return table.tally(layout)
    n, clients = table.wide(layout)
    clients = None if clients is None else clients.to_pylist()
    return n, None if clients == [*range(table.rows)] else clients, layout.classes


def _array(values: Any) -> pa.Array:
    """The values of a pandas object; numbers and text together become text."""
    with suppress(pa.ArrowException, OverflowError):
        found = pa.array(values, from_pandas=True)
        if not pa.types.is_nested(found.type):
            return found
    return pa.array(np.asarray(values).astype(str))


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds text."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_number(kind: pa.DataType) -> bool:
    """Whether a column of this type can hold counts; an empty column has the type null."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind))


def _check_columns(columns: int) -> None:
    if columns > MAX_COLUMNS:
        raise InputError(f"has {columns:,} columns; give at most {MAX_COLUMNS:,}")


def check_cells(cells: int, entries: int, per_entry: int = CELLS_PER_BYTE) -> None:
    """Refuse a table far larger than the bytes, or the samples, that describe it."""
    if cells > max(FREE_CELLS, per_entry * entries):
        raise InputError(f"describes a table of {cells:,} counts, far more than it can hold; check the file")


def from_wide(table: pa.Table, layout: Layout, first_row: int = 0) -> tuple[Any, Any]:
    """Counts of a wide table, and its client column; refuse missing and repeated names."""
    names = None if layout.client is None else client_names(table.column(layout.client), first_row)
    columns = [_numbers(table.column(name), name, first_row, names) for name in layout.classes]
    if not columns:
        raise InputError("has no class columns; give one column of counts for each class")
    return np.stack(columns, axis=1), names


def coded_names(column: pa.ChunkedArray, what: str, first_row: int = 0) -> tuple[pa.Array, Any]:
    """The distinct names or labels of a column, and for each row the place of its own among them.

    Names come in one form, without blanks around them; missing ones are refused, including NaN.
    """
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        raise InputError(f"a {what} of type {column.type}; give text or whole numbers")
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    whole = encoded.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # as some versions of pyarrow give it
        whole = whole.chunk(0) if whole.num_chunks else pa.array([], encoded.type)
    names, which = whole.dictionary, whole.indices
    if is_text(names.type):
        names = compute.utf8_normalize(compute.utf8_trim_whitespace(names), form=FORM)
        longest = compute.max(compute.utf8_length(names)).as_py() or 0
        if longest > MAX_NAME_LENGTH:
            raise InputError(f"a {what} of {longest:,} characters; give at most {MAX_NAME_LENGTH:,}")
        again = compute.if_else(compute.equal(names, ""), pa.scalar(None, names.type), names).dictionary_encode()
        names, which = again.dictionary, again.indices.take(which)  # two names may have become one
    missing = names.is_null(nan_is_null=True).take(which).fill_null(True)
    if (row := compute.index(missing, value=True).as_py()) >= 0:
        raise InputError(f": missing {what}; give one", row=row + first_row)
    return names, which.to_numpy(zero_copy_only=False).astype(np.int64)


def client_names(column: pa.ChunkedArray, first_row: int = 0) -> pa.Array:
    """The names of the clients; refuse one that appears twice."""
    names, which = coded_names(column, "client name", first_row)
    if np.bincount(which).max(initial=0) > 1:
        _, starts = np.unique(which, return_index=True)
        second = int(np.delete(np.arange(len(which)), starts)[0])
        first = int(which.tolist().index(which[second]))
        rows = f"rows {first + first_row + 1:,} and {second + first_row + 1:,}"
        raise InputError(f"duplicate client {str(names[which[second]])!r} ({rows}); merge or rename one")
    return names.take(which)


def _sorted_names(column: pa.ChunkedArray, what: str) -> tuple[Any, Any]:
    """The distinct names, sorted, and the index of its name for each row."""
    names, which = coded_names(column, what)
    ordered, places = np.unique(names.to_numpy(zero_copy_only=False), return_inverse=True)
    return ordered, places[which]


def _numbers(column: pa.ChunkedArray, name: str, first_row: int = 0, clients: Any = None) -> Any:
    """A column of counts as an array; missing values become NaN. Refuse text, naming its row."""
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if pa.types.is_string(column.type):
        row = int(np.argmin(compute.match_substring_regex(column, NUMBER).fill_null(True).to_numpy()))
        client = "" if clients is None else f" (client {str(clients[row])!r})"
        wrong = f"{client}, class {name!r}: {str(column[row])[:50]!r} is not a count; give a whole number"
        raise InputError(wrong, row=row + first_row)
    if not is_number(column.type):
        raise InputError(f"column {name!r} holds {column.type}, not counts; give whole numbers")
    return column.to_numpy()


def _as_numbers(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column as numbers, if all of its texts are decimal numbers."""
    try:  # as int64, Arrow would also read 0x10
        numbers = (trimmed := compute.utf8_trim_whitespace(texts)).cast(pa.float64())
    except pa.ArrowInvalid:
        return texts
    with suppress(pa.ArrowInvalid):
        numbers = trimmed.cast(pa.int64())
    return numbers


def _text_format(path: Path) -> tuple[str, str, int]:
    """Encoding, separator and number of columns of a CSV file; refuse one that is empty."""
    with path.open("rb") as file:
        start = file.read(_BLOCK)
    is_wide = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    for encoding in ["utf-16"] if is_wide else ["utf-8", "cp1252"]:
        with suppress(UnicodeDecodeError), path.open(encoding=encoding, newline="") as text_file:
            if not any("\0" in block for block in iter(partial(text_file.read, _BLOCK), "")):
                break
    else:
        raise InputError("is not a text file; save the table as CSV in UTF-8")
    if encoding == "cp1252":
        _check_one_encoding(path)
    text = start.decode(encoding, "replace").removeprefix("\ufeff")
    if not text.strip():
        raise InputError("is empty; give a header and a row for each client")
    lines = [line for line in re.split(r"[\r\n]+", re.sub(r'"[^"]*"', "", text)) if line][:_LINES]

    def fields(separator: str) -> tuple[int, int]:
        counts = [line.count(separator) for line in lines] or [0]
        return counts[0] if len({*counts}) == 1 else 0, counts[0]

    # The separator that gives all lines the same number of fields, and the most; a comma if none does.
    separator = max(_SEPARATORS, key=fields)
    width = 1 + sum(line.count(separator) for line in lines[:1])
    _check_columns(width)
    return encoding, separator, width


def _check_one_encoding(path: Path) -> None:
    """Refuse a file of which a part is UTF-8 and a part is not: read as Latin-1, the first would be garbled."""
    wrong, is_utf8 = 0, False
    with path.open(encoding="utf-8", errors="surrogateescape") as file:
        for number, line in enumerate(file, 1):
            decoded = line if line.isascii() else re.sub(r"[\udc80-\udcff]", "", line)
            is_utf8 |= not decoded.isascii()
            wrong = wrong or number * (decoded != line)
    if is_utf8:
        raise InputError(f"line {wrong:,} has text that is not UTF-8, unlike the rest; save the table as CSV in UTF-8")


def write_parquet(path: Path, policy: str, parts: PlannedParts) -> None:
    """Rows as Parquet: a client column as the input had it and one column for each class."""
    with ExitStack() as opened:
        writer: Any = None
        for chunk, allocation in parts:
            clients = chunk.names if isinstance(chunk.names, pa.Array) else pa.array(chunk.client_names)
            columns = [pa.array(column) for column in np.ascontiguousarray(allocation.n.T)]
            table = pa.table([clients, *columns], names=["client", *chunk.counts.class_names])
            if writer is None:
                schema = table.schema.with_metadata({"fedeas.policy": policy})
                writer = opened.enter_context(parquet.ParquetWriter(path, schema))
            writer.write_table(table)
