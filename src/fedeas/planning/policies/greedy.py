"""The paper's greedy reference of Fig. 2(b): place one sample at a time where the gain is largest."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fedeas.core.arrays import FloatArray, IntArray
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies.base import Budgeted, Placer, ReadParts
from fedeas.planning.policies.prices import Fleet, bisect_price, searchable_budget
from fedeas.planning.policies.waterfill import Waterfill, filled, spend_by_gain

# Prices closer than this (relatively) are compared exactly; float gains have errors of about 1e-15.
SAFE_MARGIN = 1e-9


@dataclass(frozen=True)
class Greedy(Budgeted):
    """Place each sample at the pair of largest gain, Eq. (gain), with N_k and q_k updated and p_k kept.

    Ties go to the lowest client, then the lowest class, and are decided exactly. The result equals that of a loop over
    samples, without the loop: the largest gain always belongs to some client's smallest class, so it is enough to
    know how many samples each client takes. All samples above a price are taken together, and the price is bisected
    until nearly the whole budget is spent. Only the last few samples, those within rounding error of the final price,
    are placed one by one with rational numbers.

    >>> Greedy(budget=4).allocate(LabelCounts([[6, 1, 1], [2, 2, 1]])).n
    array([[0, 2, 2],
           [0, 0, 0]])
    """

    description = "One image after the other where it helps most. Needs the counts of all clients."

    def allocate(self, counts: LabelCounts) -> Allocation:
        """Spend the budget by falling gain."""
        total = searchable_budget(self.budget, [counts])
        curves = Waterfill(counts)
        surplus = total - int(curves.demand.sum())
        if surplus >= 0:
            samples = curves.demand.copy()
            samples[0] += surplus  # all gains are equal from here on: ties go to the lowest client
        else:
            samples = by_falling_gain(curves, total)
        return Allocation(curves.fill(samples), self.spec)

    def in_parts(self, parts: ReadParts) -> Placer:
        """The same for a table that does not fit into memory."""
        samples, rest = spend_by_gain(
            parts,
            Fleet(parts, searchable_budget(self.budget, parts())),
            Waterfill.taken_above,
            lambda near, total, _: by_falling_gain(near, total),
            lambda curves, samples, low: next_gain(curves, samples) >= low,
            SAFE_MARGIN,
        )
        samples[0] += rest
        return filled(samples)


def by_falling_gain(curves: Waterfill, total: int) -> IntArray:
    """The samples of each client if `total` are placed one after the other; fewer than balance all clients."""
    highest = curves.highest_gain * (1 + SAFE_MARGIN)
    too_low, enough = bisect_price(
        lambda price: curves.taken_above(price).sum() <= total, highest, apart=SAFE_MARGIN / 10
    )
    samples = curves.taken_above(enough * (1 + SAFE_MARGIN))
    contenders = np.flatnonzero(next_gain(curves, samples) >= too_low * (1 - SAFE_MARGIN))
    rows = {k: curves.sorted[k].tolist() for k in contenders.tolist()}
    heap = [(-_exact_gain(row, int(samples[k])), k) for k, row in rows.items()]
    heapq.heapify(heap)
    for _ in range(total - int(samples.sum())):
        k = heap[0][1]
        samples[k] += 1
        heapq.heapreplace(heap, (-_exact_gain(rows[k], int(samples[k])), k))
    return samples


def next_gain(curves: Waterfill, samples: IntArray) -> FloatArray:
    """The gain of each client's next sample after `samples[k]`."""
    at = curves.round_after(samples)
    return curves.gain(at.stage, at.level, samples[:, None] - at.start)[:, 0]


def _exact_gain(row: list[int], samples: int) -> Fraction:
    """N (||n||^2 - L M) / M^3 of the next sample of a client with these sorted counts, as a rational number."""
    low = stage = 0
    for stage, count in enumerate(row, start=1):
        low += count
        if stage == len(row) or samples < stage * row[stage] - low:
            break
    level, odd = divmod(low + samples, stage)
    squares = sum(count**2 for count in row[stage:]) + stage * level**2 + odd * (2 * level + 1)
    size = sum(row)
    return Fraction(size * (squares - level * (size + samples)), (size + samples) ** 3)
