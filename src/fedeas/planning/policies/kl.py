"""The allocation of B samples that brings each client's labels closest to a target, by Kullback-Leibler divergence.

Notation, for a client with smoothed counts a_c = n_c + s that sum to A, and shares t_c of the target. With m_c samples
added, M in all, its divergence is, up to a constant,

    f(m) = log(A + M) - sum_c t_c log(a_c + m_c).

For a given M the best m raises the classes that lack most to one level y, a_c + m_c = t_c y. As a function of M alone f
is then convex: with T the target's share of the raised classes, f'' = 1 / (T y^2) - 1 / (A + M)^2, and y is at most
A + M until the client matches the target. So one price for all clients finds the best allocation of real numbers, and
the value that these reach is a lower bound for whole numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from fedeas.core.arrays import FloatArray, IntArray
from fedeas.core.limits import Positive
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies.base import samples_in
from fedeas.planning.policies.baselines import Budgeted
from fedeas.planning.policies.optimal import CertifiedAllocation
from fedeas.planning.policies.prices import round_to, spend
from fedeas.planning.policies.targets import Target, target_shares
from fedeas.planning.policies.waterfill import check_searchable


@dataclass(frozen=True)
class KL(Budgeted):
    """Minimise sum_k p_k KL(target || q_k) over allocations of exactly `budget` samples.

    KL counts a missing class much more than an unequal one: a model that has not seen a class pays without limit.
    The result is a `CertifiedAllocation`, whose ``gap`` bounds how much better, in this sum, an allocation can be.

    Args:
        target: the shares that each client should have: equal ones (``uniform``), or those of all real samples
            together (``global``), which leaves a long tail as it is.
        smoothing: samples that are added to each class before shares are compared, so that no divergence is infinite.

    >>> KL(budget=4).allocate(LabelCounts([[6, 1, 1], [2, 2, 1]])).n
    array([[0, 2, 2],
           [0, 0, 0]])
    """

    target: Target = "uniform"
    smoothing: Positive = 1.0
    description: ClassVar[str] = (
        "Brings every client's labels closest to a target; missing classes first. Needs the counts of all clients."
    )

    def allocate(self, counts: LabelCounts) -> CertifiedAllocation:
        """Find the price at which the budget is spent, and round."""
        total = samples_in(self.budget, counts)
        check_searchable(total)
        curves = DivergenceCurves(counts.n, counts.weights, target_shares(counts, self.target), self.smoothing)
        wanted, price = spend(curves, counts.num_clients, total)
        rounded = round_to(wanted, total)
        bound = curves.value(wanted) + price * (float(wanted.sum()) - total)
        gap = max(curves.value(rounded) - bound, 0.0)
        return CertifiedAllocation(rounded, self.spec, gap, "the divergence")

    def divergence(self, counts: LabelCounts, allocation: Allocation | None = None) -> float:
        """The sum over clients of p_k KL(target || q_k), with smoothed shares, that the policy minimises."""
        shares = target_shares(counts, self.target)
        smoothed = (counts.n if allocation is None else counts.plus(allocation).n) + self.smoothing
        given = smoothed / smoothed.sum(axis=1, keepdims=True)
        return float(counts.weights @ (shares * np.log(shares / given)).sum(axis=1))


class DivergenceCurves:
    """How each client's divergence falls with the samples it gets; classes are ordered by how much they lack."""

    def __init__(self, n: IntArray, weights: FloatArray, shares: FloatArray, smoothing: float) -> None:
        self.weights, self.shares = weights, shares
        self.have = n + smoothing
        self.levels = np.sort(self.have / shares, axis=1)
        order = np.argsort(self.have / shares, axis=1, kind="stable")
        self.raised_shares = np.cumsum(shares[order], axis=1)
        sums = np.cumsum(np.take_along_axis(self.have, order, axis=1), axis=1)
        self.untouched = sums[:, -1:] - sums

    def value(self, samples: FloatArray | IntArray) -> float:
        """The weighted sum of f over clients."""
        after = self.have + samples
        return float(self.weights @ (np.log(after.sum(axis=1)) - np.log(after) @ self.shares))

    def at_level(self, level: FloatArray) -> FloatArray:
        """The samples that raise each client's classes to its level."""
        return np.maximum(self.shares * level[:, None] - self.have, 0.0)

    def level_at(self, price: float) -> FloatArray:
        """The level up to which each client's samples are worth the price: 1/y - 1/(T y + R) = price / p_k."""
        own = price / self.weights
        gains = self._stage_gains > own[:, None]
        stage = np.maximum(gains.sum(axis=1), 1)[:, None] - 1
        share, rest, first = (
            np.take_along_axis(table, stage, axis=1)[:, 0]
            for table in (self.raised_shares, self.untouched, self.levels)
        )
        linear = 1 - share + own * rest
        level = 2 * rest / (linear + np.sqrt(linear**2 + 4 * own * share * rest))
        return np.asarray(np.maximum(level, first))

    def matched(self, more: float = 0.0) -> FloatArray:
        """The samples with which every client matches the target, and about `more` for each beyond."""
        return self.at_level(self.levels[:, -1] + more)

    def fill(self, samples: IntArray) -> IntArray:
        """The allocation for whole numbers of samples: these."""
        return samples

    @property
    def highest_price(self) -> float:
        """The gain of the first sample of the client to which it is worth most."""
        return float((self._stage_gains[:, 0] * self.weights).max())

    def samples_at(self, price: float) -> FloatArray:
        """The samples whose gain is above the price."""
        return self.at_level(self.level_at(price))

    @cached_property
    def _stage_gains(self) -> FloatArray:
        """Gain per sample, without the client's weight, where each class joins the raised ones; falls to 0."""
        return np.asarray(1 / self.levels - 1 / (self.raised_shares * self.levels + self.untouched))
