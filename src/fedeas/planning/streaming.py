"""Plan one budget for a fleet whose table does not fit into memory: read it several times, then write the allocation.

It is the one that the policy gives for the table in memory. Some policies need a few totals over all clients (their
`in_parts`). Greedy, Optimal and KL take the samples whose gain is above one price for all clients. All clients together
take fewer samples at a higher price, so two prices enclose the right one, and each reading tries several prices at
once. The first guess comes from a sample of the clients, each later one from a straight line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import Generic, TypeVar

import numpy as np

from fedeas.core.arrays import BoolArray, FloatArray, IntArray, frozen
from fedeas.core.errors import PolicyError
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies import KL, Greedy, Optimal, Policy
from fedeas.planning.policies.base import Budgeted, Placer, ReadParts
from fedeas.planning.policies.greedy import SAFE_MARGIN, by_falling_gain, next_gain
from fedeas.planning.policies.kl import DivergenceCurves, spend
from fedeas.planning.policies.optimal import change_by, is_small, on_hulls
from fedeas.planning.policies.prices import FINE, Bracket, Rounding, bisect_price, fine_total
from fedeas.planning.policies.waterfill import Waterfill, check_searchable
from fedeas.planning.tables import Chunk, CountTable

PART_CELLS = 2**18
SAMPLED_CLIENTS = 10_000
OPEN_CLIENTS = 100_000
"""The search ends when two prices differ by at most this many samples; the rest is decided in memory."""

NEARBY = (1 / 8, 1 / 2**8, 1 / 2**16)
"""Distances of further prices from a guess, relative to the interval that is left."""

CLOSE = 1e-13
"""Prices that differ by less, relatively, may be in the wrong order because of rounding errors."""

LEVELS_AT_ONCE = 4
"""Halvings of a bracket for which one reading of the table prepares all prices."""

Curves = TypeVar("Curves")
Tried = tuple[float, int]
"""A price and what all clients take at it."""


def can_stream(policy: Policy) -> bool:
    """Whether a table can be planned in passes: the policy is one of these, and its budget needs no other clients."""
    if not isinstance(policy, Greedy | Optimal | KL) and type(policy).in_parts is Policy.in_parts:
        return False
    budget = getattr(policy, policy.budget_field)
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
    if not isinstance(policy, Greedy | Optimal | KL):
        return policy.in_parts(parts)
    fleet = Fleet(parts, policy)
    check_searchable(fleet.total)
    if isinstance(policy, KL):
        return _spread_by_divergence(parts, fleet, policy)
    if isinstance(policy, Optimal) and is_small(fleet.clients, fleet.total):
        rows = iter(policy.allocate(LabelCounts(np.concatenate([part.n for part in parts()]))).n)
        return lambda part: np.stack([*islice(rows, part.num_clients)])
    return _fill_by_gain(parts, fleet, policy)


class Fleet:
    """Facts about all clients that their curves need; the table is read once."""

    def __init__(self, parts: ReadParts, policy: Budgeted) -> None:
        self.clients = self.samples = self.largest = matched = 0
        chosen, stride = np.empty((0, 1), dtype=np.int64), 1
        for part in parts():
            rows = part.n[-self.clients % stride :: stride]
            chosen = rows if not self.clients else np.concatenate([chosen, rows])
            while len(chosen) > 2 * SAMPLED_CLIENTS:
                chosen, stride = chosen[::2], 2 * stride
            self.clients, self.samples = self.clients + part.num_clients, self.samples + part.total
            self.largest = max(self.largest, int(part.sizes.max()))
            matched += policy.budget.allocate(part).total if isinstance(policy.budget, Policy) else 0
        self.total = matched if isinstance(policy.budget, Policy) else int(policy.budget)
        """Samples to spend."""
        self.some = LabelCounts(frozen(chosen.copy()))
        """About `SAMPLED_CLIENTS` clients, evenly from the whole table."""
        self.sampled_total = self.total * len(self.some) // self.clients
        """The part of the budget that falls to them."""

    def waterfill(self, part: LabelCounts) -> Waterfill:
        """The curves of some clients towards equal shares."""
        return Waterfill(part, max(self.total, self.largest))


@dataclass
class Passes(Generic[Curves]):
    """The curves of all clients, part by part, as often as they are needed, and what is taken at a price."""

    parts: ReadParts
    curves_of: Callable[[LabelCounts], Curves]
    taken: Callable[[Curves, float], int]

    def curves(self) -> Iterator[Curves]:
        """Read the table once."""
        return map(self.curves_of, self.parts())

    def taken_at(self, prices: Sequence[float]) -> list[int]:
        """The samples that all clients take at each of some rising prices; the highest is tried first."""
        taken = [0] * len(prices)
        for curves in self.curves():
            for place in reversed(range(len(prices))):
                taken[place] += self.taken(curves, prices[place])
        return taken

    def enclose(self, total: int, low: Tried, high: Tried, guess: float, apart: float) -> tuple[float, float]:
        """Two prices with the wanted one between: at the lower one more than `total` is taken, at the higher one not.

        `low` and `high` enclose it already. The search is over when what is taken differs by at most `apart`, or when
        the two are too close to tell apart.
        """
        width = guess / 4
        while low[1] - high[1] > apart and high[0] - low[0] > CLOSE * high[0]:
            offsets = [sign * width * part for part in NEARBY for sign in (-1, 1)]
            tried = {(low[0] + high[0]) / 2, guess, *(guess + offset for offset in offsets)}
            prices = sorted(price for price in tried if low[0] < price < high[0])
            for price, taken in zip(prices, self.taken_at(prices), strict=True):
                if taken > total:
                    low = max(low, (price, taken))
                else:
                    high = min(high, (price, taken))
            width = high[0] - low[0]
            guess = low[0] + width * ((low[1] - total) / (low[1] - high[1]))
        return low[0], high[0]

    def bisect(self, total: int, highest: float, low: float, high: float) -> float:
        """The result of `bisect_price` for the whole table, if it is known to be between `low` and `high`."""
        low, high = low * (1 - CLOSE), high * (1 + CLOSE)
        known: dict[float, int] = {}

        def fits(bracket: Bracket) -> bool:
            if not low < bracket.middle < high:
                return bracket.middle >= high
            if bracket.middle not in known:
                next_level, ahead = [bracket], {bracket.middle}
                for _ in range(LEVELS_AT_ONCE - 1):
                    next_level = [each.halved(fits) for each in next_level for fits in (True, False)]
                    ahead |= {each.middle for each in next_level}
                prices = sorted(price for price in ahead if low < price < high)
                known.update(zip(prices, self.taken_at(prices), strict=True))
            return known[bracket.middle] <= total

        return bisect_price(fits, highest).enough


def _spread_by_divergence(parts: ReadParts, fleet: Fleet, policy: KL) -> Placer:
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
        _, guess = spend(curves_of(fleet.some), len(fleet.some), fleet.sampled_total)
        low, high = passes.enclose(fleet.total * FINE, (0.0, matched), (highest, 0), guess, apart=-1)
        price = passes.bisect(fleet.total * FINE, highest, low, high)

    def samples_of(curves: DivergenceCurves) -> FloatArray:
        return curves.matched(surplus / fleet.clients) if price is None else curves.samples_at(price)

    rounding = Rounding(lambda: map(samples_of, passes.curves()), fleet.total)
    return lambda part: rounding.next_part(samples_of(curves_of(part)))


@dataclass
class Filling:
    """Place the next part: each client takes what `usual` says, except some, given by row and number of samples."""

    fleet: Fleet
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


def _fill_by_gain(parts: ReadParts, fleet: Fleet, policy: Greedy | Optimal) -> Placer:
    """All samples above a price; the clients near it are settled in memory, Optimal's last few samples in a pass."""
    is_greedy = isinstance(policy, Greedy)
    take = Waterfill.taken_above if is_greedy else Waterfill.best_at
    passes = Passes(parts, fleet.waterfill, lambda curves, price: int(take(curves, price).sum()))
    highest, demand = 0.0, 0  # a price at which nobody takes a sample, and the samples that balance everybody
    for curves in passes.curves():
        highest, demand = max(highest, 2 * curves.highest_gain), demand + int(curves.demand.sum())
    if fleet.total >= demand:
        if is_greedy:  # all gains are equal from here on: ties go to the lowest client
            first = next(passes.curves()).demand[:1]
            return Filling(fleet, attrgetter("demand"), np.array([0]), first + fleet.total - demand)
        return _with_rest(passes, Filling(fleet, attrgetter("demand"), *np.empty((2, 0), int)), fleet.total - demand)
    some = fleet.waterfill(fleet.some)
    guess = bisect_price(lambda at: passes.taken(some, at.middle) <= fleet.sampled_total, highest).enough
    low, high = passes.enclose(fleet.total, (0.0, demand), (highest, 0), guess, OPEN_CLIENTS)
    margin = SAFE_MARGIN if is_greedy else CLOSE
    low, high = low * (1 - margin), high * (1 + margin)

    def is_open(curves: Waterfill, samples: IntArray) -> BoolArray:
        if is_greedy:
            return next_gain(curves, samples) >= low
        return np.asarray(samples != (curves.best_at(low) if low > 0 else curves.demand))

    opened, counts, settled, first_row = [], [], 0, 0
    for part in parts():
        curves = fleet.waterfill(part)
        samples = take(curves, high)
        left = is_open(curves, samples)
        opened.append(first_row + np.flatnonzero(left))
        counts.append(part.n[left])
        settled += int(samples[~left].sum())
        first_row += part.num_clients
    near = fleet.waterfill(LabelCounts(frozen(np.concatenate(counts))))
    total = fleet.total - settled
    chosen = by_falling_gain(near, total) if is_greedy else on_hulls(near, total, highest)[0]
    filling = Filling(fleet, lambda curves: take(curves, high), np.concatenate(opened), chosen)
    return filling if is_greedy else _with_rest(passes, filling, total - int(chosen.sum()))


def _with_rest(passes: Passes[Waterfill], filling: Filling, rest: int) -> Placer:
    """Give the rest to the one client whose value it lowers most (or raises least)."""
    least, row, samples, first_row = np.inf, 0, 0, 0
    for curves in passes.curves():
        taken = filling.samples_of(curves)
        change = change_by(curves, taken, rest)
        best = int(change.argmin())
        if change[best] < least:
            least, row, samples = float(change[best]), first_row + best, int(taken[best])
        first_row += len(taken)
    others = filling.rows != row
    rows, numbers = filling.rows[others], filling.samples[others]
    place = int(np.searchsorted(rows, row))
    numbers = np.insert(numbers, place, samples + rest)
    return Filling(filling.fleet, filling.usual, np.insert(rows, place, row), numbers)
