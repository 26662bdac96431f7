"""Read CSV and Parquet files as Arrow tables, and counts from these; refuse tables far larger than their file.

Text may have any of the usual encodings.
"""

from __future__ import annotations

import codecs
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import compute, csv, parquet

from fedeas.core.errors import InputError
from fedeas.core.foreign_text import FORM, FORMULA_IN_CSV, from_csv
from fedeas.planning.columns import Layout
from fedeas.planning.counts import LabelCounts
from fedeas.planning.tables.formats import Chunk, SizeCheck, shifted
from fedeas.planning.validation import MAX_CLIENT_SIZE, TOO_LARGE

MAX_COLUMNS = 100_000
MAX_NAME_LENGTH = 1_000
FREE_CELLS = 10**7
"""A table of up to this size is read however small its file is."""
CELLS_PER_BYTE = 100
STREAMED_CELLS_PER_BYTE = 1_000

THOUSANDS = r"^\s*[1-9]\d{0,2}\.\d{3}\s*$"
"""A number such as 1.000, which is a thousand in some languages and one in others."""

_BLOCK = 2**20
_LINES = 10
_SEPARATORS = ",;\t"
_SEPARATOR_LINE = re.compile(r"sep=(.)[\r\n]+", re.IGNORECASE)
"""A first line that names the separator, for Excel."""
_PARQUET_START = b"PAR1"
_WIDE_ENCODINGS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


class _TextFormat(NamedTuple):
    """How the text of a CSV file is read."""

    encoding: str
    separator: str
    lines_before_header: int


def read_csv(path: str | os.PathLike[str]) -> pa.Table:
    """Read a table of text, separated by commas, semicolons or tabs, in UTF-8, UTF-16 or Windows' Latin-1."""
    table = _parsed(path, _text_format(Path(path)))
    columns = [_without_escapes(column) for column in table.columns]
    return pa.table(columns, names=[from_csv(name).strip() for name in table.column_names])


def _parsed(path: str | os.PathLike[str], text: _TextFormat) -> pa.Table:
    """The cells of a table; a row with too many or too few is refused by its number."""
    wrong: list[csv.InvalidRow] = []

    def remember(row: csv.InvalidRow) -> str:
        wrong.append(row)
        return "error"

    def read(all_cores: bool) -> pa.Table:
        reading = csv.ReadOptions(encoding=text.encoding, skip_rows=text.lines_before_header, use_threads=all_cores)
        parsing = csv.ParseOptions(delimiter=text.separator, invalid_row_handler=remember)
        return csv.read_csv(path, reading, parsing, csv.ConvertOptions(strings_can_be_null=True))

    try:
        return read(all_cores=True)
    except pa.ArrowInvalid:
        if not wrong:
            raise
    with suppress(pa.ArrowInvalid):
        read(all_cores=False)  # only one core knows the number of a row
    row = wrong[-1]
    cells = "1 cell" if row.actual_columns == 1 else f"{row.actual_columns:,} cells"
    unclosed = " (is a quotation mark not closed?)" if row.actual_columns < row.expected_columns else ""
    raise InputError(
        f" has {cells}, the header {row.expected_columns:,}{unclosed}; give it as many, and put names that "
        f"contain {text.separator!r} in quotes",
        row=row.number - 2 - text.lines_before_header,  # the first line is row 1, and the first client row 0
    )


def check_points(path: str | os.PathLike[str], table: pa.Table, counts: Iterable[str]) -> None:
    """Refuse counts of a CSV file such as 1.000, whose point may separate thousands.

    pyarrow gives numbers, not their text. So columns of counts in which some number has a point are read again; tables
    of counts rarely have one.
    """
    places = [table.column_names.index(name) for name in counts]
    places = [place for place in places if pa.types.is_floating(table.column(place).type)]
    if not places:
        return
    for place, column in zip(places, _texts(path, places), strict=True):
        row = compute.index(compute.match_substring_regex(column, THOUSANDS), value=True).as_py()
        if row >= 0:
            text = str(column[row]).strip()
            raise InputError(
                f", column {table.column_names[place]!r}: {text} can be read as {float(text):g} or as "
                f"{text.replace('.', '')}; write it without the point",
                row=row,
            )


