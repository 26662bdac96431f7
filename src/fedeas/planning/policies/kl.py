"""The allocation of B samples that brings each client's labels closest to equal shares, by Kullback-Leibler divergence.

Notation, for a client with smoothed counts a_c = n_c + s of C classes that sum to A. With m_c samples added, M in all,
its divergence is, up to a constant,

    f(m) = log(A + M) - (1 / C) sum_c log(a_c + m_c).

For a given M the best m raises the smallest classes to one level a_c + m_c = y / C. As a function of M alone f is then
convex: with T the share j / C of the j raised classes, f'' = 1 / (T y^2) - 1 / (A + M)^2, and y is at most A + M until
the client is balanced. So one price for all clients finds the best allocation of real numbers, and the value that these
reach is a lower bound for whole numbers.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedeas.core.arrays import FloatArray, IntArray
from fedeas.core.spec import Positive
from fedeas.planning.counts import Allocation, CertifiedAllocation, LabelCounts
from fedeas.planning.policies.base import Budgeted, Placer, ReadParts
from fedeas.planning.policies.prices import FINE, Fleet, Passes, Rounding, bisect_price, fine_total, searchable_budget

MOST = 10**13
"""The most samples of a budget: real numbers of more would not be exact to a sample."""


@dataclass(frozen=True)
class KL(Budgeted):
    """Minimise sum_k p_k KL(u || q_k), u the equal shares, over allocations of exactly `budget` samples.

    KL counts a missing class much more than an unequal one: a model that has not seen a class pays without limit.
    The result is a `CertifiedAllocation`, whose ``gap`` bounds how much better, in this sum, an allocation can be.

    Args:
        smoothing: samples that are added to each class before shares are compared, so that no divergence is infinite.

    >>> KL(budget=4).allocate(LabelCounts([[6, 1, 1], [2, 2, 1]])).n
    array([[0, 2, 2],
           [0, 0, 0]])
    """

    smoothing: Positive = 1.0
    description = (
        "Brings every client's labels closest to equal shares; missing classes first. Needs the counts of all clients."
    )

    def allocate(self, counts: LabelCounts) -> CertifiedAllocation:
        """Find the price at which the budget is spent, and round."""
        total = searchable_budget(self.budget, [counts], MOST)
        curves = DivergenceCurves(counts.n, counts.weights, self.smoothing)
        wanted, price = spend(curves, total)
        rounded = Rounding(lambda: iter([wanted]), total).next_part(wanted)
        bound = curves.value(wanted) + price * (float(wanted.sum()) - total)
        gap = max(curves.value(rounded) - bound, 0.0)
        return CertifiedAllocation(rounded, self.spec, gap, "the divergence")

    def in_parts(self, parts: ReadParts) -> Placer:
        """The same for a table that does not fit into memory."""
        fleet = Fleet(parts, searchable_budget(self.budget, parts(), MOST))

        def curves_of(part: LabelCounts) -> DivergenceCurves:
            return DivergenceCurves(part.n, part.sizes / fleet.samples, self.smoothing)

        passes = Passes(parts, curves_of, lambda curves, price: fine_total(curves.samples_at(price)))
        highest, matched, price = 0.0, 0, 0.0
        for curves in passes.curves():
            highest, matched = max(highest, curves.highest_price), matched + fine_total(curves.matched())
        surplus, total = fleet.total - matched / FINE, fleet.total * FINE
        if surplus < 0:
            _, guess = spend(curves_of(fleet.some), fleet.sampled_total)
            price = passes.bisect(total, highest, *passes.enclose(total, matched, highest, guess, apart=-1))

        def samples_of(curves: DivergenceCurves) -> FloatArray:
            return curves.samples_at(price) if surplus < 0 else curves.matched(surplus / fleet.clients)

        rounding = Rounding(lambda: map(samples_of, passes.curves()), fleet.total)
        return lambda part: rounding.next_part(samples_of(curves_of(part)))

    def divergence(self, counts: LabelCounts, allocation: Allocation | None = None) -> float:
        """The sum over clients of p_k KL(u || q_k), with smoothed shares, that the policy minimises."""
        smoothed = (counts.n if allocation is None else counts.plus(allocation).n) + self.smoothing
        given = smoothed / smoothed.sum(axis=1, keepdims=True)
        return float(counts.weights @ -np.log(counts.num_classes * given).mean(axis=1))


class DivergenceCurves:
    """How each client's divergence falls with the samples it gets; classes are ordered by how much they lack."""

    def __init__(self, n: IntArray, weights: FloatArray, smoothing: float) -> None:
        self.weights, self.share = weights, 1 / n.shape[1]
        self.have = n + smoothing
        rising = np.sort(self.have, axis=1)
        sums = np.cumsum(rising, axis=1)
        self.levels, self.untouched = rising / self.share, sums[:, -1:] - sums
        self.raised_shares = np.cumsum(np.full(n.shape[1], self.share))

    def value(self, samples: FloatArray | IntArray) -> float:
        """The weighted sum of f over clients."""
        after = self.have + samples
        return float(self.weights @ (np.log(after.sum(axis=1)) - np.log(after).mean(axis=1)))

    def at_level(self, level: FloatArray) -> FloatArray:
        """The samples that raise each client's classes to its level."""
        samples: FloatArray = np.maximum(self.share * level[:, None] - self.have, 0.0)
        return samples

    def samples_at(self, price: float) -> FloatArray:
        """The samples whose gain is above the price: up to the level y at which 1/y - 1/(T y + R) = price / p_k."""
        own = price / self.weights
        gains = self._stage_gains > own[:, None]
        stage = np.maximum(gains.sum(axis=1), 1) - 1
        clients = np.arange(len(stage))
        share, rest, first = self.raised_shares[stage], self.untouched[clients, stage], self.levels[clients, stage]
        linear = 1 - share + own * rest
        level = 2 * rest / (linear + np.sqrt(linear**2 + 4 * own * share * rest))
        return self.at_level(np.maximum(level, first))

    def matched(self, more: float = 0.0) -> FloatArray:
        """The samples that balance every client, and about `more` for each beyond."""
        return self.at_level(self.levels[:, -1] + more)

    @property
    def highest_price(self) -> float:
        """The gain of the first sample of the client to which it is worth most."""
        return float((self._stage_gains[:, 0] * self.weights).max())

    @cached_property
    def _stage_gains(self) -> FloatArray:
        """Gain per sample, without the client's weight, where each class joins the raised ones; falls to 0."""
        gains: FloatArray = 1 / self.levels - 1 / (self.raised_shares * self.levels + self.untouched)
        return gains


def spend(curves: DivergenceCurves, total: int) -> tuple[FloatArray, float]:
    """The best samples, as real numbers that sum to `total`, and the price of the last one."""
    surplus = total - fine_total(curves.matched()) / FINE
    if surplus >= 0:  # all clients are balanced; from there on they grow and stay so
        return curves.matched(surplus / len(curves.have)), 0.0
    price = bisect_price(lambda price: fine_total(curves.samples_at(price)) <= total * FINE, curves.highest_price)
    return curves.samples_at(price.enough), price.enough
