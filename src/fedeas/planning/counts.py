"""Label counts n_k^c of a federation, and how many synthetic samples go to each client and class."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from fedeas.core.arrays import FloatArray, IntArray, for_row_blocks, frozen, row_blocks
from fedeas.core.errors import InputError
from fedeas.core.foreign_text import in_one_form
from fedeas.core.sentences import first_of
from fedeas.planning.frames import without_names
from fedeas.planning.named_table import NamedTable, shape_text
from fedeas.planning.validation import Names, checked_counts, checked_names, table_of, whole_numbers

Dictionaries = Mapping[Any, Mapping[Any, int]] | Sequence[Mapping[Any, int]]
"""Label counts as {client: {class: count}}, or as a {class: count} for each client."""


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

    def __init__(
        self,
        n: ArrayLike | Dictionaries,
        clients: Iterable[object] | None = None,
        classes: Iterable[object] | None = None,
    ) -> None:
        values, own_clients, own_classes = without_names(n)
        clients = own_clients if clients is None else clients
        classes = own_classes if classes is None else classes
        checked = checked_counts(table_of(values, "counts"), clients, classes)
        for name, value in zip(("n", "clients", "classes", "sizes"), checked, strict=True):
            object.__setattr__(self, name, value)  # the instance is frozen

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
            entropy[rows] = np.log(self.sizes[rows]) - _n_log_n(self.n[rows]).sum(axis=1) / self.sizes[rows]

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
        return np.asarray(self.n + allocation.n)

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

    def __init__(
        self,
        n: ArrayLike,
        policy: str = "",
        clients: Iterable[object] | None = None,
        classes: Iterable[object] | None = None,
    ) -> None:
        table = whole_numbers(n, "an allocation")
        if table.ndim != 2 or (table.size and table.min() < 0):
            raise InputError("an allocation is a table of clients x classes with no negative entry")
        checked = table, policy, *checked_names(table.shape, clients, classes)
        for name, value in zip(("n", "policy", "clients", "classes"), checked, strict=True):
            object.__setattr__(self, name, value)

    def named_as(self, counts: LabelCounts) -> Self:
        """The same allocation, with the names of clients and classes that the counts have."""
        named = copy(self)
        object.__setattr__(named, "clients", counts.clients)
        object.__setattr__(named, "classes", counts.classes)
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


class Planned(Protocol):
    """An `Allocation`, or a `Plan`, which has one."""

    @property
    def n(self) -> IntArray:
        """Synthetic samples, clients x classes."""

    @property
    def per_client(self) -> IntArray:
        """Synthetic samples of each client."""

    @property
    def total(self) -> int:
        """B, the synthetic samples of all clients."""


Table = LabelCounts | ArrayLike | Dictionaries
"""Whatever stands for label counts: a `LabelCounts`, an array, nested lists, dictionaries, a pandas or Arrow table."""


def as_counts(table: Table) -> LabelCounts:
    """The counts themselves, or those that a table holds.

    >>> as_counts([[3, 1], [0, 2]]).sizes
    array([4, 2])
    """
    return table if isinstance(table, LabelCounts) else LabelCounts(table)


def _n_log_n(n: IntArray) -> FloatArray:
    """N log n, with 0 log 0 = 0 exactly; for small counts a table is faster than the logarithm."""
    try:
        return _n_log_n_table().take(n)
    except IndexError:  # a count beyond the table
        return np.asarray(n * np.log(np.maximum(n, 1)))


@cache
def _n_log_n_table() -> FloatArray:
    n = np.arange(2**16)
    return frozen(n * np.log(np.maximum(n, 1)))
