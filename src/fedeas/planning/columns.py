"""Decide how a table of label counts is to be read, by the names and the first values of its columns.

A table is *wide* (a row for each client, a column for each class), *tidy* (a row for each client and class, with a
count) or has a row for each *sample*. What could be read in two ways is refused.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas.core.arrays import BoolArray
from fedeas.core.errors import InputError
from fedeas.core.foreign_text import first_of

_PARTIES = (
    *("client", "site", "hospital", "clinic", "institution", "organisation", "organization", "centre", "center"),
    *("node", "device", "user", "party", "participant", "silo", "worker", "owner", "partition"),
)
_CLIENT = re.compile(rf"({'|'.join(_PARTIES)})s?(_?(id|name|nr|no|number))?|cid|.+_id")
_LABEL = re.compile(r"(label|class|target|category)(_?(id|name|label))?|labels|diagnosis")
_COUNT = re.compile(r"counts?|n|num|number|(n|num|number_of)_(samples|images|examples)|samples|images|freq(uency)?")
_SAMPLE = re.compile(r"(sample|image|img|picture|file|path|index|row)(_?(id|index|number|name|path|nr))?s?")
_ROW_NUMBER = re.compile(r"|unnamed:_0|__index_level_0__|index|level_0|id|row(_?number)?|#")
TOTAL = re.compile(r"total(_.*)?|sum|summe|gesamt|all")
NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)\s*$"
_WHOLE = re.compile(r"\d+(\.0+)?")

MAX_CLIENT_SIZE = 2**31 - 1
"""The most samples of one client, and of a budget that is searched: sums of their squares fit 64 bits."""

FEW_ROWS = 3
"""With fewer rows, counts may well go up by one from row to row."""


@dataclass(frozen=True)
class Column:
    """A column of a table: its name, what it holds, and its first values."""

    name: str
    is_text: bool = True
    is_number: bool = False
    head: Callable[[], Sequence[Any]] = list
    """The first values, or all of them; called only if the name does not tell enough."""

    def named_like(self, pattern: re.Pattern[str]) -> bool:
        """Whether the name fits, in any case and with blanks or dashes for underscores."""
        return bool(pattern.fullmatch(self._plain_name))

    @cached_property
    def _plain_name(self) -> str:
        return re.sub(r"[\s-]+", "_", self.name.strip().lower())

    def names_clients(self) -> bool:
        """Whether the name says that these are clients."""
        return self.named_like(_CLIENT) and not self.named_like(_LABEL)

    def names_rows(self) -> bool:
        """Whether the name says that these are clients or the numbers of rows."""
        return self.names_clients() or self.named_like(_ROW_NUMBER)

    def names_samples(self) -> bool:
        """Whether the name says that these are samples."""
        return self.named_like(_SAMPLE)

    def holds_names(self) -> bool:
        """Whether the values are text, and none of them is a number."""
        return self.is_text and not any(re.fullmatch(NUMBER, str(value)) for value in self.head())


@dataclass(frozen=True)
class ColumnNames:
    """The columns that the user names; those left out are recognised."""

    client: str | None = None
    label: str | None = None
    count: str | None = None

    def __iter__(self) -> Iterator[str]:
        return (name for name in (self.client, self.label, self.count) if name is not None)


@dataclass(frozen=True)
class Layout:
    """How a table is read. A wide table has no `label`; without a `count` each row of a long table is a sample."""

    client: str | None
    label: str | None = None
    count: str | None = None
    classes: tuple[str, ...] = ()
    """The class columns of a wide table."""
    left_out: tuple[str, ...] = ()
    maybe_counts: tuple[str, ...] = ()
    """Columns of a long table that may hold counts, though their names do not say so."""
    count_is_asked: bool = False

    @property
    def is_long(self) -> bool:
        """Whether the table is tidy or has a row for each sample."""
        return self.label is not None

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of clients and labels."""
        return tuple(name for name in (self.client, self.label) if name is not None)

    @property
    def counts(self) -> tuple[str, ...]:
        """The columns of counts."""
        return self.classes if self.count is None else (self.count,)

    def describe(self) -> str:
        """How the table is read, in words.

        >>> Layout(client="site", classes=("cat", "dog"), left_out=("nr",)).describe()
        "one row a client, named in column 'site'; 2 classes: cat, dog; left out: 'nr'"
        """
        left_out = f"; left out: {_listed(self.left_out)}" if self.left_out else ""
        if not self.is_long:
            named = f"named in column {self.client!r}" if self.client is not None else "without names"
            return f"one row a client, {named}; {len(self.classes):,} classes: {first_of(self.classes)}{left_out}"
        what = "a sample" if self.count is None else "a client and class"
        counted = "" if self.count is None else f", counts in {self.count!r}"
        return f"one row {what}; clients in column {self.client!r}, classes in {self.label!r}{counted}{left_out}"

    def remark_on_header(self, asked: ColumnNames) -> str:
        """Refuse a wide table of text whose header may be its first client: its classes are numbers.

        Numbers from 0 or 1 on are seldom the counts of a client, so they are read as a header, and a remark says so.
        """
        is_named = asked.client is not None or (self.client is not None and Column(self.client).names_rows())
        if is_named or not self.classes or not all(map(_WHOLE.fullmatch, self.classes)):
            return ""
        numbers = {name.partition(".")[0].lstrip("0") or "0" for name in self.classes}
        if any(numbers == {str(first + place) for place in range(len(self.classes))} for first in (0, 1)):
            return "; the first row is the header (if it is a client, add a row with the names of the classes above it)"
        remedy = "add a column 'client'" if self.client is None else _call(self.client, "client", "the first column")
        raise InputError(
            f"the first row ({_listed(self.names + self.counts)}) may be a client, not the header; "
            f"add a row with the names of the columns, or, if the classes are numbers, {remedy}"
        )

    def check_counts(self, pairs_repeat: bool, rows: int) -> None:
        """Refuse a long table that may hold counts and may not: counts have one row for each client and class."""
        if self.count is not None and pairs_repeat and not self.count_is_asked:
            raise InputError(
                f"some client and class occur in several rows, so column {self.count!r} may not hold counts; "
                f"add up these rows (or give --count-column {self.count}), or remove the column"
            )
        if self.maybe_counts and self.count is None and not pairs_repeat and rows > FEW_ROWS:
            first = self.maybe_counts[0]
            raise InputError(
                f"each client and class occur in one row, so column {first!r} may hold counts; "
                f"{_call(first, 'count')}, or remove it if each row is a sample"
            )


