"""What FedEAS generates at any beta, without its plan: the counts of each client are sorted once.

A search for beta asks for total and imbalance at many betas. With the running sums of sorted counts, they follow from
the number of classes that each client fills.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fedeas.core.arrays import IntArray, for_row_blocks
from fedeas.planning import scores
from fedeas.planning.counts import LabelCounts
from fedeas.planning.policies import FedEAS
from fedeas.planning.policies.base import MAX_BUDGET
from fedeas.planning.policies.fedeas import MAX_LEVEL


class _Filled(NamedTuple):
    """For each client: how many classes are filled, to which level, and the samples that this takes."""

    classes: IntArray
    level: IntArray
    samples: IntArray


class BetaCurve:
    """Total and share of the imbalance removed as functions of beta; `policy.beta` is not used.

    >>> curve = BetaCurve(FedEAS(), LabelCounts([[100, 2, 0], [40, 40, 40]]))
    >>> curve.total(4.0) == FedEAS(beta=4).allocate(curve.counts).total
    True
    """

    def __init__(self, policy: FedEAS, counts: LabelCounts) -> None:
        self.policy, self.counts = policy, counts
        self._fillable = policy.fillable(counts)
        self._sorted = np.empty_like(counts.n)

        def sort(rows: slice) -> None:
            self._sorted[rows] = np.sort(counts.n[rows], axis=1)

        for_row_blocks(sort, *counts.n.shape)
        self._sums = _running_sums(self._sorted)

    def total(self, beta: float) -> int:
        """The number of samples; more than any budget if the policy refuses this beta."""
        return self._total(self._filled(beta))

    def removed(self, beta: float) -> float:
        """The share of the imbalance that is removed; 0 if all clients are balanced."""
        return self.at(beta)[1]

    def at(self, beta: float) -> tuple[int, float]:
        """Total and share removed."""
        filled = self._filled(beta)
        sizes = self.counts.sizes + filled.samples
        if self.counts.num_classes * int(sizes.max()) ** 2 >= 2**63:  # squares would not fit 64 bits
            plan = replace(self.policy, beta=beta).allocate(self.counts) if beta > 0 else None
            return self._total(filled), 0.0 if plan is None else scores.imbalance_removed(self.counts, plan)
        # I follows from sum_c (C n_c - N)^2 = C (C sum_c n_c^2 - N^2), in whole numbers.
        classes = self.counts.num_classes
        squares = self._squares[:, -1] - _taken(self._squares, filled.classes) + filled.classes * filled.level**2
        apart = classes * squares - sizes**2
        left = float((self.counts.weights * (apart / (classes * sizes.astype(np.float64) ** 2))).sum())
        return self._total(filled), 1 - left / self._initial if self._initial > 0 else 0.0

    def _filled(self, beta: float) -> _Filled:
        level = replace(self.policy, beta=beta).budgets(self.counts) if beta > 0 else np.zeros_like(self._fillable)
        classes = _count_below(self._sorted, np.minimum(level, self._fillable))
        return _Filled(classes, level, classes * level - _taken(self._sums, classes))

    def _total(self, filled: _Filled) -> int:
        if filled.samples[filled.level >= MAX_LEVEL].any() or filled.samples.sum(dtype=np.float64) > MAX_BUDGET:
            return MAX_BUDGET + 1
        return int(filled.samples.sum())

    @cached_property
    def _squares(self) -> IntArray:
        return _running_sums(self._sorted, power=2)

    @cached_property
    def _initial(self) -> float:
        return scores.imbalance(self.counts)


def _running_sums(rows: IntArray, power: int = 1) -> IntArray:
    """The sums of the first 0, 1, ... values of each row."""
    sums = np.zeros((rows.shape[0], rows.shape[1] + 1), dtype=np.int64)

    def add(part: slice) -> None:
        np.cumsum(rows[part] ** power, axis=1, out=sums[part, 1:])

    for_row_blocks(add, *rows.shape)
    return sums


def _taken(table: IntArray, columns: IntArray) -> IntArray:
    """One value of each row; several times faster than `np.take_along_axis`."""
    rows, width = table.shape
    return np.asarray(table.ravel().take(np.arange(rows) * width + columns))


def _count_below(rows: IntArray, limits: IntArray) -> IntArray:
    """How many values of each row are below its limit.

    >>> _count_below(np.array([[0, 2, 5], [1, 1, 1]]), np.array([5, 1]))
    array([2, 0])
    """
    below = np.empty(len(rows), dtype=np.int64)

    def count(part: slice) -> None:
        below[part] = np.count_nonzero(rows[part] < limits[part, None], axis=1)

    for_row_blocks(count, *rows.shape)
    return below
