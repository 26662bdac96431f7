"""The policies that FedEAS is compared with."""

from dataclasses import dataclass

import numpy as np

from fedeas.core.arrays import BoolArray, IntArray
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies.base import Budgeted, Placer, Policy, ReadParts, Spread, samples_in


@dataclass(frozen=True)
class NoGeneration(Policy):
    """No synthetic data at all: plain federated learning.

    >>> NoGeneration().allocate(LabelCounts([[3, 0]])).total
    0
    """

    is_local = True
    description = "Nothing is generated: plain federated learning."
    colour = "grey"

    def allocate(self, counts: LabelCounts) -> Allocation:
        """Zero everywhere."""
        return Allocation(np.zeros_like(counts.n), self.spec)


@dataclass(frozen=True)
class FullBalance(Policy):
    """Fill every class of a client to its largest one, max_c n_k^c: Gen-FedSD's rule, the upper reference.

    >>> FullBalance().allocate(LabelCounts([[9, 2, 0]])).n
    array([[0, 7, 9]])
    """

    is_local = True
    description = "Fills every class of a client to its largest: removes all imbalance, at many times the price."
    colour = "vermillion"

    def allocate(self, counts: LabelCounts) -> Allocation:
        """Fill to the largest class."""
        return Allocation(counts.n.max(axis=1, keepdims=True) - counts.n, self.spec)


@dataclass(frozen=True)
class Uniform(Spread):
    """The same number for every client-class pair; the first pairs, in client-major order, get one more.

    >>> Uniform(budget=5).allocate(LabelCounts([[9, 0], [4, 4]])).n
    array([[2, 1],
           [1, 1]])
    """

    description = "The same number for every client and class, needed or not."
    colour = "orange"

    def receives(self, row: IntArray) -> BoolArray:
        """All classes."""
        return np.ones(row.shape, dtype=bool)


@dataclass(frozen=True)
class MissingOnly(Spread):
    """Uniform over the absent pairs (n_k^c = 0) only.

    >>> MissingOnly(budget=5).allocate(LabelCounts([[9, 0], [0, 4]])).n
    array([[0, 3],
           [2, 0]])
    """

    description = "The budget is spread over classes that a client does not have at all."
    colour = "green"

    @classmethod
    def suits(cls, counts: LabelCounts) -> bool:
        """Whether a class is absent somewhere."""
        return bool((counts.n == 0).any())

    def receives(self, row: IntArray) -> BoolArray:
        """The absent classes."""
        absent: BoolArray = row == 0
        return absent


@dataclass(frozen=True)
class BySize(Budgeted):
    """Clients share the budget by their size N_k and spread it evenly over the classes, as earlier budgeted work does.

    Remainders are given one sample at a time to the first clients, and then to the first classes.

    >>> BySize(budget=10).allocate(LabelCounts([[9, 0], [4, 2]])).n
    array([[3, 3],
           [2, 2]])
    """

    description = "Large clients get more; each spreads its part evenly over all classes."

    def in_parts(self, parts: ReadParts) -> Placer:
        """Split by size over clients, rounded down, then evenly over classes; the first ones get the rest."""
        total, real = samples_in(self.budget, parts()), sum(part.total for part in parts())

        def shares(part: LabelCounts) -> IntArray:
            exact = np.int64 if total * int(part.sizes.max()) < 2**63 else object  # no product may overflow
            return (part.sizes.astype(exact) * total // real).astype(np.int64)

        rest = total - sum(int(shares(part).sum()) for part in parts())

        def place(part: LabelCounts) -> IntArray:
            nonlocal rest
            own = shares(part)
            own[:rest] += 1
            rest = max(rest - part.num_clients, 0)
            even, left = np.divmod(own[:, None], part.num_classes)
            return even + (np.arange(part.num_classes) < left)

        return place