def names_as_written(path: str | os.PathLike[str], table: pa.Table, names: Sequence[str | None]) -> pa.Table:
    """The table of a CSV file with these columns as they are in the file.

    pyarrow takes 007 for the number 7, and NA for a missing value. So columns of names that it takes for something else
    than text, or in which it misses values, are read again. Numbers stay numbers, and are sorted as such, if every one
    is written as usual.
    """
    places = [place for place, name in enumerate(table.column_names) if name in names]
    places = [place for place in places if table.column(place).null_count or not is_text(table.column(place).type)]
    for place, texts in zip(places, _texts(path, places) if places else (), strict=True):
        if not _written_as_usual(texts, table.column(place)):
            table = table.set_column(place, table.column_names[place], _without_escapes(texts))
    return table


def _written_as_usual(texts: pa.ChunkedArray, numbers: pa.ChunkedArray) -> bool:
    if numbers.null_count != texts.null_count or not is_number(numbers.type) or pa.types.is_null(numbers.type):
        return False
    usual = numbers.cast(pa.string())
    if pa.types.is_floating(numbers.type):
        usual = compute.replace_substring_regex(usual, r"^(-?\d+)$", r"\1.0")  # as Python writes them
    return bool(compute.all(compute.equal(usual, compute.utf8_trim_whitespace(texts))).as_py())


def _texts(path: str | os.PathLike[str], places: Sequence[int]) -> list[pa.ChunkedArray]:
    """The cells of some columns of a CSV file as text; only an empty cell is missing."""
    text = _text_format(Path(path))
    names = [f"f{place}" for place in places]  # pyarrow's, since the file's own may have been changed
    texts = csv.read_csv(
        path,
        csv.ReadOptions(
            encoding=text.encoding, skip_rows=text.lines_before_header,
            autogenerate_column_names=True, skip_rows_after_names=1,
        ),
        csv.ParseOptions(delimiter=text.separator),
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), include_columns=names,
            strings_can_be_null=True, null_values=[""],
        ),
    )  # fmt: skip
    return list(texts.columns)


