"""Plan one budget for a table that is read in parts: Uniform, Missing-only, By-size and Pool.

These policies need a few totals over all clients, such as the number of absent classes. They are found by reading the
table once or twice. A client's row then follows from its own counts and its place in the table.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from fedeas.core.arrays import IntArray
from fedeas.planning.counts import LabelCounts
from fedeas.planning.passes import Placer, ReadParts
from fedeas.planning.policies import Policy, Pool
from fedeas.planning.policies.base import Budget, spread_evenly
from fedeas.planning.policies.baselines import BySize, Spread, no_absent_class, over_classes, shares_by_size
from fedeas.planning.policies.pool import sizes_of_pool


def spread(parts: ReadParts, policy: Spread | BySize | Pool) -> Placer:
    """Read the table for the totals that the policy needs; the result places its parts."""
    if isinstance(policy, BySize):
        return _by_size(parts, _samples_in_parts(policy.budget, parts))
    if isinstance(policy, Pool):
        lacked: defaultdict[int, FallingNumbers] = defaultdict(FallingNumbers)
        clients, images = 0, _samples_in_parts(policy.distinct, parts)
        for part in parts():
            clients += part.num_clients
            for label, column in enumerate(policy.lacking(part).T):
                lacked[label].add(column)
        sizes = sizes_of_pool(lambda place: np.array([each.at(place) for each in lacked.values()]), clients, images)
        return lambda part: np.minimum(policy.lacking(part), sizes)
    return _evenly(parts, policy, _samples_in_parts(policy.budget, parts))


def _samples_in_parts(budget: Budget, parts: ReadParts) -> int:
    """The samples to spend; a policy that the budget matches is local, so its totals add up."""
    if isinstance(budget, Policy):
        return sum(budget.allocate(part).total for part in parts())
    return int(budget)


def _evenly(parts: ReadParts, policy: Spread, total: int) -> Placer:
    pairs, before = sum(int(policy.receives(part.n).sum()) for part in parts()), 0
    if total and not pairs:
        raise no_absent_class(total)

    def place(part: LabelCounts) -> IntArray:
        nonlocal before
        receiving = policy.receives(part.n)
        here = int(receiving.sum())
        samples = np.zeros_like(part.n)
        samples[receiving] = spread_evenly(total, pairs, before, here)
        before += here
        return samples

    return place


def _by_size(parts: ReadParts, total: int) -> Placer:
    real = sum(part.total for part in parts())
    rest = total - sum(int(shares_by_size(part.sizes, total, real).sum()) for part in parts())

    def place(part: LabelCounts) -> IntArray:
        nonlocal rest
        shares = shares_by_size(part.sizes, total, real)
        shares[:rest] += 1
        rest = max(rest - part.num_clients, 0)
        return over_classes(shares, part.num_classes)

    return place


class FallingNumbers:
    """Many whole numbers, most of which occur often, in falling order; kept as distinct numbers with their counts.

    >>> numbers = FallingNumbers()
    >>> numbers.add(np.array([2, 5])), numbers.add(np.array([3, 2]))
    (None, None)
    >>> [numbers.at(place) for place in range(4)]
    [5, 3, 2, 2]
    """

    def __init__(self) -> None:
        self.rising = self.times = np.empty(0, dtype=np.int64)

    def add(self, numbers: IntArray) -> None:
        """Put more numbers in."""
        new, new_times = np.unique(numbers, return_counts=True)
        self.rising, places = np.unique(np.concatenate([self.rising, new]), return_inverse=True)
        self.times = np.bincount(places, np.concatenate([self.times, new_times])).astype(np.int64)

    def at(self, place: int) -> int:
        """The number at a place, counted from 0."""
        up_to = np.cumsum(self.times[::-1])
        return int(self.rising[::-1][np.searchsorted(up_to, place, "right")])
