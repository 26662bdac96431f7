"""Label counts n_k^c of a federation, and how many synthetic samples go to each client and class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas.errors import InputError

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

# Sums of squared counts must fit 64 bits, so a client may hold no more than this.
MAX_CLIENT_SIZE = 2**31 - 1

# Rows are worked off in blocks of about this many cells, so that temporaries stay in the processor's cache.
BLOCK_CELLS = 2**15


@dataclass(frozen=True, eq=False)
class LabelCounts:
    """Counts of clients x classes: ``n[k, c]`` is the number of samples of class c that client k holds.

    The table is checked once, here, and read-only from then on. A read-only int64 array is shared, anything else
    is copied.

    >>> counts = LabelCounts([[30, 0], [10, 10]])
    >>> counts.sizes
    array([30, 20])
    >>> counts.entropy
    array([0., 1.])
    """

    n: IntArray
    clients: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None

    def __init__(
        self, n: ArrayLike, clients: Sequence[str] | None = None, classes: Sequence[str] | None = None
    ) -> None:
        set_field = object.__setattr__  # the instance is frozen
        set_field(self, "clients", None if clients is None else tuple(map(str, clients)))
        set_field(self, "classes", None if classes is None else tuple(map(str, classes)))
        set_field(self, "n", self._checked(np.asarray(n)))

    @property
    def num_clients(self) -> int:
        """K."""
        return int(self.n.shape[0])

    @property
    def num_classes(self) -> int:
        """C."""
        return int(self.n.shape[1])

    @cached_property
    def sizes(self) -> IntArray:
        """N_k, the number of samples of each client."""
        return _frozen(self.n.sum(axis=1))

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
        for rows in self.blocks():
            entropy[rows] = _entropy(self.n[rows], self.sizes[rows])
        return _frozen(np.clip(entropy / np.log(self.num_classes), 0.0, 1.0))

    def blocks(self) -> Iterator[slice]:
        """Slices of rows, each small enough that its temporaries fit the cache."""
        step = max(1, BLOCK_CELLS // self.num_classes)
        for start in range(0, self.num_clients, step):
            yield slice(start, start + step)

    def plus(self, allocation: Allocation) -> LabelCounts:
        """The counts once the allocated synthetic samples have joined the real ones."""
        if allocation.n.shape != self.n.shape:
            raise InputError(
                f"the allocation is for {_shape(allocation.n)} but the counts are {_shape(self.n)}; "
                "allocate from these counts"
            )
        return LabelCounts(_frozen(self.n + allocation.n), self.clients, self.classes)

    def client_name(self, row: int) -> str:
        """The client's given name, or its row number."""
        return str(row) if self.clients is None else self.clients[row]

    def class_name(self, column: int) -> str:
        """The class's given name, or its column number."""
        return str(column) if self.classes is None else self.classes[column]

    def __len__(self) -> int:
        return self.num_clients

    def __getitem__(self, rows: Any) -> LabelCounts:
        """The clients of these rows (an index, a list, a mask or a slice) as a table of their own."""
        index = np.atleast_1d(np.arange(self.num_clients)[rows])
        names = None if self.clients is None else [self.clients[i] for i in index]
        return LabelCounts(_frozen(self.n[index]), names, self.classes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LabelCounts):
            return NotImplemented
        return np.array_equal(self.n, other.n) and self.clients == other.clients and self.classes == other.classes

    __hash__ = None  # type: ignore[assignment]

    def _checked(self, n: NDArray[Any]) -> IntArray:
        if n.ndim != 2:
            raise InputError(f"counts must be a table of clients x classes, not {n.ndim}-dimensional")
        if n.shape[0] == 0:
            raise InputError("the table of counts is empty; give at least one client")
        if n.shape[1] < 2:
            raise InputError(f"the table has {n.shape[1]} class; give at least two, label skew needs a choice")
        self._check_names(n)
        whole = self._whole_numbers(n)
        if whole.min() < 0:
            row, column = np.argwhere(whole < 0)[0]
            raise self._at(row, f"negative count {whole[row, column]}; give 0 or more", column)
        if whole.max() > MAX_CLIENT_SIZE:  # before summing, which could overflow
            row, column = np.argwhere(whole == whole.max())[0]
            raise self._at(row, f"count {whole[row, column]} is too large", column)
        sizes = whole.sum(axis=1)
        if sizes.min() == 0:
            raise self._at(sizes.argmin(), "client with no samples; remove the row")
        if sizes.max() > MAX_CLIENT_SIZE:
            raise self._at(sizes.argmax(), f"more than {MAX_CLIENT_SIZE:,} samples in one client")
        return whole

    def _check_names(self, n: NDArray[Any]) -> None:
        axes = (("client", self.clients, n.shape[0]), ("class", self.classes, n.shape[1]))
        for what, names, length in axes:
            if names is None:
                continue
            if len(names) != length:
                raise InputError(f"{len(names)} {what} names for {length} in the table; give one for each")
            if len(set(names)) < length:
                first, second, name = _first_repeat(names)
                axis = "rows" if what == "client" else "columns"
                raise InputError(f"duplicate {what} {name!r} ({axis} {first + 1} and {second + 1}); rename one")

    def _whole_numbers(self, n: NDArray[Any]) -> IntArray:
        if n.dtype == np.int64 and not n.flags.writeable:
            return n
        if n.dtype.kind in "iub":
            return _frozen(n.astype(np.int64))  # uint64 beyond int64 wraps to a negative number, refused below
        try:
            values = n.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"counts must be whole numbers, not {n.dtype} ({error})") from None
        self._refuse_where(np.isnan(values), "missing count; write 0 for none", values)
        self._refuse_where(values != np.floor(values), "fractional count {}; give whole numbers", values)
        self._refuse_where(np.abs(values) > MAX_CLIENT_SIZE, "count {} is too large", values)
        return _frozen(values.astype(np.int64))

    def _refuse_where(self, bad: NDArray[np.bool_], message: str, values: FloatArray) -> None:
        if bad.any():
            row, column = np.argwhere(bad)[0]
            raise self._at(row, message.format(values[row, column]), column)

    def _at(self, row: int | np.integer, message: str, column: int | None = None) -> InputError:
        client = "" if self.clients is None else f" (client {self.clients[row]!r})"
        label = "" if column is None else f", class {self.class_name(column)!r}"
        return InputError(f"{client}{label}: {message}", row=int(row))