def open_parquet(path: str | os.PathLike[str]) -> Any:
    """Open a Parquet file of numbers and names; names are dictionary-encoded.

    Long names that repeat take little room in the file, but could take gigabytes of memory written out.
    """
    with Path(path).open("rb") as file:
        if file.read(len(_PARQUET_START)) != _PARQUET_START:
            raise InputError("is not a Parquet file; if it is CSV, let its name end in .csv")
    schema = parquet.read_schema(path)
    check_columns(len(schema.names))
    check_header(schema.names)
    texts = [field.name for field in schema if is_text(field.type)]
    return parquet.ParquetFile(path, read_dictionary=texts)


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds text."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_number(kind: pa.DataType) -> bool:
    """Whether a column of this type can hold counts; an empty column has the type null."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind))


def check_header(columns: Sequence[str]) -> None:
    """Refuse a repeated column."""
    twice = next((name for name, count in Counter(columns).items() if count > 1), None)
    if twice is not None:
        raise InputError(f"has two columns named {twice!r}; rename one (is the header row missing?)")


def check_number(kind: pa.DataType, name: str) -> None:
    """Refuse a column of counts that does not hold numbers."""
    if not is_number(kind):
        raise InputError(f"column {name!r} holds {kind}, not counts; give whole numbers")


def check_columns(columns: int) -> None:
    """Refuse more columns than a table of counts can have."""
    if columns > MAX_COLUMNS:
        raise InputError(f"has {columns:,} columns; give at most {MAX_COLUMNS:,}")


def check_cells(cells: int, entries: int, per_entry: int = CELLS_PER_BYTE) -> None:
    """Refuse a table far larger than the bytes, or the samples, that describe it."""
    if cells > max(FREE_CELLS, per_entry * entries):
        raise InputError(f"describes a table of {cells:,} counts, far more than it can hold; check the file")


def coded(column: pa.ChunkedArray, what: str) -> tuple[Any, Any]:
    """The distinct names of a column, and the index of its name for each row."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    whole = encoded.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # as some versions of pyarrow give it
        whole = whole.chunk(0) if whole.num_chunks else pa.array([], encoded.type)
    names = whole.dictionary
    if pa.types.is_string(names.type) or pa.types.is_large_string(names.type):
        longest = compute.max(compute.utf8_length(names)).as_py() or 0
        if longest > MAX_NAME_LENGTH:
            raise InputError(f"a {what} of {longest:,} characters; give at most {MAX_NAME_LENGTH:,}")
    return names, whole.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def _stripped(part: pa.Array) -> pa.Array:
    """Names in one form, without blanks around them."""
    if not isinstance(part, pa.DictionaryArray):
        names = compute.utf8_normalize(compute.utf8_trim_whitespace(part), form=FORM)
        return compute.if_else(compute.equal(names, ""), pa.scalar(None, names.type), names)
    names = _stripped(part.dictionary)
    if names.equals(part.dictionary):
        return part
    again = names.dictionary_encode()  # two names may have become one
    return pa.DictionaryArray.from_arrays(again.indices.take(part.indices), again.dictionary)


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of names without dictionary encoding; for columns in which no name repeats."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _text_format(path: Path) -> _TextFormat:
    """How to read a CSV file; refuse one that is empty or has too many columns."""
    with path.open("rb") as file:
        start = file.read(_BLOCK)
    wide = next((name for mark, name in _WIDE_ENCODINGS.items() if start.startswith(mark)), None)
    encoding = next((each for each in ([wide] if wide else ["utf-8", "cp1252"]) if _is_in(path, each)), None)
    if encoding is None:
        raise InputError("is not a text file; save the table as CSV in UTF-8")
    text = start.decode("utf-8-sig" if encoding == "utf-8" else encoding, "replace")
    named = _SEPARATOR_LINE.match(text)
    text = text[named.end() :] if named else text
    if not text.strip():
        raise InputError("is empty; give a header and a row for each client")
    lines = [line for line in re.split(r"[\r\n]+", re.sub(r'"[^"]*"', "", text)) if line][:_LINES]
    separator = named[1] if named else _separator(lines)
    check_columns(max((line.count(separator) for line in lines[:1]), default=0) + 1)
    return _TextFormat(encoding, separator, 1 if named else 0)


def _separator(lines: Sequence[str]) -> str:
    """The separator that gives all lines the same number of fields, and the most; a comma if none does."""

    def fields(separator: str) -> tuple[int, int]:
        counts = [line.count(separator) for line in lines] or [0]
        return counts[0] if len(set(counts)) == 1 else 0, counts[0]

    return max(_SEPARATORS, key=fields)


