"""The policies that FedEAS is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedeas.core.arrays import BoolArray, IntArray
from fedeas.core.errors import PolicyError
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies.base import Budget, Needs, Policy, check_budget, samples_in, spread_evenly


@dataclass(frozen=True)
class NoGeneration(Policy):
    """No synthetic data at all: plain federated learning.

    >>> NoGeneration().allocate(LabelCounts([[3, 0]])).total
    0
    """

    is_local: ClassVar[bool] = True
    description: ClassVar[str] = "Nothing is generated: plain federated learning."
    colour: ClassVar[str] = "grey"

    def allocate(self, counts: LabelCounts) -> Allocation:
        """Zero everywhere."""
        return Allocation(np.zeros_like(counts.n), self.spec)


@dataclass(frozen=True)
class FullBalance(Policy):
    """Fill every class of a client to its largest one, max_c n_k^c: Gen-FedSD's rule, the upper reference.

    >>> FullBalance().allocate(LabelCounts([[9, 2, 0]])).n
    array([[0, 7, 9]])
    """

    is_local: ClassVar[bool] = True
    description: ClassVar[str] = (
        "Fills every class of a client to its largest: removes all imbalance, at many times the price."
    )
    colour: ClassVar[str] = "vermillion"

    def allocate(self, counts: LabelCounts) -> Allocation:
        """Fill to the largest class."""
        return Allocation(counts.n.max(axis=1, keepdims=True) - counts.n, self.spec)


@dataclass(frozen=True)
class Budgeted(Policy):
    """A policy that spends exactly `budget` samples: a number, or the total of another policy on the same counts.

    ``Uniform(budget=FedEAS(12))`` is the paper's matched-budget protocol.
    """

    budget: Budget
    budget_field: ClassVar[str] = "budget"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_budget(self.budget)


@dataclass(frozen=True)
class Spread(Budgeted):
    """A budgeted policy that spreads its budget evenly over some of the client-class pairs, in client-major order.

    A client can compute its row from a few numbers: the budget, and how many pairs receive samples before its own.
    """

    @property
    def needs(self) -> Needs:
        """Numbers, unless the budget itself depends on all counts."""
        matched = self.budget
        return Needs.NUMBERS if not isinstance(matched, Policy) or matched.is_local else Needs.COUNTS

    def receives(self, row: IntArray) -> BoolArray:
        """The classes of which a client with these counts generates samples."""
        raise NotImplementedError


@dataclass(frozen=True)
class Uniform(Spread):
    """The same number for every client-class pair; the first pairs, in client-major order, get one more.

    >>> Uniform(budget=5).allocate(LabelCounts([[9, 0], [4, 4]])).n
    array([[2, 1],
           [1, 1]])
    """

    description: ClassVar[str] = "The same number for every client and class, needed or not."
    colour: ClassVar[str] = "orange"

    def receives(self, row: IntArray) -> BoolArray:
        """All classes."""
        return np.ones(row.shape, dtype=bool)

    def allocate(self, counts: LabelCounts) -> Allocation:
        """Spread the budget over all pairs."""
        total = samples_in(self.budget, counts)
        return Allocation(spread_evenly(total, counts.n.size).reshape(counts.n.shape), self.spec)


@dataclass(frozen=True)
class MissingOnly(Spread):
    """Uniform over the absent pairs (n_k^c = 0) only.

    >>> MissingOnly(budget=5).allocate(LabelCounts([[9, 0], [0, 4]])).n
    array([[0, 3],
           [2, 0]])
    """

    description: ClassVar[str] = "The budget is spread over classes that a client does not have at all."
    colour: ClassVar[str] = "green"

    @classmethod
    def suits(cls, counts: LabelCounts) -> bool:
        """Whether a class is absent somewhere."""
        return bool((counts.n == 0).any())

    def receives(self, row: IntArray) -> BoolArray:
        """The absent classes."""
        return np.asarray(row == 0)

    def allocate(self, counts: LabelCounts) -> Allocation:
        """Spread the budget over the absent pairs; refuse if there are none."""
        total = samples_in(self.budget, counts)
        absent = np.flatnonzero(counts.n == 0)
        generated = np.zeros_like(counts.n)
        if total and not absent.size:
            raise no_absent_class(total)
        if total:
            generated.flat[absent] = spread_evenly(total, absent.size)
        return Allocation(generated, self.spec)


def no_absent_class(total: int) -> PolicyError:
    """The error of Missing-only with a budget where no class is absent."""
    return PolicyError(
        f"missing-only cannot place {total:,} samples: every client holds every class; use another policy"
    )


@dataclass(frozen=True)
class BySize(Budgeted):
    """Clients share the budget by their size N_k and spread it evenly over the classes, as earlier budgeted work does.

    Remainders are given one sample at a time to the first clients, and then to the first classes.

    >>> BySize(budget=10).allocate(LabelCounts([[9, 0], [4, 2]])).n
    array([[3, 3],
           [2, 2]])
    """

    description: ClassVar[str] = "Large clients get more; each spreads its part evenly over all classes."

    def allocate(self, counts: LabelCounts) -> Allocation:
        """Split by size over clients, then evenly over classes."""
        total = samples_in(self.budget, counts)
        shares = shares_by_size(counts.sizes, total, counts.total)
        shares[: total - int(shares.sum())] += 1
        return Allocation(over_classes(shares, counts.num_classes), self.spec)


def shares_by_size(sizes: IntArray, total: int, real: int) -> IntArray:
    """What clients of these sizes get of `total` samples, rounded down, if all clients hold `real` samples together."""
    exact = np.int64 if total * int(sizes.max()) < 2**63 else object  # no product may overflow
    return np.asarray((sizes.astype(exact) * total // real).astype(np.int64))


def over_classes(samples: IntArray, classes: int) -> IntArray:
    """The samples of each client spread evenly over the classes; the first ones get one more."""
    even, rest = np.divmod(samples[:, None], classes)
    return np.asarray(even + (np.arange(classes) < rest))
