"""A fleet whose table is read in parts, again and again: what is known about all clients, and what they take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedeas.core.arrays import BoolArray, IntArray, frozen
from fedeas.planning.counts import LabelCounts
from fedeas.planning.passes import Curves, Passes, ReadParts, Tried
from fedeas.planning.policies import Policy
from fedeas.planning.policies.base import Budget
from fedeas.planning.policies.waterfill import Waterfill

SAMPLED_CLIENTS = 10_000
OPEN_CLIENTS = 100_000
"""The search ends when two prices differ by at most this many samples; the rest is decided in memory."""

Placer = Callable[[LabelCounts], IntArray]
"""The allocation of the next part; parts come in order."""


@dataclass(frozen=True, eq=False)
class TableSurvey:
    """What has to be known about all clients before their curves can be drawn."""

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


@dataclass
class Exceptions:
    """Clients with samples of their own, given by row; all others take what is usual."""

    rows: IntArray
    samples: IntArray
    first_row: int = 0

    def put_into(self, usual: IntArray) -> IntArray:
        """The samples of the next part's clients; parts come in order."""
        samples, last_row = usual.copy(), self.first_row + len(usual)
        begin, end = np.searchsorted(self.rows, [self.first_row, last_row])
        samples[self.rows[begin:end] - self.first_row] = self.samples[begin:end]
        self.first_row = last_row
        return samples


def leave_few_open(low: Tried, high: Tried) -> bool:
    """Whether the clients between two prices can be settled in memory."""
    return low.taken - high.taken <= OPEN_CLIENTS


def plan_whole(parts: ReadParts, policy: Policy) -> Placer:
    """Plan the table in memory, and hand out its allocation in parts."""
    plan, row = policy.allocate(LabelCounts(np.concatenate([part.n for part in parts()]))).n, 0

    def place(part: LabelCounts) -> IntArray:
        nonlocal row
        row += part.num_clients
        return plan[row - part.num_clients : row]

    return place
