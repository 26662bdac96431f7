"""Plan one budget for a fleet whose table does not fit into memory, in several passes.

Greedy, Optimal and KL take the samples whose gain is above one price for all clients. The price is found by
reading the table several times; other policies need less (`fedeas.planning.spreading`). A last pass writes the
allocation. It is the one that the policy gives for the table in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from fedeas.core.arrays import BoolArray, FloatArray, IntArray, frozen
from fedeas.core.errors import PolicyError
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.passes import CLOSE, Curves, Passes, Placer, ReadParts, Rounding, Tried
from fedeas.planning.policies import KL, BySize, Greedy, Optimal, Policy, Pool
from fedeas.planning.policies.base import Budget
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
SAMPLED_CLIENTS = 10_000
OPEN_CLIENTS = 100_000
"""The search ends when two prices differ by at most this many samples; the rest is decided in memory."""


@dataclass(frozen=True, eq=False)
class TableSurvey:
    """Facts about all clients that their curves need."""

    clients: int
    samples: int
    largest: int
    total: int
    """Samples to spend."""
    some: LabelCounts
    """About `SAMPLED_CLIENTS` clients, evenly from the whole table."""

    @staticmethod
    def of(parts: ReadParts, budget: Budget) -> TableSurvey:
        """Read the table once."""
        clients = samples = largest = matched = 0
        chosen, stride = np.empty((0, 1), dtype=np.int64), 1
        for part in parts():
            rows = part.n[-clients % stride :: stride]
            chosen = rows if not clients else np.concatenate([chosen, rows])
            while len(chosen) > 2 * SAMPLED_CLIENTS:
                chosen, stride = chosen[::2], 2 * stride
            clients, samples = clients + part.num_clients, samples + part.total
            largest = max(largest, int(part.sizes.max()))
            matched += budget.allocate(part).total if isinstance(budget, Policy) else 0
        total = matched if isinstance(budget, Policy) else int(budget)
        return TableSurvey(clients, samples, largest, total, LabelCounts(frozen(chosen.copy())))

    @property
    def sampled_total(self) -> int:
        """The part of the budget that falls to the sampled clients."""
        return self.total * self.some.num_clients // self.clients

    def waterfill(self, part: LabelCounts) -> Waterfill:
        """The curves of some clients towards equal shares."""
        return Waterfill(part, max(self.total, self.largest))


class Open(NamedTuple):
    """The clients that two prices leave open, by their rows in the table, their counts, and what all others take."""

    rows: IntArray
    counts: LabelCounts
    settled: int


def open_clients(passes: Passes[Curves], split: Callable[[Curves], tuple[IntArray, BoolArray]]) -> Open:
    """Read the table once; `split` tells what each client of a part takes, and which of them are open."""
    rows, counts, settled, first_row = [], [], 0, 0
    for part in passes.parts():
        samples, is_open = split(passes.curves_of(part))
        rows.append(first_row + np.flatnonzero(is_open))
        counts.append(part.n[is_open])
        settled += int(samples[~is_open].sum())
        first_row += part.num_clients
    return Open(np.concatenate(rows), LabelCounts(frozen(np.concatenate(counts))), settled)


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
        plan = policy.allocate(LabelCounts(np.concatenate([part.n for part in parts()]))).n
        rows = iter(plan)
        return lambda part: np.stack([*islice(rows, part.num_clients)])
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
    price: float | None = None
    if surplus < 0:
        _, guess = spend(passes.curves_of(fleet.some), fleet.some.num_clients, fleet.sampled_total)
        ends = Tried(0.0, matched), Tried(highest, 0)
        low, high = passes.enclose(fleet.total * FINE, ends, guess, lambda low, high: False)
        price = passes.bisect(fleet.total * FINE, highest, low.price, high.price).enough

    def samples_of(curves: DivergenceCurves) -> FloatArray:
        return curves.matched(surplus / fleet.clients) if price is None else curves.samples_at(price)

    rounding = Rounding(lambda: map(samples_of, passes.curves()), fleet.total)
    return lambda part: rounding.next_part(samples_of(curves_of(part)))


@dataclass
class Filling:
    """Place the next part: each client takes what `usual` says, except some, given by row and number of samples."""

    fleet: TableSurvey
    usual: Callable[[Waterfill], IntArray]
    rows: IntArray
    samples: IntArray
    first_row: int = 0

    def samples_of(self, curves: Waterfill) -> IntArray:
        """The samples of each client of the next part; parts come in order."""
        samples = self.usual(curves).copy()
        last_row = self.first_row + len(samples)
        begin, end = np.searchsorted(self.rows, [self.first_row, last_row])
        samples[self.rows[begin:end] - self.first_row] = self.samples[begin:end]
        self.first_row = last_row
        return samples

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
    low, high = passes.enclose(fleet.total, ends, guess, lambda low, high: low.taken - high.taken <= OPEN_CLIENTS)
    return low.price, high.price


def _greedy(parts: ReadParts, fleet: TableSurvey) -> Placer:
    """All samples above a price; the clients near it are settled in memory."""
    passes = Passes(parts, fleet.waterfill, lambda curves, price: int(curves.taken_above(price).sum()))
    highest, demand = _outline(passes)
    if fleet.total >= demand:  # all gains are equal from here on: ties go to the lowest client
        first = next(passes.curves()).demand[:1]
        return Filling(fleet, attrgetter("demand"), np.array([0]), first + fleet.total - demand)
    low, high = _prices_around(passes, fleet, highest, demand)
    low, high = low * (1 - SAFE_MARGIN), high * (1 + SAFE_MARGIN)

    def split(curves: Waterfill) -> tuple[IntArray, BoolArray]:
        samples = curves.taken_above(high)
        return samples, next_gain(curves, samples) >= low

    left = open_clients(passes, split)
    exact = by_falling_gain(fleet.waterfill(left.counts), fleet.total - left.settled)
    return Filling(fleet, lambda curves: curves.taken_above(high), left.rows, exact)


def _optimal(parts: ReadParts, fleet: TableSurvey) -> Placer:
    """The best samples at a price; the clients near it are settled in memory, the last few samples in a pass."""
    passes = Passes(parts, fleet.waterfill, lambda curves, price: int(curves.best_at(price).sum()))
    highest, demand = _outline(passes)
    if fleet.total >= demand:
        balanced = Filling(fleet, attrgetter("demand"), *np.empty((2, 0), dtype=np.int64))
        return _with_rest(passes, balanced, fleet.total - demand)
    low, high = _prices_around(passes, fleet, highest, demand)
    low, high = low * (1 - CLOSE), high * (1 + CLOSE)

    def split(curves: Waterfill) -> tuple[IntArray, BoolArray]:
        samples, more = curves.best_at(high), curves.best_at(low) if low > 0 else curves.demand
        return samples, samples != more

    left = open_clients(passes, split)
    chosen, _ = on_hulls(fleet.waterfill(left.counts), fleet.total - left.settled, highest)
    filling = Filling(fleet, lambda curves: curves.best_at(high), left.rows, chosen)
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
    others = filling.rows != row
    rows, numbers = filling.rows[others], filling.samples[others]
    place = int(np.searchsorted(rows, row))
    numbers = np.insert(numbers, place, samples + rest)
    return Filling(filling.fleet, filling.usual, np.insert(rows, place, row), numbers)
