"""A fleet whose table is read in parts, again and again: what is known about all clients, and what they take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from fedeas.core.arrays import BoolArray, IntArray, frozen
from fedeas.planning.counts import LabelCounts
from fedeas.planning.passes import Tried
from fedeas.planning.policies import Policy
from fedeas.planning.policies.base import Budget
from fedeas.planning.policies.waterfill import Waterfill

SAMPLED_CLIENTS = 10_000
OPEN_CLIENTS = 100_000
"""With at most so many samples between two prices, the clients that take them are settled in memory."""

Curves = TypeVar("Curves")
Parts = Callable[[], Iterator[LabelCounts]]
Place = Callable[[LabelCounts], IntArray]
"""The allocation of the next part; parts come in order."""


@dataclass
class Fleet:
    """What has to be known about all clients before their curves can be drawn."""

    clients: int = 0
    samples: int = 0
    largest: int = 0
    total: int = 0
    """Samples to spend."""
    held: IntArray = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    """Real samples of each class."""
    some: LabelCounts = field(default_factory=lambda: LabelCounts([[1, 1]]))
    """About `SAMPLED_CLIENTS` clients, evenly from the whole table."""

    @staticmethod
    def survey(parts: Parts, budget: Budget) -> Fleet:
        """Read the table once."""
        fleet, chosen, stride = Fleet(), np.empty((0, 1), dtype=np.int64), 1
        for part in parts():
            rows = part.n[-fleet.clients % stride :: stride]
            chosen = rows if not fleet.clients else np.concatenate([chosen, rows])
            fleet._add(part, budget)
            while len(chosen) > 2 * SAMPLED_CLIENTS:
                chosen, stride = chosen[::2], 2 * stride
        fleet.some = LabelCounts(frozen(chosen.copy()))
        if not isinstance(budget, Policy):
            fleet.total = int(budget)
        return fleet

    def _add(self, part: LabelCounts, budget: Budget) -> None:
        self.clients += part.num_clients
        self.samples += part.total
        self.largest = max(self.largest, int(part.sizes.max()))
        self.held = self.held + part.n.sum(axis=0)
        if isinstance(budget, Policy):
            self.total += budget.allocate(part).total

    @property
    def sampled_total(self) -> int:
        """The part of the budget that falls to the sampled clients."""
        return self.total * self.some.num_clients // self.clients

    def waterfill(self, part: LabelCounts) -> Waterfill:
        """The curves of some clients towards equal shares."""
        return Waterfill(part, max(self.total, self.largest))


@dataclass
class Passes(Generic[Curves]):
    """The curves of all clients, part by part, as often as they are needed, and what is taken at a price."""

    parts: Parts
    curves_of: Callable[[LabelCounts], Curves]
    taken: Callable[[Curves, float], int]

    def curves(self) -> Iterator[Curves]:
        """Read the table once."""
        return map(self.curves_of, self.parts())

    def taken_at(self, prices: Sequence[float]) -> list[int]:
        """What all clients take at each of some rising prices; the highest comes first, where clients take least."""
        taken = [0] * len(prices)
        for curves in self.curves():
            for place in reversed(range(len(prices))):
                taken[place] += self.taken(curves, prices[place])
        return taken


@dataclass
class Open:
    """The clients that two prices leave open, by their rows in the table, and what all others take."""

    rows: list[IntArray] = field(default_factory=list)
    counts: list[IntArray] = field(default_factory=list)
    settled: int = 0

    def add(self, part: LabelCounts, first_row: int, samples: IntArray, is_open: BoolArray) -> None:
        """Note which clients of a part are open, and the samples of the others."""
        self.rows.append(first_row + np.flatnonzero(is_open))
        self.counts.append(part.n[is_open])
        self.settled += int(samples[~is_open].sum())

    @property
    def table(self) -> LabelCounts:
        """Their counts."""
        return LabelCounts(frozen(np.concatenate(self.counts)))


def leave_few_open(low: Tried, high: Tried) -> bool:
    """Whether the clients between two prices can be settled in memory."""
    return low.taken - high.taken <= OPEN_CLIENTS


def plan_whole(parts: Parts, policy: Policy) -> Place:
    """Plan the table in memory, and hand out its allocation in parts."""
    plan, row = policy.allocate(LabelCounts(np.concatenate([part.n for part in parts()]))).n, 0

    def place(part: LabelCounts) -> IntArray:
        nonlocal row
        row += part.num_clients
        return plan[row - part.num_clients : row]

    return place
