"""Plan one budget for a fleet whose table does not fit into memory: read it several times, then write the allocation.

It is the one that the policy gives for the table in memory. Some policies need a few totals over all clients (their
`in_parts`). Greedy, Optimal and KL take the samples whose gain is above one price for all clients. All clients together
take fewer samples at a higher price, so two prices enclose the right one, and each reading tries several prices at
once. The first guess comes from a sample of the clients, each later one from a straight line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter
from typing import Generic, TypeVar

import numpy as np

from fedeas.core.arrays import FloatArray, IntArray, frozen
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies import KL, Greedy, Optimal, Policy
from fedeas.planning.policies.base import Placer, ReadParts, samples_in
from fedeas.planning.policies.greedy import SAFE_MARGIN, by_falling_gain, next_gain
from fedeas.planning.policies.kl import DivergenceCurves, spend
from fedeas.planning.policies.optimal import change_by, is_small, on_hulls
from fedeas.planning.policies.prices import FINE, Rounding, bisect_price, fine_total
from fedeas.planning.policies.waterfill import Waterfill, check_searchable
from fedeas.planning.tables import Chunk, CountTable

PART_CELLS = 2**18
SAMPLED_CLIENTS = 10_000
OPEN_CLIENTS = 100_000
"""The search ends when two prices differ by at most this many samples; the rest is decided in memory."""

NEARBY = (0, 1 / 8, -1 / 8, 1 / 2**8, -1 / 2**8, 1 / 2**16, -1 / 2**16)
"""Distances of the prices that are tried from a guess, relative to the interval that is left."""

CLOSE = 1e-13
"""Prices that differ by less, relatively, may be in the wrong order because of rounding errors."""

Curves = TypeVar("Curves")


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
    if not isinstance(policy, Greedy | Optimal | KL):
        return policy.in_parts(parts)
    total = samples_in(policy.budget, parts())
    check_searchable(total)
    fleet = Fleet(parts, total)
    if isinstance(policy, KL):
        return _spread_by_divergence(parts, fleet, policy)
    if isinstance(policy, Optimal) and is_small(fleet.clients, total):
        rows = iter(policy.allocate(LabelCounts(np.concatenate([part.n for part in parts()]))).n)
        return lambda part: np.stack([*islice(rows, part.num_clients)])
    return _fill_by_gain(parts, fleet, isinstance(policy, Greedy))


class Fleet:
    """Facts about all clients that their curves need, and the samples to spend; the table is read once."""

    def __init__(self, parts: ReadParts, total: int) -> None:
        self.total = self.largest = total
        self.clients = self.samples = 0
        chosen: list[IntArray] = []
        stride = 1
        for part in parts():
            chosen += [*part.n[-self.clients % stride :: stride].copy()]
            while len(chosen) > 2 * SAMPLED_CLIENTS:
                chosen, stride = chosen[::2], 2 * stride
            self.clients, self.samples = self.clients + part.num_clients, self.samples + part.total
            self.largest = max(self.largest, int(part.sizes.max()))
        self.some = LabelCounts(np.stack(chosen))
        """About `SAMPLED_CLIENTS` clients, evenly from the whole table."""
        self.sampled_total = total * len(chosen) // self.clients
        """The part of the budget that falls to them."""

    def waterfill(self, part: LabelCounts) -> Waterfill:
        """The curves of some clients towards equal shares."""
        return Waterfill(part, self.largest)


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
        """The samples that all clients take at each of some prices."""
        taken = [0] * len(prices)
        for curves in self.curves():
            for place, price in enumerate(prices):
                taken[place] += self.taken(curves, price)
        return taken

    def enclose(self, total: int, demand: int, highest: float, guess: float, apart: float) -> tuple[float, float]:
        """Two prices with the wanted one between: at the lower one more than `total` is taken, at the higher one not.

        At a price of 0 `demand` is taken, at the highest nothing. The search is over when what is taken differs by at
        most `apart`, or when the two are too close to tell apart.
        """
        low, high, width = (0.0, demand), (highest, 0), guess / 4
        while low[1] - high[1] > apart and high[0] - low[0] > CLOSE * high[0]:
            tried = {(low[0] + high[0]) / 2, *(guess + width * part for part in NEARBY)}
            prices = [price for price in tried if low[0] < price < high[0]]
            for found in zip(prices, self.taken_at(prices), strict=True):
                if found[1] > total:
                    low = max(low, found)
                else:
                    high = min(high, found)
            width = high[0] - low[0]
            guess = low[0] + width * ((low[1] - total) / (low[1] - high[1]))
        return low[0], high[0]

    def bisect(self, total: int, highest: float, low: float, high: float) -> float:
        """The result of `bisect_price` for the whole table, if it is known to be between `low` and `high`."""

        def fits(price: float) -> bool:
            if low * (1 - CLOSE) < price < high * (1 + CLOSE):
                return self.taken_at([price])[0] <= total
            return price >= high

        return bisect_price(fits, highest).enough


def _spread_by_divergence(parts: ReadParts, fleet: Fleet, policy: KL) -> Placer:
    """Real numbers at one price, rounded."""

    def curves_of(part: LabelCounts) -> DivergenceCurves:
        return DivergenceCurves(part.n, part.sizes / fleet.samples, policy.smoothing)

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


@dataclass
class Filling:
    """Place the next part: each client takes what `usual` says, except some, given by row and number of samples.

    The client in `rest_row` takes the rest of the budget as well.
    """

    fleet: Fleet
    usual: Callable[[Waterfill], IntArray]
    rows: IntArray
    samples: IntArray
    rest: int = 0
    rest_row: int = 0
    first_row: int = 0

    def samples_of(self, curves: Waterfill) -> IntArray:
        """The samples of each client of the next part; parts come in order."""
        samples = self.usual(curves).copy()
        rows, rest_row = self.rows - self.first_row, self.rest_row - self.first_row
        here = (rows >= 0) & (rows < len(samples))
        samples[rows[here]] = self.samples[here]
        if 0 <= rest_row < len(samples):
            samples[rest_row] += self.rest
        self.first_row += len(samples)
        return samples

    def __call__(self, part: LabelCounts) -> IntArray:
        """The allocation of the next part."""
        curves = self.fleet.waterfill(part)
        return curves.fill(self.samples_of(curves))


def _fill_by_gain(parts: ReadParts, fleet: Fleet, is_greedy: bool) -> Placer:
    """All samples above a price; the clients near it are settled in memory, Optimal's last few samples in a pass."""
    take = Waterfill.taken_above if is_greedy else Waterfill.best_at
    passes = Passes(parts, fleet.waterfill, lambda curves, price: int(take(curves, price).sum()))
    highest, demand = 0.0, 0  # a price at which nobody takes a sample, and the samples that balance everybody
    for curves in passes.curves():
        highest, demand = max(highest, 2 * curves.highest_gain), demand + int(curves.demand.sum())
    if fleet.total >= demand:
        filling, rest = Filling(fleet, attrgetter("demand"), *np.empty((2, 0), int)), fleet.total - demand
    else:
        some = fleet.waterfill(fleet.some)
        guess = bisect_price(lambda price: passes.taken(some, price) <= fleet.sampled_total, highest).enough
        low, high = passes.enclose(fleet.total, demand, highest, guess, OPEN_CLIENTS)
        margin = SAFE_MARGIN if is_greedy else CLOSE
        low, high = low * (1 - margin), high * (1 + margin)
        opened, counts, total, first_row = [], [], fleet.total, 0
        for part in parts():
            curves = fleet.waterfill(part)
            samples = take(curves, high)
            if is_greedy:
                is_open = next_gain(curves, samples) >= low
            else:
                is_open = samples != (curves.best_at(low) if low > 0 else curves.demand)
            opened.append(first_row + np.flatnonzero(is_open))
            counts.append(part.n[is_open])
            total -= int(samples[~is_open].sum())
            first_row += part.num_clients
        near = fleet.waterfill(LabelCounts(np.concatenate(counts)))
        chosen = by_falling_gain(near, total) if is_greedy else on_hulls(near, total, highest)[0]
        filling = Filling(fleet, lambda curves: take(curves, high), np.concatenate(opened), chosen)
        rest = total - int(chosen.sum())
    if is_greedy:  # a rest is left only if all are balanced: all gains are equal then, and ties go to the lowest client
        return replace(filling, rest=rest)
    least, row = np.inf, 0
    for curves in passes.curves():
        first_row = filling.first_row
        change = change_by(curves, filling.samples_of(curves), rest)
        if change.min() < least:
            least, row = change.min(), first_row + int(change.argmin())
    return replace(filling, rest=rest, rest_row=row, first_row=0)
