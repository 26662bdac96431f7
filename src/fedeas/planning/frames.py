"""Label counts in pandas and Arrow tables and in dictionaries: the numbers, and the names of clients and classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas.core.errors import InputError
from fedeas.core.foreign_text import in_one_form
from fedeas.planning.columns import Column, Layout, layout_of
from fedeas.planning.validation import is_missing


class Named(NamedTuple):
    """Counts as a user gave them, and the names that came with them."""

    n: Any
    clients: Sequence[object] | None = None
    classes: Sequence[object] | None = None


def without_names(table: Any) -> Named:
    """The numbers of a table, and the names that a pandas or Arrow table or a dictionary gives to clients and classes.

    The columns are recognised as those of a file. pandas' index names the clients, unless it only numbers the rows or
    a column names them.
    """
    if isinstance(table, Mapping):
        names = None if _only_numbers_rows([*table]) else [*table]
        return _from_mappings([*table.values()], names)
    if isinstance(table, list | tuple) and any(isinstance(row, Mapping) for row in table):
        return _from_mappings(table)
    columns = _columns(table)
    if columns is None:
        return Named(table)
    heads = [_head(name, values) for name, values in columns.items()]
    if [head.name for head in heads] == [str(number) for number in range(len(heads))]:
        layout = Layout(None, classes=tuple(head.name for head in heads))  # numbered columns tell nothing
    else:
        layout = layout_of(heads)
    by_name = {str(name): values for name, values in columns.items()}
    clients = None if layout.client is None else by_name[layout.client]
    if layout.is_long:  # a row for each sample, or for each client and class
        holders, rows = _distinct(by_name[str(layout.client)], "client name")
        classes, places = _distinct(by_name[str(layout.label)], "label")
        tally: NDArray[Any] = np.zeros((len(holders), len(classes)), dtype=np.int64)
        np.add.at(tally, (rows, places), 1)
        layout.check_counts(bool(tally.max(initial=0) > 1), len(rows))
        if layout.count is not None:
            tally = np.zeros(tally.shape, dtype=by_name[layout.count].dtype)
            np.add.at(tally, (rows, places), by_name[layout.count])
        return Named(tally, holders.tolist(), classes.tolist())
    n = np.stack([by_name[name] for name in layout.classes], axis=1) if layout.classes else np.empty((0, 0))
    return Named(n, None if clients is None or _only_numbers_rows(clients) else list(clients), layout.classes)


def _from_mappings(rows: Sequence[Any], clients: Sequence[object] | None = None) -> Named:
    """Counts of a dictionary {class: count} for each client; a class that it does not name counts 0."""
    if not all(isinstance(row, Mapping) for row in rows):
        raise InputError("counts in dictionaries must be {client: {class: count}}, or a list of {class: count}")
    found = {name for row in rows for name in row}
    try:
        classes = sorted(found)
    except TypeError:  # numbers and text together
        classes = sorted(found, key=str)
    n = [[row.get(name, 0) for name in classes] for row in rows]
    return Named(n or np.empty((0, 0)), clients, classes)


def _columns(table: Any) -> dict[object, NDArray[Any]] | None:
    """The columns by name, with the index as the first if it names clients; None if this is no data frame."""
    if hasattr(table, "column_names") and hasattr(table, "columns") and hasattr(table, "schema"):  # Arrow
        return {
            name: column.to_numpy(zero_copy_only=False)
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
    if not (hasattr(table, "columns") and hasattr(table, "index") and hasattr(table, "iloc")):
        return None
    if len({*table.columns}) < len(table.columns):
        twice = next(name for place, name in enumerate(table.columns) if name in list(table.columns[:place]))
        raise InputError(f"duplicate class {str(twice)!r}; rename one")
    columns = {name: np.asarray(table.iloc[:, place]) for place, name in enumerate(table.columns)}
    names_clients = any(_head(name, values).names_clients() for name, values in columns.items())
    if names_clients or _only_numbers_rows(table.index):
        return columns
    return {"client": np.asarray(table.index), **columns}


def _head(name: object, values: NDArray[Any]) -> Column:
    is_text = values.dtype.kind in "OUT" and any(isinstance(value, str) for value in values)
    return Column(str(name), is_text, values.dtype.kind in "iuf", values.tolist)


def _only_numbers_rows(index: Any) -> bool:
    return bool(np.array_equal(np.asarray(index), np.arange(len(index))))


def _distinct(values: NDArray[Any], what: str) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The distinct names, sorted, and the index of its name for each row."""
    missing = next((row for row, value in enumerate(values) if is_missing(value)), None)
    if missing is not None:
        raise InputError(f": missing {what}; give one", row=missing)
    if values.dtype.kind in "OUT":
        values = np.array(
            [in_one_form(value.strip()) if isinstance(value, str) else value for value in values], dtype=object
        )
    try:
        return np.unique(values, return_inverse=True)
    except TypeError:  # numbers and text together
        return np.unique(values.astype(str), return_inverse=True)