def _is_in(path: Path, encoding: str) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                if "\0" in decoder.decode(block):
                    return False
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _without_escapes(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text as it was before `for_csv`."""
    return compute.replace_substring_regex(column, *FORMULA_IN_CSV) if pa.types.is_string(column.type) else column


def parquet_chunks(file: Any, layout: Layout, size: int, cells: int) -> Iterator[Chunk]:
    """A wide Parquet table in parts; a client that appears twice is refused at the end."""
    names, start = list(layout.needed), 0
    check_cells(file.metadata.num_rows * max(1, len(names)), size, STREAMED_CELLS_PER_BYTE)
    unique = _UniqueNames()
    for batch in file.iter_batches(max(1, cells // max(1, len(names))), columns=names):
        counts, clients = from_wide(pa.Table.from_batches([batch]), layout, start)
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


def from_wide(table: pa.Table, layout: Layout, first_row: int) -> tuple[LabelCounts, Any]:
    """Counts of a wide table, and its client column; refuse repeated names."""
    names = _client_column(table, layout, first_row)
    if names is not None and len(names):
        distinct, which = coded(names, "client name")
        if len(distinct) < len(which):
            order = np.argsort(which, kind="stable")
            place = int(np.argmax(which[order][1:] == which[order][:-1]))
            first, second = sorted(order[place : place + 2].tolist())
            raise _duplicate(distinct[int(which[first])], first + first_row, second + first_row)
        names = plain(names)
    with shifted(first_row, names):
        columns = [_numbers(table.column(name), name) for name in layout.classes]
        if not columns:
            raise InputError("has no class columns; give one column of counts for each class")
        return LabelCounts(np.stack(columns, axis=1), classes=layout.classes), names


def _client_column(table: pa.Table, layout: Layout, first_row: int) -> Any:
    return None if layout.client is None else checked_names(table.column(layout.client), "client name", first_row)


def checked_names(column: pa.ChunkedArray, what: str, first_row: int = 0) -> pa.ChunkedArray:
    """A column of names or labels; refuse missing ones, including NaN."""
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        raise InputError(f"a {what} of type {column.type}; give text or whole numbers")
    if is_text(column.type):  # a name of blanks alone is missing
        column = pa.chunked_array([_stripped(part) for part in column.chunks], column.type)
    missing = column.is_null(nan_is_null=True).to_numpy()
    if missing.any():
        raise InputError(f": missing {what}; give one", row=int(missing.argmax()) + first_row)
    return column


def _numbers(column: pa.ChunkedArray, name: str) -> Any:
    """A column of counts as an array; missing values become NaN. Refuse text, naming its row."""
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if pa.types.is_string(column.type):
        numeric = compute.match_substring_regex(column, r"^\s*[-+]?(\d+\.?\d*|\.\d+)\s*$").fill_null(True)
        row = int(np.argmin(numeric.to_numpy()))
        shown = str(column[row])[:50]
        raise InputError(f", class {name!r}: {shown!r} is not a count; give a whole number", row=row)
    check_number(column.type, name)
    return column.to_numpy()


def tally(table: pa.Table, layout: Layout, num_classes: int | None, accept: SizeCheck) -> LabelCounts:
    """Counts of a long table, with a row for each sample or for each client and class."""
    names, labels = _client_column(table, layout, 0), checked_names(table.column(layout.label), "label")
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
        counts = _numbers(table.column(layout.count), layout.count)
        for bad, words in (
            (np.isnan(counts), "missing count; write 0 for none"),
            (counts < 0, "negative count {}; give 0 or more"),
            (counts != np.floor(counts), "fractional count {}; give whole numbers"),
            (counts > MAX_CLIENT_SIZE, TOO_LARGE),
        ):
            if bad.any():
                row = int(bad.argmax())
                raise InputError(f", column {layout.count!r}: {words.format(counts[row])}", row=row)
        flat = np.bincount(cells, counts, size).astype(np.int64)
    return LabelCounts(flat.reshape(len(clients), width), clients.tolist(), classes.tolist())


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
        if not repeated.size:
            return
        # The names themselves are compared: different names may have equal hashes.
        suspects, seen, row = set(repeated.tolist()), dict[object, int](), 0
        for column in reread():
            for key, name in zip(_hashes(column).tolist(), column.to_pylist(), strict=True):
                if key in suspects:
                    if name in seen:
                        raise _duplicate(name, seen[name], row)
                    seen[name] = row
                row += 1


def _duplicate(name: object, first: int, second: int) -> InputError:
    return InputError(f"duplicate client {str(name)!r} (rows {first + 1:,} and {second + 1:,}); merge or rename one")


def _hashes(column: Any) -> Any:
    if pa.types.is_integer(column.type):
        return column.to_numpy().astype(np.int64)
    return np.fromiter(map(hash, column.to_pylist()), dtype=np.int64, count=len(column))
