"""Greedy towards any shares for a fleet whose table does not fit into memory.

Towards such shares gains do not always fall, and no formula tells what a client has taken at a price: its samples have
to be placed one after the other. Still, before the first sample that is worth a price or less is placed, every client
goes on until its own next sample is worth no more than the price. So clients can be taken through their samples apart
from each other, and one price for all tells where each of them stops. The last samples are placed in memory.
"""

from __future__ import annotations

from fedeas.core.arrays import IntArray
from fedeas.planning.counts import LabelCounts
from fedeas.planning.fleet import Exceptions, Fleet, Parts, Passes, Place, leave_few_open, open_clients, plan_whole
from fedeas.planning.passes import Tried, enclose
from fedeas.planning.policies import Greedy
from fedeas.planning.policies.greedy import one_by_one
from fedeas.planning.policies.stepping import LEAST, Steps
from fedeas.planning.policies.targets import shares_towards


def place_stepwise(parts: Parts, fleet: Fleet, policy: Greedy) -> Place:
    """Read the parts until the price is known; the clients near it are settled in memory."""
    shares = shares_towards(policy.target, fleet.held)

    def steps_of(part: LabelCounts) -> Steps:
        return Steps(part, part.sizes / fleet.samples, shares)

    passes = Passes(parts, steps_of, lambda steps, price: steps.take_above(price, fleet.total))
    highest = max(float(steps.gains.max()) for steps in passes.curves())
    least = LEAST * highest
    guess = steps_of(fleet.some).spend(fleet.sampled_total, least)
    if guess <= least:
        return plan_whole(parts, policy)
    # That more than the budget is taken at the lowest price is not known yet, so no search may end there.
    ends = Tried(least, fleet.total + 1), Tried(highest, 0)
    low, high = enclose(
        passes.taken_at, fleet.total, ends, guess, lambda low, high: low.price > least and leave_few_open(low, high)
    )
    if low.price == least:
        return plan_whole(parts, policy)
    return _settle(passes, fleet.total, low.price, high.price)


def _settle(passes: Passes[Steps], total: int, low: float, high: float) -> Place:
    """Stop clients at the high price; those that the low one would take further are settled in memory."""

    def taken(steps: Steps) -> IntArray:
        steps.take_above(high, total)
        return steps.samples

    left = open_clients(passes, lambda steps: (taken(steps).sum(axis=1), steps.gains > low))
    steps = passes.curves_of(left.counts)
    before = taken(steps)
    rest = total - left.settled - steps.taken
    last = before + one_by_one(left.counts, steps.shares, rest, before, weights=steps.weights)
    exceptions = Exceptions(left.rows, last)
    return lambda part: exceptions.put_into(taken(passes.curves_of(part)))
