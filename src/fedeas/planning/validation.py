"""Check a table of label counts; errors name the row, the class and the remedy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas.core.arrays import IntArray, for_row_blocks, frozen, frozen_integers
from fedeas.core.errors import InputError
from fedeas.core.foreign_text import in_one_form

MAX_CLIENT_SIZE = 10**13
"""The most samples of one client: the entropy of more could not be told from 0."""

TOO_LARGE = f"count {{}} is too large; give at most {MAX_CLIENT_SIZE:,}"
"""The message on a count, which `format` puts in."""

MAX_BALANCED = 2**63
"""Samples of all clients times classes stay below this, so that a plan that balances every client fits 64 bits."""

MAX_SQUARED = 2**31 - 1
"""Sums of squares of clients up to this size fit 64 bits."""

Names = tuple[str, ...] | None


def table_of(values: ArrayLike, what: str) -> NDArray[Any]:
    """The values as an array of numbers; refuse dates, complex numbers, text and ragged lists."""
    try:
        table = np.asarray(values)
    except (TypeError, ValueError):
        raise InputError(f"{what} must be a table with rows of one length") from None
    if table.dtype.kind not in "iubfO":
        raise InputError(f"{what} must be whole numbers, not {table.dtype}")
    return table


def exact_integers(values: IntArray, largest: int) -> IntArray:
    """The values as numbers whose squares are exact: Python's whole numbers if a client may be too large for 64 bits.

    >>> exact_integers(np.array([10**12]), largest=10**12) ** 2
    array([1000000000000000000000000], dtype=object)
    """
    return values if largest <= MAX_SQUARED else values.astype(object)


def whole_numbers(values: ArrayLike, what: str) -> IntArray:
    """The values as read-only whole numbers; refuse values that would be truncated or overflow."""
    table = table_of(values, what)
    if table.dtype.kind in "fO":
        try:
            whole = np.asarray(table, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"{what} must be whole numbers") from None
        if not ((whole == np.floor(whole)) & (np.abs(whole) < 2**63)).all():
            raise InputError(f"{what} must be whole numbers")
    return frozen_integers(table)


def checked_names(
    shape: tuple[int, ...], clients: Iterable[object] | None, classes: Iterable[object] | None
) -> tuple[Names, Names]:
    """The names of the clients and classes of a table of this shape, as text."""
    return _checked_names("client", "rows", clients, shape[0]), _checked_names("class", "columns", classes, shape[1])


def _checked_names(what: str, axis: str, names: Iterable[object] | None, length: int) -> Names:
    """The names as text in one form, without blanks around them.

    Refuse missing ones (None, NaN, NaT), repeated ones, and more or fewer than the table has.
    """
    if names is None:
        return None
    given = tuple(names)
    missing = next((place for place, name in enumerate(given) if is_missing(name)), None)
    if missing is not None:
        raise InputError(f"missing {what} name (number {missing + 1:,}); give one")
    if len(given) != length:
        raise InputError(f"{len(given)} {what} names for {length} in the table; give one for each")
    first: dict[str, int] = {}
    for place, name in enumerate(in_one_form(str(each).strip()) for each in given):
        if first.setdefault(name, place) != place:
            raise InputError(f"duplicate {what} {name!r} ({axis} {first[name] + 1} and {place + 1}); rename one")
    return tuple(first)


def is_missing(name: object) -> bool:
    """Whether this stands for a missing value: None, NaN, NaT, pandas' NA."""
    try:
        return name is None or bool(name != name)
    except (TypeError, ValueError):  # pandas' NA is neither equal nor unequal
        return True


def checked_counts(n: NDArray[Any], *names: Iterable[object] | None) -> tuple[IntArray, Names, Names, IntArray]:
    """The table as read-only whole numbers, the names of its clients and classes, and the size N_k of each client."""
    if n.ndim == 0:
        raise InputError(
            f"counts must be a table of clients x classes, not {type(n.item()).__name__}; "
            "give an array, such as .toarray() of a sparse matrix"
        )
    if n.ndim != 2:
        raise InputError(f"counts must be a table of clients x classes, not {n.ndim}-dimensional")
    if n.shape[0] == 0:
        raise InputError("the table of counts is empty; give at least one client")
    if n.shape[1] < 2:
        raise InputError(f"the table has {n.shape[1]} class; give at least two")
    place = _Place(*checked_names(n.shape, *names))
    if n.dtype == np.uint64:
        place.refuse(n > MAX_CLIENT_SIZE, TOO_LARGE, n)  # as int64 it may be negative
    if n.dtype.kind not in "iub":
        try:
            n = n.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"counts must be whole numbers, not {n.dtype}") from None
        place.refuse(np.isnan(n), "missing count; write 0 for none", n)
        place.refuse(n != np.floor(n), "fractional count {}; give whole numbers", n)
        place.refuse(np.abs(n) > MAX_CLIENT_SIZE, TOO_LARGE, n)
    whole = frozen_integers(n)
    return whole, *place, _sizes(whole, place)


class _Place(NamedTuple):
    """Makes errors that name the place in the table."""

    clients: Names
    classes: Names

    def error(self, message: str, row: int | np.integer, column: int | np.integer | None = None) -> InputError:
        client = "" if self.clients is None else f" (client {self.clients[row]!r})"
        label = "" if column is None else f", class {str(column) if self.classes is None else self.classes[column]!r}"
        return InputError(f"{client}{label}: {message}", row=int(row))

    def refuse(self, bad: NDArray[np.bool_], message: str, values: NDArray[Any], first_row: int = 0) -> None:
        """Raise for the first bad cell, if there is one."""
        if bad.any():
            row, column = np.argwhere(bad)[0]
            raise self.error(message.format(values[row, column]), row + first_row, column)


def _sizes(n: IntArray, place: _Place) -> IntArray:
    """N_k of each client; refuse counts out of range. Each block is read from memory once."""
    sizes = np.empty(n.shape[0], dtype=np.int64)

    def check(rows: slice) -> None:
        block = n[rows]
        largest = int(block.view(np.uint64).max())  # as unsigned, negative numbers are the largest
        if largest > MAX_CLIENT_SIZE:
            place.refuse(block < 0, "negative count {}; give 0 or more", block, rows.start)
            place.refuse(block > MAX_CLIENT_SIZE, TOO_LARGE, block, rows.start)
        _check_total(largest, n.shape[1])
        np.sum(block, axis=1, out=sizes[rows])

    for_row_blocks(check, *n.shape)
    if sizes.min() == 0:
        raise place.error("client with no samples; remove the row", sizes.argmin())
    if sizes.max() > MAX_CLIENT_SIZE:
        raise place.error(f"more than {MAX_CLIENT_SIZE:,} samples in one client", sizes.argmax())
    _check_total(float(sizes.sum(dtype=np.float64)), n.shape[1])
    return frozen(sizes)


def _check_total(samples: float, classes: int) -> None:
    if samples * classes >= MAX_BALANCED:
        raise InputError(f"{samples:,.0f} samples in {classes:,} classes are too many; plan for fewer clients")
