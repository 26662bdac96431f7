"""Greedy towards any shares for a fleet whose table does not fit into memory.

Towards such shares gains do not always fall, and no formula tells what a client has taken at a price: its samples have
to be placed one after the other. Still, before the first sample that is worth a price or less is placed, every client
goes on until its own next sample is worth no more than the price. So clients can be taken through their samples apart
from each other, and one price for all tells where each of them stops. The last samples are placed in memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedeas.core.arrays import FloatArray, IntArray
from fedeas.planning.counts import LabelCounts
from fedeas.planning.fleet import Fleet, Open, Parts, Passes, Place, leave_few_open, plan_whole
from fedeas.planning.passes import Tried, enclose
from fedeas.planning.policies import Greedy
from fedeas.planning.policies.greedy import one_by_one
from fedeas.planning.policies.stepping import LEAST, Steps
from fedeas.planning.policies.targets import shares_towards


def place_stepwise(parts: Parts, fleet: Fleet, policy: Greedy) -> Place:
    """Read the parts until the price is known; the clients near it are settled in memory."""
    step = Stepper(fleet, shares_towards(policy.target, fleet.held))
    passes = Passes(parts, step.steps, lambda steps, price: steps.take_above(price, fleet.total))
    highest = max(float(steps.gains.max()) for steps in passes.curves())
    least = LEAST * highest
    guess = step.steps(fleet.some).spend(fleet.sampled_total, least)
    if guess <= least:
        return plan_whole(parts, policy)
    # That more than the budget is taken at the lowest price is not known yet, so no search may end there.
    ends = Tried(least, fleet.total + 1), Tried(highest, 0)
    low, high = enclose(
        passes.taken_at, fleet.total, ends, guess, lambda low, high: low.price > least and leave_few_open(low, high)
    )
    if low.price == least:
        return plan_whole(parts, policy)
    return step.settle(passes, low.price, high.price)


@dataclass
class Stepper:
    """Takes clients of a fleet through their samples towards some shares."""

    fleet: Fleet
    shares: FloatArray

    def steps(self, part: LabelCounts) -> Steps:
        """The clients of a part, before their first sample."""
        return Steps(part, part.sizes / self.fleet.samples, self.shares)

    def settle(self, passes: Passes[Steps], low: float, high: float) -> Place:
        """Stop clients at the high price; those that the low one would take further are settled in memory."""
        left, row, limit = Open(), 0, self.fleet.total
        for steps in passes.curves():
            steps.take_above(high, limit)
            left.add(steps.counts, row, steps.samples.sum(axis=1), steps.gains > low)
            row += steps.counts.num_clients
        return self._placing(np.concatenate(left.rows), self._last(left, high), high)

    def _last(self, left: Open, high: float) -> IntArray:
        """The samples of the clients that were left open: the rest of the budget, one after the other."""
        table = left.table
        steps = self.steps(table)
        rest = self.fleet.total - left.settled - steps.take_above(high, self.fleet.total)
        return steps.samples + one_by_one(table, self.shares, rest, before=steps.samples, weights=steps.weights)

    def _placing(self, rows: IntArray, samples: IntArray, price: float) -> Place:
        """All clients stop at the price, except some, given by row, with samples of their own."""
        first_row = 0

        def place(part: LabelCounts) -> IntArray:
            nonlocal first_row
            steps, last_row = self.steps(part), first_row + part.num_clients
            steps.take_above(price, self.fleet.total)
            placed = steps.samples
            begin, end = np.searchsorted(rows, [first_row, last_row])
            placed[rows[begin:end] - first_row] = samples[begin:end]
            first_row = last_row
            return placed

        return place