@dataclass(frozen=True, eq=False)
class Allocation:
    """How many synthetic samples each client generates of each class, and the policy that said so.

    >>> Allocation([[0, 3], [1, 0]], policy="by hand").total
    4
    """

    n: IntArray
    policy: str = ""

    def __init__(self, n: ArrayLike, policy: str = "") -> None:
        table = np.asarray(n, dtype=np.int64)
        if table.ndim != 2 or (table.size and table.min() < 0):
            raise InputError("an allocation is a table of clients x classes with no negative entry")
        object.__setattr__(self, "n", table if not table.flags.writeable else _frozen(table.view()))
        object.__setattr__(self, "policy", policy)

    @cached_property
    def per_client(self) -> IntArray:
        """Synthetic samples of each client."""
        return _frozen(self.n.sum(axis=1))

    @property
    def total(self) -> int:
        """B, the number of synthetic samples of the whole federation."""
        return int(self.per_client.sum())


def _entropy(n: IntArray, sizes: IntArray) -> FloatArray:
    """H_k in nats, as sum_c n (log N - log n) / N.

    Each term is exactly 0 for n = 0 and for n = N, so a one-class client has entropy 0 and not some rounding error
    that a floor could turn into a missing sample.
    """
    surprise = _log(n)
    np.subtract(np.log(sizes)[:, None], surprise, out=surprise)
    surprise *= n
    return np.asarray(surprise.sum(axis=1) / sizes)


def _log(n: IntArray) -> FloatArray:
    """Log n, with 0 in place of log 0; counts are small as a rule, and then a table beats the logarithm."""
    table = _log_table()
    return table.take(n) if n.max() < table.size else np.log(np.maximum(n, 1))


@cache
def _log_table() -> FloatArray:
    return _frozen(np.log(np.maximum(np.arange(2**16), 1)))


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


def _shape(n: IntArray) -> str:
    return f"{n.shape[0]} clients x {n.shape[1]} classes"


def _first_repeat(names: Sequence[str]) -> tuple[int, int, str]:
    seen: dict[str, int] = {}
    for position, name in enumerate(names):
        if name in seen:
            return seen[name], position, name
        seen[name] = position
    raise ValueError("no name repeats")
