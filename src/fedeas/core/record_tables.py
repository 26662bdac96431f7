"""Many records as columns of JSON: a compressor finds more in values of one kind than in records one after the other.

The first line says which record has which columns, in which order; then there is a line for each column. Read back, the
records are as they were: order of keys, whole numbers and every digit included.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fedeas.core.records import Record

Keys = tuple[str, ...]
"""The keys that lead to a value, from the outside in."""
FAULTS = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""What `read_table` raises if the text is not a table."""


def write_table(records: Iterable[Mapping[str, Any]]) -> bytes:
    """The text of some records, whose keys are text and whose values JSON can hold."""
    columns: dict[Keys, list[Any]] = {}
    numbers: dict[Keys, int] = {}
    shapes: dict[tuple[int, ...], int] = {}
    rows = []
    for record in records:
        shape = []
        for path, value in _values(record):
            columns.setdefault(path, []).append(value)
            shape.append(numbers.setdefault(path, len(numbers)))
        rows.append(shapes.setdefault(tuple(shape), len(shapes)))
    lines = [{"shapes": list(shapes), "rows": rows}, *({"column": path, "values": columns[path]} for path in columns)]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def read_table(text: bytes) -> list[Record]:
    """The records in a text that `write_table` made."""
    head, *columns = (json.loads(line) for line in text.splitlines())
    shapes, rows = head["shapes"], head["rows"]
    uses = Counter(number for row in rows for number in shapes[row])
    if any(uses[number] != len(column["values"]) for number, column in enumerate(columns)):
        raise ValueError("a column is longer or shorter than its records need")
    paths, values = [column["column"] for column in columns], [iter(column["values"]) for column in columns]
    return [_record((paths[number], next(values[number])) for number in shapes[row]) for row in rows]


def _values(record: Mapping[str, Any], above: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """The values of a record and of the records in it; an empty one is a value itself."""
    for key, value in record.items():
        if isinstance(value, dict) and value:
            yield from _values(value, (*above, key))
        else:
            yield (*above, key), value


def _record(values: Iterable[tuple[list[str], Any]]) -> Record:
    record: Record = {}
    for (*above, key), value in values:
        inside = record
        for outer in above:
            inside = inside.setdefault(outer, {})
        inside[key] = value
    return record
