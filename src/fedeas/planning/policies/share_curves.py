"""A client's best use of t samples towards any shares of classes, and the best numbers t_k for a whole fleet.

Notation, for a client with counts a_c that sum to A, and shares t_c of the target. With m_c samples added, S samples in
all, it is ||(a + m) / S - t||^2 away. For a given S the best m raises the classes with the smallest a_c - t_c S to one
level. A class that has been raised stays so as S grows. While j classes are raised, let R, T, Q and X be the sums of
a_c, t_c, a_c^2 and a_c t_c over the others; the distance is then a quadratic function of 1/S whose derivative by S is

    -2 ((R^2 / j + Q) / S^3 - (R T / j + X) / S^2).

The distance is convex in S until the client matches the target. So one price for all clients finds the best allocation
of real numbers, and the value that these reach is a lower bound for whole numbers.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from fedeas.core.arrays import FloatArray, IntArray
from fedeas.planning.counts import LabelCounts
from fedeas.planning.policies.waterfill import cubic_root


class Stages(NamedTuple):
    """For each client and number of raised classes: the size S at which it is reached, and the derivative's factors."""

    start: FloatArray
    cubic: FloatArray
    square: FloatArray


class ShareCurves:
    """The curves of all clients towards the shares of a target."""

    def __init__(self, counts: LabelCounts, shares: FloatArray) -> None:
        self.counts, self.shares = counts, shares
        self.sizes = counts.sizes.astype(np.float64)

    def fill(self, samples: IntArray) -> IntArray:
        """The best allocation in which client k gets `samples[k]` samples; ties go to the first classes."""
        size = (self.counts.sizes + samples).astype(np.float64)[:, None]
        apart = self.counts.n - self.shares * size
        raised = np.maximum(raised_level(apart, samples)[:, None] - apart, 0.0)
        whole = np.floor(np.maximum(raised - 1e-14 * size, 0.0)).astype(np.int64)  # rounding errors never round up
        each, rest = np.divmod(samples - whole.sum(axis=1), self.counts.num_classes)
        rank = np.argsort(np.argsort(apart + whole, axis=1, kind="stable"), axis=1)
        return np.asarray(whole + each[:, None] + (rank < rest[:, None]))

    def value(self, samples: IntArray) -> FloatArray:
        """N_k ||q_k - t||^2 of each client after its best use of `samples[k]` samples."""
        size = (self.counts.sizes + samples).astype(np.float64)[:, None]
        return self._weighted((self.counts.n + self.fill(samples)) / size)

    def relaxed_value(self, samples: FloatArray) -> FloatArray:
        """The same for real numbers of samples, which need not be whole for any class."""
        size = (self.sizes + samples)[:, None]
        apart = self.counts.n - self.shares * size
        raised = np.maximum(raised_level(apart, samples)[:, None] - apart, 0.0)
        return self._weighted((self.counts.n + raised) / size)

    def matched(self, more: float = 0.0) -> FloatArray:
        """The samples with which every client matches the target, and `more` for each beyond."""
        return np.asarray(self.stages.start[:, -1] - self.sizes + more)

    @property
    def highest_price(self) -> float:
        """The gain of the first sample of the client to which it is worth most."""
        return float(self._stage_gains[:, 0].max())

    def samples_at(self, price: float) -> FloatArray:
        """The samples, as real numbers, whose gain at each client is above the price."""
        stage = np.maximum((self._stage_gains > price).sum(axis=1), 1)[:, None] - 1
        start, cubic, square = (np.take_along_axis(table, stage, axis=1)[:, 0] for table in self.stages)
        own = price / (2 * self.sizes)
        with np.errstate(invalid="ignore"):  # matched clients have no root, and keep the start of their last stage
            size = np.maximum(cubic_root(square / own, -cubic / own), start)
        return np.asarray(np.where(cubic > 0, size, start) - self.sizes)

    @cached_property
    def stages(self) -> Stages:
        """Where the curves change, one stage for each further class that is raised."""
        n, classes = self.counts.n, self.counts.num_classes
        left = np.ones(n.shape, dtype=bool)
        rest, share = self.counts.sizes.copy(), np.ones(len(n))
        start, order = np.empty(n.shape), np.empty(n.shape, dtype=np.int64)
        chosen, size = (n - self.shares * self.sizes[:, None]).argmin(axis=1), self.sizes
        rows = np.arange(len(n))
        for raised in range(1, classes + 1):
            start[:, raised - 1], order[:, raised - 1] = size, chosen
            left[rows, chosen] = False
            rest -= n[rows, chosen]
            share = np.maximum(share - self.shares[chosen], 0.0)
            if raised < classes:
                joins = (n * raised + rest[:, None]) / (self.shares * raised + share[:, None])
                joins[~left] = np.inf
                chosen = joins.argmin(axis=1)
                size = np.maximum(joins[rows, chosen], size)
        return self._factors(start, order)

    def _factors(self, start: FloatArray, order: IntArray) -> Stages:
        have = np.take_along_axis(self.counts.n, order, axis=1).astype(np.float64)
        share, raised = self.shares[order], np.arange(1, have.shape[1] + 1)
        rest, shares, squares, cross = map(_sums_after, (have, share, have**2, have * share))
        return Stages(start, rest**2 / raised + squares, rest * shares / raised + cross)

    @cached_property
    def _stage_gains(self) -> FloatArray:
        """Gain of the first sample of each stage, falling from left to right and 0 in the last."""
        start, cubic, square = self.stages
        return np.asarray(2 * self.sizes[:, None] * (cubic / start - square) / start**2)

    def _weighted(self, after: FloatArray) -> FloatArray:
        return np.asarray(self.sizes * ((after - self.shares) ** 2).sum(axis=1))


def raised_level(apart: FloatArray, samples: FloatArray | IntArray) -> FloatArray:
    """The level to which the smallest entries of each row are raised by `samples` in all.

    >>> raised_level(np.array([[0.0, 1.0, 9.0]]), np.array([3]))
    array([2.])
    """
    rising = np.sort(apart, axis=1)
    levels = (np.cumsum(rising, axis=1) + samples[:, None]) / np.arange(1, apart.shape[1] + 1)
    raised = np.maximum((levels > rising).sum(axis=1), 1)
    return np.asarray(np.take_along_axis(levels, raised[:, None] - 1, axis=1)[:, 0])


def _sums_after(table: FloatArray) -> FloatArray:
    """For each column the sum of the columns after it."""
    sums = np.zeros_like(table)
    sums[:, :-1] = np.cumsum(table[:, :0:-1], axis=1)[:, ::-1]
    return sums
