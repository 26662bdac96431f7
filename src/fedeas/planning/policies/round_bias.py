"""The allocation of B samples for which the labels of a round's participants, taken together, are closest to a target.

Notation: client k has x_k^c samples of class c after the allocation, and D_k^c = x_k^c - t_c sum_c' x_k^c' is how far
it is from the shares t of the target. In a round S of K clients take part, each set of S equally likely. Then

    E |sum_{k in S} D_k|^2 = a sum_k |D_k|^2 + b |sum_k D_k|^2,
    b = S (S - 1) / (K (K - 1)),   a = S / K - b.

The first term is the client's own imbalance, which averages out the more clients take part; the second is that of the
whole federation, which does not. Divided by the square of the mean number of samples in a round this is the expected
squared bias of a round. The number of all samples is fixed by the budget, so it is a convex quadratic function of the
allocation (`fedeas.planning.policies.coupled` finds its minimum in real numbers, and
`fedeas.planning.policies.coupled_rounding` rounds them).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from fedeas.core.arrays import FloatArray, IntArray, row_blocks
from fedeas.core.limits import number
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies.base import samples_in
from fedeas.planning.policies.baselines import Budgeted
from fedeas.planning.policies.coupled import BLOCK_CELLS, Found, Read, Wanted, best_samples
from fedeas.planning.policies.coupled_rounding import CoupledRounding
from fedeas.planning.policies.optimal import CertifiedAllocation
from fedeas.planning.policies.pulled_clients import apart_from
from fedeas.planning.policies.targets import Target, shares_towards, target_shares
from fedeas.planning.policies.waterfill import check_searchable

Participation = Annotated[float, number("above 0 and at most 1", lambda share: 0 < share <= 1)]


@dataclass(frozen=True)
class RoundBias(Budgeted):
    """Minimise the expected squared bias of a round's labels over allocations of exactly `budget` samples.

    A skew that other participants cancel does no harm here, unlike in KL, Greedy and Optimal. The result is a
    `CertifiedAllocation`, whose ``gap`` bounds how much smaller the bias can be.

    Args:
        participation: share of the clients that take part in a round, as ``rounds.participation`` of a run.
        target: the shares that a round should have: equal ones, or those of all real samples together (``global``).

    >>> RoundBias(budget=4, participation=0.5).allocate(LabelCounts([[6, 1, 1], [2, 2, 1]])).n
    array([[0, 2, 2],
           [0, 0, 0]])
    """

    participation: Participation = 0.1
    target: Target = "uniform"
    description: ClassVar[str] = (
        "Brings the labels of each round's participants together closest to a target. Needs the counts of all clients."
    )

    def allocate(self, counts: LabelCounts) -> CertifiedAllocation:
        """Find the best real numbers, and round."""
        total = samples_in(self.budget, counts)
        check_searchable(total)
        found = self.best(lambda: iter([counts.n]), counts.n.sum(axis=0), counts.num_clients, total)
        blocks = row_blocks(counts.num_clients, counts.num_classes, BLOCK_CELLS)
        parts = [found.samples_of(counts.n[rows]) for rows in blocks]
        rounding = self.rounding(lambda: iter(parts), counts.num_clients, total)
        rounded = np.concatenate([rounding.next_part(part) for part in parts])
        gap = max(self.bias(counts, Allocation(rounded)) - found.bound, 0.0)
        return CertifiedAllocation(rounded, self.spec, gap, "the bias of a round")

    def best(self, read: Read, held: IntArray, clients: int, total: int) -> Found:
        """The best real numbers of samples, and a lower bound of the bias, for a table that is read in parts.

        `held` are the samples of each class that all clients hold together.
        """
        shares, weights = shares_towards(self.target, held), self._weights(clients, int(held.sum()) + total)
        if weights.own > 0:
            found = best_samples(read, Wanted(shares, weights.joint / weights.own, total))
            return Found(found.samples_of, weights.own * found.bound)
        # All clients take part, so only their sum counts: that of one client with all samples. They share equally.
        found = best_samples(lambda: iter([held[None]]), Wanted(shares, 0.0, total))
        each = found.samples_of(held[None]) / clients
        return Found(lambda counts: np.repeat(each, len(counts), axis=0), weights.joint * found.bound)

    def rounding(self, samples: Callable[[], Iterator[FloatArray]], clients: int, total: int) -> CoupledRounding:
        """Round real numbers of samples, which are read in parts, so that it costs little bias."""
        weights = self._weights(clients, total + clients)  # their ratio is the same for any number of samples
        return CoupledRounding(samples, total, weights.own / (weights.own + weights.joint))

    def participants(self, clients: int) -> int:
        """S, the clients of a round, at least one."""
        return max(1, round(self.participation * clients))

    def bias(self, counts: LabelCounts, allocation: Allocation | None = None) -> float:
        """The expected squared bias of a round, which the policy minimises."""
        after = counts.n if allocation is None else counts.joined(allocation)
        apart = apart_from(target_shares(counts, self.target), after)
        together, weights = apart.sum(axis=0), self._weights(counts.num_clients, int(after.sum()))
        return float(weights.own * np.vdot(apart, apart) + weights.joint * np.vdot(together, together))

    def _weights(self, clients: int, samples: int) -> _Weights:
        participants = self.participants(clients)
        pairs = participants * (participants - 1) / (clients * (clients - 1)) if clients > 1 else 0.0
        size = participants * samples / clients
        return _Weights((participants / clients - pairs) / size**2, pairs / size**2)


class _Weights(NamedTuple):
    """a and b, divided by the square of the mean number of samples in a round."""

    own: float
    joint: float