def layout_of(columns: Sequence[Column], asked: ColumnNames | None = None) -> Layout:
    """How a table with these columns is read; the user's names go first.

    >>> layout_of([Column("hospital"), Column("label"), Column("count", is_text=False, is_number=True)]).describe()
    "one row a client and class; clients in column 'hospital', classes in 'label', counts in 'count'"
    """
    asked = asked or ColumnNames()
    by_name = {column.name: column for column in columns}
    for name in asked:
        if name not in by_name:
            raise InputError(f"no column {name!r}; there are {_listed(by_name)}")
    if len({*asked}) < len([*asked]):
        raise InputError("one column cannot be two of client, label and count; name different ones")
    free = [column for column in columns if column.name not in {*asked}]
    client, label, count = asked.client, asked.label, asked.count
    if client is None:
        client = _client([column for column in free if not column.named_like(_LABEL)])
    rest = [column for column in free if column.name != client]
    if label is None and (client is not None or count is not None):
        labels = [column for column in rest if column.named_like(_LABEL)]
        plain = [column.name for column in labels if column.name.strip().lower() == "label"]
        others = [column for column in rest if not column.named_like(_COUNT) and not column.named_like(_ROW_NUMBER)]
        if plain or (len(labels) == 1 and (labels[0].is_text or others == labels)):
            label = [*plain, labels[0].name][0]
    if label is None:
        if count is not None:
            raise InputError(
                f"column {count!r} is for counts of (client, class) rows; "
                "name the column of labels, too (--label-column)"
            )
        return _wide(columns, client)
    if client is None:
        raise InputError(
            f"no column names the clients; call one 'client', or give --client-column (columns: {_listed(by_name)})"
        )
    rest = [column for column in rest if column.name != label]
    if count is None:  # of text that holds some numbers the reader names the row that is wrong
        counts = _names(column for column in rest if column.named_like(_COUNT) and not column.holds_names())
        if len(counts) > 1:
            raise InputError(f"columns {_listed(counts)} may both hold counts; keep one, or choose with --count-column")
        count = next(iter(counts), None)
    rest = [column for column in rest if column.name != count]
    maybe = _names(column for column in rest if column.is_number and not column.named_like(_ROW_NUMBER))
    return Layout(client, label, count, (), _names(rest), maybe, count_is_asked=asked.count is not None)


