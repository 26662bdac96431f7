"""Plan one budget for a fleet whose table does not fit into memory, in several passes.

Greedy, Optimal and KL take the samples whose gain is above one price for all clients. The price is found by
reading the table several times; other policies need less (`fedeas.planning.spreading`). A last pass writes the
allocation. It is the one that the policy gives for the table in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from fedeas.core.arrays import BoolArray, FloatArray, IntArray, frozen
from fedeas.core.errors import PolicyError
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.fleet import Exceptions, Placer, TableSurvey, leave_few_open, open_clients, plan_whole
from fedeas.planning.passes import CLOSE, Passes, ReadParts, Rounding, Tried
from fedeas.planning.policies import KL, BySize, Greedy, Optimal, Policy, Pool
from fedeas.planning.policies.baselines import Spread
from fedeas.planning.policies.greedy import SAFE_MARGIN, by_falling_gain, next_gain
from fedeas.planning.policies.kl import DivergenceCurves, spend
from fedeas.planning.policies.optimal import change_by, is_small, on_hulls
from fedeas.planning.policies.prices import FINE, bisect_price, fine_total
from fedeas.planning.policies.waterfill import Waterfill, check_searchable
from fedeas.planning.spreading import spread
from fedeas.planning.tables import Chunk, CountTable

PART_CELLS = 2**18
IN_PASSES = Greedy, Optimal, KL, Spread, BySize, Pool


def can_stream(policy: Policy) -> bool:
    """Whether a table can be planned in passes: the policy is one of these, and its budget needs no other clients."""
    if not isinstance(policy, IN_PASSES):
        return False
    budget = policy.distinct if isinstance(policy, Pool) else policy.budget
    return not isinstance(budget, Policy) or budget.is_local


def plan_in_passes(table: CountTable, policy: Policy) -> Iterator[tuple[Chunk, Allocation]]:
    """The parts of a table with their allocations, which together are those of the whole table."""
    place = placement(lambda: (chunk.counts for chunk in table.chunks(PART_CELLS, named=False)), policy)
    for chunk in table.chunks(PART_CELLS):
        yield chunk, Allocation(frozen(place(chunk.counts)), policy.spec)


def placement(parts: ReadParts, policy: Policy) -> Placer:
    """Read the parts as often as it takes to know how to place the budget."""
    if not can_stream(policy):
        raise PolicyError(f"{policy.spec} needs all clients at once; read the table whole")
    if isinstance(policy, Spread | BySize | Pool):
        return spread(parts, policy)
    assert isinstance(policy, Greedy | Optimal | KL)
    fleet = TableSurvey.of(parts, policy.budget)
    check_searchable(fleet.total)
    if isinstance(policy, Optimal) and is_small(fleet.clients, fleet.total):
        return plan_whole(parts, policy)
    if isinstance(policy, Greedy):
        return _greedy(parts, fleet)
    return _optimal(parts, fleet) if isinstance(policy, Optimal) else _kl(parts, fleet, policy)


def _kl(parts: ReadParts, fleet: TableSurvey, policy: KL) -> Placer:
    """Real numbers at one price, rounded."""

    def curves_of(part: LabelCounts) -> DivergenceCurves:
        return DivergenceCurves(part.n, part.sizes / fleet.samples, policy.smoothing)

    passes = Passes(parts, curves_of, lambda curves, price: fine_total(curves.samples_at(price)))
    highest, matched = 0.0, 0
    for curves in passes.curves():
        highest, matched = max(highest, curves.highest_price), matched + fine_total(curves.matched())
    surplus = fleet.total - matched / FINE
    price = None if surplus >= 0 else _kl_price(passes, fleet, highest, matched)

    def samples_of(curves: DivergenceCurves) -> FloatArray:
        return curves.matched(surplus / fleet.clients) if price is None else curves.samples_at(price)

    rounding = Rounding(lambda: map(samples_of, passes.curves()), fleet.total)
    return lambda part: rounding.next_part(samples_of(curves_of(part)))


def _kl_price(passes: Passes[DivergenceCurves], fleet: TableSurvey, highest: float, matched: int) -> float:
    total = fleet.total * FINE
    _, guess = spend(passes.curves_of(fleet.some), fleet.some.num_clients, fleet.sampled_total)
    ends = Tried(0.0, matched), Tried(highest, 0)
    low, high = passes.enclose(total, ends, guess, lambda low, high: False)
    return passes.bisect(total, highest, low.price, high.price).enough


@dataclass
class Filling:
    """Place the next part: each client takes what `usual` says, except some, given by row and number of samples."""

    fleet: TableSurvey
    usual: Callable[[Waterfill], IntArray]
    exceptions: Exceptions

    def samples_of(self, curves: Waterfill) -> IntArray:
        """The samples of each client of the next part."""
        return self.exceptions.put_into(self.usual(curves))

    def __call__(self, part: LabelCounts) -> IntArray:
        """The allocation of the next part."""
        curves = self.fleet.waterfill(part)
        return curves.fill(self.samples_of(curves))


def _outline(passes: Passes[Waterfill]) -> tuple[float, int]:
    """A price at which nobody takes a sample, and the samples that balance everybody."""
    highest, demand = 0.0, 0
    for curves in passes.curves():
        highest, demand = max(highest, 2 * curves.highest_gain), demand + int(curves.demand.sum())
    return highest, demand


def _prices_around(passes: Passes[Waterfill], fleet: TableSurvey, highest: float, demand: int) -> tuple[float, float]:
    """Two prices between which few samples are taken."""
    some = fleet.waterfill(fleet.some)
    guess = bisect_price(lambda at: passes.taken(some, at.middle) <= fleet.sampled_total, highest).enough
    ends = Tried(0.0, demand), Tried(highest, 0)
    low, high = passes.enclose(fleet.total, ends, guess, leave_few_open)
    return low.price, high.price


def _greedy(parts: ReadParts, fleet: TableSurvey) -> Placer:
    """All samples above a price; the clients near it are settled in memory."""
    passes = Passes(parts, fleet.waterfill, lambda curves, price: int(curves.taken_above(price).sum()))
    highest, demand = _outline(passes)
    if fleet.total >= demand:  # all gains are equal from here on: ties go to the lowest client
        first = next(passes.curves()).demand[:1]
        return Filling(fleet, attrgetter("demand"), Exceptions(np.array([0]), first + fleet.total - demand))
    low, high = _prices_around(passes, fleet, highest, demand)
    low, high = low * (1 - SAFE_MARGIN), high * (1 + SAFE_MARGIN)

    def split(curves: Waterfill) -> tuple[IntArray, BoolArray]:
        samples = curves.taken_above(high)
        return samples, next_gain(curves, samples) >= low

    left = open_clients(passes, split)
    exact = by_falling_gain(fleet.waterfill(left.counts), fleet.total - left.settled)
    return Filling(fleet, lambda curves: curves.taken_above(high), Exceptions(left.rows, exact))


def _optimal(parts: ReadParts, fleet: TableSurvey) -> Placer:
    """The best samples at a price; the clients near it are settled in memory, the last few samples in a pass."""
    passes = Passes(parts, fleet.waterfill, lambda curves, price: int(curves.best_at(price).sum()))
    highest, demand = _outline(passes)
    if fleet.total >= demand:
        nobody = Exceptions(*np.empty((2, 0), dtype=np.int64))
        return _with_rest(passes, Filling(fleet, attrgetter("demand"), nobody), fleet.total - demand)
    low, high = _prices_around(passes, fleet, highest, demand)
    low, high = low * (1 - CLOSE), high * (1 + CLOSE)

    def split(curves: Waterfill) -> tuple[IntArray, BoolArray]:
        samples, more = curves.best_at(high), curves.best_at(low) if low > 0 else curves.demand
        return samples, samples != more

    left = open_clients(passes, split)
    chosen, _ = on_hulls(fleet.waterfill(left.counts), fleet.total - left.settled, highest)
    filling = Filling(fleet, lambda curves: curves.best_at(high), Exceptions(left.rows, chosen))
    return _with_rest(passes, filling, fleet.total - left.settled - int(chosen.sum()))


def _with_rest(passes: Passes[Waterfill], filling: Filling, rest: int) -> Placer:
    """Give the rest to the one client whose value it lowers most (or raises least)."""
    least, row, samples, first_row = np.inf, 0, 0, 0
    for curves in passes.curves():
        taken = filling.samples_of(curves)
        change = change_by(curves, taken, rest)
        best = int(change.argmin())
        if change[best] < least:
            least, row, samples = float(change[best]), first_row + best, int(taken[best])
        first_row += curves.counts.num_clients
    others = filling.exceptions.rows != row
    rows, numbers = filling.exceptions.rows[others], filling.exceptions.samples[others]
    place = int(np.searchsorted(rows, row))
    exceptions = Exceptions(np.insert(rows, place, row), np.insert(numbers, place, samples + rest))
    return Filling(filling.fleet, filling.usual, exceptions)
