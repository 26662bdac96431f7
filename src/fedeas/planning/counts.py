"""Label counts n_k^c of a federation, and how many synthetic samples go to each client and class.

Both are tables of clients x classes that are checked once, when they are made, and read-only from then on. Errors name
the row, the class and the remedy.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas.core.arrays import FloatArray, IntArray, for_row_blocks, frozen, frozen_integers, row_blocks
from fedeas.core.errors import InputError
from fedeas.core.foreign_text import first_of, in_one_form
from fedeas.planning.columns import MAX_CLIENT_SIZE, wrong_counts

if TYPE_CHECKING:
    from fedeas.planning.plan import Plan

Names = tuple[str, ...] | None
NameList = Iterable[object] | None
Dictionaries = Mapping[Any, Mapping[Any, int]] | Sequence[Mapping[Any, int]]
"""Label counts as {client: {class: count}}, or as a {class: count} for each client."""

MISSING = ("None", "nan", "NaT", "<NA>")
"""What the values print that stand for a missing name."""


def _checked_names(what: str, axis: str, names: NameList, length: int) -> Names:
    """The names of clients or classes as text in one form, without blanks around them.

    Refuse missing ones (None, NaN, NaT), repeated ones, and more or fewer than the table has.
    """
    if names is None:
        return None
    given = tuple(names)
    for place, name in enumerate(given, 1):
        if str(name) in MISSING and not isinstance(name, str):
            raise InputError(f"missing {what} name (number {place:,}); give one")
    if len(given) != length:
        raise InputError(f"{len(given)} {what} names for {length} in the table; give one for each")
    first: dict[str, int] = {}
    for place, name in enumerate(in_one_form(str(each).strip()) for each in given):
        if first.setdefault(name, place) != place:
            raise InputError(f"duplicate {what} {name!r} ({axis} {first[name] + 1} and {place + 1}); rename one")
    return tuple(first)


def numbers_in(values: ArrayLike, what: str) -> NDArray[Any]:
    """The values as integers or 64-bit floats; refuse dates, complex numbers, text and ragged lists."""
    try:
        table = np.asarray(values)
    except (TypeError, ValueError):
        raise InputError(f"{what} must be a table with rows of one length") from None
    if table.dtype.kind in "iub":
        return table
    with suppress(TypeError, ValueError, OverflowError):
        if table.dtype.kind in "fO":
            return table.astype(np.float64)
    raise InputError(f"{what} must be whole numbers, not {table.dtype}")


def whole_numbers(values: ArrayLike, what: str) -> IntArray:
    """The values as read-only whole numbers; refuse values that would be truncated or overflow."""
    table = numbers_in(values, what)
    if table.dtype.kind == "f" and not ((table == np.floor(table)) & (np.abs(table) < 2**63)).all():
        raise InputError(f"{what} must be whole numbers")
    return frozen_integers(table)


class NamedTable:
    """What label counts and allocations have in common."""

    n: IntArray
    clients: Names
    classes: Names

    def _set(self, n: IntArray, clients: NameList, classes: NameList, **others: object) -> None:
        """Set the fields of an instance, which is frozen otherwise."""
        vars(self).update(
            n=n,
            clients=_checked_names("client", "rows", clients, n.shape[0]),
            classes=_checked_names("class", "columns", classes, n.shape[1]),
            **others,
        )

    def client_name(self, row: int) -> str:
        """The client's given name, or its row number."""
        return str(row) if self.clients is None else self.clients[row]

    def class_name(self, column: int) -> str:
        """The class's given name, or its column number."""
        return str(column) if self.classes is None else self.classes[column]

    @property
    def client_names(self) -> tuple[str, ...]:
        """The names of all clients, or their row numbers."""
        return tuple(map(self.client_name, range(self.n.shape[0])))

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of all classes, or their column numbers."""
        return tuple(map(self.class_name, range(self.n.shape[1])))

    def to_frame(self) -> Any:
        """The table as a pandas DataFrame, with the names of clients and classes.

        >>> from fedeas import LabelCounts
        >>> LabelCounts([[5, 2]], ["ann"], ["cat", "dog"]).to_frame().loc["ann"].tolist()
        [5, 2]
        """
        pandas = import_pandas("to_frame")
        index, columns = (None if names is None else list(names) for names in (self.clients, self.classes))
        return pandas.DataFrame(self.n.copy(), index=index, columns=columns)

    def _repr_html_(self) -> str | None:
        """The table in a notebook, if pandas is installed."""
        with suppress(InputError):
            return str(self.to_frame()._repr_html_())
        return None


def shape_text(n: IntArray) -> str:
    """The size of a table, in words."""
    return f"{n.shape[0]} clients x {n.shape[1]} classes"


def import_pandas(user: str) -> Any:
    """The package pandas, which is optional; `user` is named in the error."""
    try:
        import pandas
    except ImportError:
        raise InputError(f"{user} needs pandas; run pip install pandas") from None
    return pandas


@dataclass(frozen=True, eq=False)
class LabelCounts(NamedTable):
    """Counts of clients x classes: ``n[k, c]`` is the number of samples of class c that client k holds.

    The table is checked once, here, and read-only from then on. A read-only int64 array is shared, anything else
    is copied. A pandas or Arrow table is read like a file: with a row for each client, each client and class, or each
    sample; its columns, or pandas' index, name clients and classes. A dictionary is {client: {class: count}}; a list of
    {class: count}, such as `collections.Counter`, has no names of clients. In both, classes are sorted, and one that a
    client lacks counts 0.

    >>> counts = LabelCounts([[30, 0], [10, 10]])
    >>> counts.sizes
    array([30, 20])
    >>> counts.entropy
    array([0., 1.])
    """

    n: IntArray
    clients: Names
    classes: Names
    sizes: IntArray = field(repr=False)
    """N_k, the number of samples of each client."""

    def __init__(self, n: ArrayLike | Dictionaries, clients: NameList = None, classes: NameList = None) -> None:
        values, own_clients, own_classes = _without_names(n)
        wanted = "counts must be a table of clients x classes"
        table = numbers_in(values, "counts")
        if table.ndim != 2:
            raise InputError(f"{wanted}, not {table.ndim}-dimensional")
        if table.shape[0] == 0:
            raise InputError("the table of counts is empty; give at least one client")
        if table.shape[1] < 2:
            raise InputError(f"the table has {table.shape[1]} class; give at least two")
        self._set(table, own_clients if clients is None else clients, own_classes if classes is None else classes)
        if table.dtype in (np.float64, np.uint64):  # as int64 they might become other numbers
            self._refuse_wrong_counts()
        vars(self).update(n=frozen_integers(table), sizes=np.empty(len(table), dtype=np.int64))
        self._add_up()

    def _add_up(self) -> None:
        """Add up N_k of each client; refuse counts out of range. Each block of rows is read from memory once."""

        def add_up(rows: slice) -> None:
            block = self.n[rows]
            if block.view(np.uint64).max() > MAX_CLIENT_SIZE:  # as unsigned, negative numbers are the largest
                self._refuse_wrong_counts()
            np.sum(block, axis=1, out=self.sizes[rows])

        for_row_blocks(add_up, *self.n.shape)
        if self.sizes.min() == 0:
            raise self._error("client with no samples; remove the row", self.sizes.argmin())
        if self.sizes.max() > MAX_CLIENT_SIZE:
            raise self._error(f"more than {MAX_CLIENT_SIZE:,} samples in one client", self.sizes.argmax())
        frozen(self.sizes)

    def _error(self, message: str, row: int | np.integer, label: str = "") -> InputError:
        client = "" if self.clients is None else f" (client {self.clients[row]!r})"
        return InputError(f"{client}{label}: {message}", row=int(row))

    def _refuse_wrong_counts(self) -> None:
        """Raise for the first of them, if there is one, naming its place."""
        for wrong, message in wrong_counts(self.n):
            if wrong.any():
                row, column = np.argwhere(wrong)[0]
                raise self._error(message.format(self.n[row, column]), row, f", class {self.class_name(column)!r}")

    @property
    def num_clients(self) -> int:
        """K."""
        return int(self.n.shape[0])

    @property
    def num_classes(self) -> int:
        """C."""
        return int(self.n.shape[1])

    @cached_property
    def total(self) -> int:
        """Number of samples of the whole federation."""
        return int(self.sizes.sum())

    @property
    def weights(self) -> FloatArray:
        """p_k = N_k / sum_j N_j of Eq. (objective)."""
        return self.sizes / self.total

    @property
    def proportions(self) -> FloatArray:
        """q_k^c = n_k^c / N_k."""
        return self.n / self.sizes[:, None]

    @cached_property
    def entropy(self) -> FloatArray:
        """Normalised Shannon entropy H_k / log C of each client: 0 for one class only, 1 for a balanced client."""
        entropy = np.empty(self.num_clients)

        def fill(rows: slice) -> None:
            n = self.n[rows]
            try:
                n_log_n: FloatArray = _n_log_n().take(n)  # for small counts a table is faster than the logarithm
            except IndexError:
                n_log_n = np.asarray(n * np.log(np.maximum(n, 1)))
            entropy[rows] = np.log(self.sizes[rows]) - n_log_n.sum(axis=1) / self.sizes[rows]

        for_row_blocks(fill, *self.n.shape)
        # Entropy of `MAX_CLIENT_SIZE` samples is above 3e-12 or exactly 0. A smaller value is a rounding error, which
        # the floor in a policy could turn into a missing sample.
        entropy[entropy < 1e-12] = 0.0
        return frozen(np.minimum(entropy / np.log(self.num_classes), 1.0))

    def blocks(self) -> Iterator[slice]:
        """Slices of rows, each small enough that its temporaries fit the cache."""
        return row_blocks(*self.n.shape)

    def plus(self, allocation: Allocation) -> LabelCounts:
        """The counts of real and allocated synthetic samples together."""
        return LabelCounts(frozen(self.joined(allocation)), self.clients, self.classes)

    def joined(self, allocation: Planned) -> IntArray:
        """Real and allocated samples as an array; a client may have more of them than `LabelCounts` allows."""
        if allocation.n.shape != self.n.shape:
            raise InputError(
                f"the allocation is for {shape_text(allocation.n)} but the counts are {shape_text(self.n)}; "
                "allocate from these counts"
            )
        largest = int(self.n.max()) + int(allocation.n.max())
        if largest * self.num_classes >= 2**63:
            raise InputError(f"an allocation of {int(allocation.n.max()):,} samples of one class; allocate fewer")
        return self.n + allocation.n

    def __len__(self) -> int:
        return self.num_clients

    def __getitem__(self, rows: Any) -> LabelCounts:
        """The clients of these rows (an index, a list, a mask or a slice) as a table of their own."""
        index = np.atleast_1d(np.arange(self.num_clients)[rows])
        names = None if self.clients is None else [self.clients[i] for i in index]
        return LabelCounts(frozen(self.n[index]), names, self.classes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LabelCounts):
            return NotImplemented
        same_names = self.clients == other.clients and self.classes == other.classes
        return same_names and np.array_equal(self.n, other.n)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False)
class Allocation(NamedTable):
    """How many synthetic samples each client generates of each class, and the policy that decided it.

    >>> Allocation([[0, 3], [1, 0]], policy="by hand").total
    4
    """

    n: IntArray
    policy: str
    clients: Names = field(default=None, repr=False)
    """Names of the clients, where the counts have them; likewise of the classes."""
    classes: Names = field(default=None, repr=False)

    def __init__(self, n: ArrayLike, policy: str = "", clients: NameList = None, classes: NameList = None) -> None:
        table = whole_numbers(n, "an allocation")
        if table.ndim != 2 or (table.size and table.min() < 0):
            raise InputError("an allocation is a table of clients x classes with no negative entry")
        self._set(table, clients, classes, policy=policy)

    def named_as(self, counts: LabelCounts) -> Self:
        """The same allocation, with the names of clients and classes that the counts have."""
        named = copy(self)
        vars(named).update(clients=counts.clients, classes=counts.classes)
        return named

    def row_of(self, client: int | str) -> int:
        """The row of a client: a text is the client's name, a number is the row itself.

        >>> plan = Allocation([[0, 3], [1, 0]], clients=["7", "0"])
        >>> plan.row_of("0"), plan.row_of(0)
        (1, 0)
        """
        if isinstance(client, int | np.integer):
            if 0 <= client < len(self.n):
                return int(client)
            raise InputError(f"no client in row {client}; rows are 0 to {len(self.n) - 1}, and a name is given as text")
        names, name = self.client_names, in_one_form(str(client).strip())
        if name in names:
            return names.index(name)
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {first_of(names)}"
        raise InputError(f"no client {client!r}; {hint}")

    @cached_property
    def per_client(self) -> IntArray:
        """Synthetic samples of each client."""
        return frozen(self.n.sum(axis=1))

    @property
    def total(self) -> int:
        """B, the number of synthetic samples of the whole federation."""
        if self.per_client.sum(dtype=np.float64) >= 2**62:  # the sum could overflow 64 bits
            return sum(self.per_client.tolist())
        return int(self.per_client.sum())

    @property
    def distinct(self) -> int:
        """How many different images are needed if all clients share one pool: of each class the most of any client.

        >>> Allocation([[0, 3], [1, 2]]).distinct
        4
        """
        return sum(self.n.max(axis=0, initial=0).tolist())

    @property
    def generated(self) -> int:
        """How many images have to be made: all of them, unless clients share a pool."""
        return self.total


class SharedAllocation(Allocation):
    """An allocation for clients that share one pool of images."""

    @property
    def generated(self) -> int:
        """How many images have to be made: the distinct ones."""
        return self.distinct


@dataclass(frozen=True, eq=False)
class CertifiedAllocation(Allocation):
    """An allocation that is at most `gap` worse than any allocation of as many samples, in what is `minimised`.

    A gap of 0 means proved optimal (up to rounding).
    """

    gap: float = 0.0
    minimised: str = "I"

    def __init__(self, n: IntArray, policy: str, gap: float, minimised: str = "I") -> None:
        super().__init__(n, policy)
        vars(self).update(gap=gap, minimised=minimised)


Planned: TypeAlias = "Allocation | Plan"
"""An allocation, or a plan, which has one."""

Table = LabelCounts | ArrayLike | Dictionaries
"""Whatever stands for label counts: a `LabelCounts`, an array, nested lists, dictionaries, a pandas or Arrow table."""


def as_counts(table: Table) -> LabelCounts:
    """The counts themselves, or those that a table holds.

    >>> as_counts([[3, 1], [0, 2]]).sizes
    array([4, 2])
    """
    return table if isinstance(table, LabelCounts) else LabelCounts(table)


def _without_names(table: Any) -> tuple[Any, NameList, NameList]:
    """The numbers of a table, and the names that a pandas or Arrow table or a dictionary gives to clients and classes.

    The columns of a pandas or Arrow table are recognised as those of a file. A class that a dictionary does not name
    counts 0.
    """
    clients: NameList = None
    if isinstance(table, Mapping):
        if [*table] != [*range(len(table))]:
            clients = [*table]
        table = [*table.values()]
    elif hasattr(table, "columns") and (hasattr(table, "iloc") or hasattr(table, "column_names")):  # pandas or Arrow
        from fedeas.planning.arrow_tables import counts_of_frame  # loads pyarrow, which arrays do not need

        return counts_of_frame(table)
    elif not isinstance(table, list | tuple) or not any(isinstance(row, Mapping) for row in table):
        return table, None, None
    if not all(isinstance(row, Mapping) for row in table):
        raise InputError("counts in dictionaries must be {client: {class: count}}, or a list of {class: count}")
    found = {name for row in table for name in row}
    try:
        classes = sorted(found)
    except TypeError:  # numbers and text together
        classes = sorted(found, key=str)
    n = [[row.get(name, 0) for name in classes] for row in table]
    return n or np.empty((0, 0)), clients, classes


@cache
def _n_log_n() -> FloatArray:
    """N log N of small counts, with 0 log 0 = 0 exactly."""
    n = np.arange(2**16)
    return frozen(n * np.log(np.maximum(n, 1)))