def _client(free: Sequence[Column]) -> str | None:
    """The column with the clients' names; None if the rows have none."""
    found = _names(column for column in free if column.names_clients())
    if len(found) > 1:
        raise InputError(
            f"has {len(found)} client columns ({', '.join(found)}); keep one, or choose with --client-column"
        )
    found = found or _names(column for column in free if column.named_like(_ROW_NUMBER))
    if found or not free:
        return found[0] if found else None
    first = free[0]
    if first.holds_names():
        return first.name
    values = [*first.head()] if first.is_number else []
    if len(values) >= FEW_ROWS and values in ([*range(len(values))], [*range(1, len(values) + 1)]):
        raise InputError(
            f"column {first.name!r} goes up by one in each row; {_call(first.name, 'client')} if it numbers the "
            "clients, or add a column 'client' if it holds counts"
        )
    return None


def _wide(columns: Sequence[Column], client: str | None) -> Layout:
    rest = [column for column in columns if column.name != client]
    ids = _names(column for column in rest if column.named_like(_CLIENT) or column.named_like(_ROW_NUMBER))
    classes = [column for column in rest if column.name not in ids]
    words = next((column.name for column in classes if column.holds_names() and column.head()), None)
    if words is not None:
        raise InputError(
            f"column {words!r} holds text, not counts; remove it or, if rows are of clients and classes, "
            "call the columns 'client', 'label' and 'count' (or give --client-column, --label-column, --count-column)"
        )
    total = next((column for column in classes if column.named_like(TOTAL)), None)
    others = [column for column in classes if column is not total]
    if total is not None and len(others) > 1 and all(column.is_number for column in classes):
        table = np.array([column.head() for column in others], dtype=object)
        if not table.size or [*table.sum(axis=0)] != [*total.head()]:
            raise InputError(
                f"column {total.name!r} is not the sum of the others; correct it, remove it, or rename the class"
            )
        classes, ids = others, (*ids, total.name)
    return Layout(client, classes=_names(classes), left_out=ids)


def wrong_counts(values: NDArray[Any]) -> Iterator[tuple[BoolArray, str]]:
    """Which values cannot be counts, and why, kind by kind; `format` puts the value into the message."""
    yield np.isnan(values), "missing count; write 0 for none"
    yield values != np.floor(values), "fractional count {}; give whole numbers"
    yield values < 0, "negative count {}; give 0 or more"
    yield values > MAX_CLIENT_SIZE, f"count {{}} is too large; give at most {MAX_CLIENT_SIZE:,}"


def _names(columns: Iterable[Column]) -> tuple[str, ...]:
    return tuple(column.name for column in columns)


def _call(column: str, part: str, what: str = "it") -> str:
    """How to say what a column holds: by its name, which works everywhere, or by an option of the command line."""
    return f"call {what} {part!r} (or give --{part}-column {column})"


def _listed(names: Iterable[str]) -> str:
    return first_of([repr(name) if name else "the one without a name" for name in names])
