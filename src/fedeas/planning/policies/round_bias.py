"""The allocation of B samples for which the labels of a round's participants, taken together, are closest to a target.

Notation: client k has x_k^c samples of class c after the allocation, and D_k^c = x_k^c - t_c sum_c' x_k^c' is how far
it is from the shares t of the target. In a round S of K clients take part, each set of S equally likely. Then

    E |sum_{k in S} D_k|^2 = a sum_k |D_k|^2 + b |sum_k D_k|^2,
    b = S (S - 1) / (K (K - 1)),   a = S / K - b.

The first term is the client's own imbalance, which averages out the more clients take part; the second is that of the
whole federation, which does not. Divided by the square of the mean number of samples in a round this is the expected
squared bias of a round. The number of all samples is fixed by the budget, so it is a convex quadratic function of the
allocation: accelerated gradient descent finds its minimum over real numbers, and its gradient there bounds what whole
numbers can reach.

The table has to fit into memory. One price for all clients, as in KL, does not say what a client takes: that depends on
the sum of D over all clients, too, which depends on what all of them take. The descent settles both in up to
`MAX_STEPS` steps. Each needs the sum after the step before and one threshold for all, so that a table on disk would be
read hundreds of times.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar

import numpy as np

from fedeas.core.arrays import FloatArray, IntArray
from fedeas.core.limits import number
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies.base import samples_in
from fedeas.planning.policies.baselines import Budgeted
from fedeas.planning.policies.optimal import CertifiedAllocation
from fedeas.planning.policies.prices import round_to
from fedeas.planning.policies.targets import Target, target_shares
from fedeas.planning.policies.waterfill import check_searchable

MAX_STEPS = 500
TOLERANCE = 1e-7
"""Descent ends when the bound is this close to the value reached, relative to the bias without images."""


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

    participation: Annotated[float, number("above 0 and at most 1", lambda share: 0 < share <= 1)] = 0.1
    target: Target = "uniform"
    description: ClassVar[str] = (
        "Brings the labels of each round's participants together closest to a target. Needs the counts of all clients."
    )

    def allocate(self, counts: LabelCounts) -> CertifiedAllocation:
        """Descend to the best real numbers, and round."""
        total = samples_in(self.budget, counts)
        check_searchable(total)
        bias = Bias(counts, target_shares(counts, self.target), self.participants(counts), total)
        wanted, bound = descend(bias)
        rounded = round_to(wanted, total)
        gap = max(bias.value(bias.apart(rounded)) - bound, 0.0)
        return CertifiedAllocation(rounded, self.spec, gap, "the bias of a round")

    def participants(self, counts: LabelCounts) -> int:
        """S, the clients of a round, at least one."""
        return max(1, round(self.participation * counts.num_clients))

    def bias(self, counts: LabelCounts, allocation: Allocation | None = None) -> float:
        """The expected squared bias of a round, which the policy minimises."""
        samples = np.zeros_like(counts.n) if allocation is None else allocation.n
        shares = target_shares(counts, self.target)
        bias = Bias(counts, shares, self.participants(counts), int(samples.sum()))
        return bias.value(bias.apart(samples))


class Bias:
    """The expected squared bias of a round as a function of the allocation of `total` samples."""

    def __init__(self, counts: LabelCounts, shares: FloatArray, participants: int, total: int) -> None:
        clients = counts.num_clients
        pairs = participants * (participants - 1) / (clients * (clients - 1)) if clients > 1 else 0.0
        size = participants * (counts.total + total) / clients
        self.counts, self.shares, self.total = counts.n, shares, total
        self.own, self.joint = (participants / clients - pairs) / size**2, pairs / size**2

    def apart(self, samples: FloatArray | IntArray) -> FloatArray:
        """D: how far each client is from the target with these samples."""
        after = self.counts + samples
        return np.asarray(after - after.sum(axis=1, keepdims=True) * self.shares)

    def value(self, apart: FloatArray) -> float:
        """The bias of clients that are so far from the target."""
        together = apart.sum(axis=0)
        return float(self.own * np.vdot(apart, apart) + self.joint * np.vdot(together, together))

    def gradient(self, apart: FloatArray) -> FloatArray:
        """Its derivative by each number of samples."""
        pull = 2 * (self.own * apart + self.joint * apart.sum(axis=0))
        return np.asarray(pull - (pull @ self.shares)[:, None])

    @cached_property
    def steepness(self) -> float:
        """An upper bound of the second derivative in any direction."""
        classes = len(self.shares)
        spread = float(np.linalg.norm(np.eye(classes) - np.outer(self.shares, np.ones(classes)), 2)) ** 2
        return 2 * (self.own + self.joint * len(self.counts)) * spread


def descend(bias: Bias) -> tuple[FloatArray, float]:
    """The best real numbers of samples, by accelerated projected gradients, and a lower bound for any allocation."""
    found = np.full(bias.counts.shape, bias.total / bias.counts.size)
    apart = bias.apart(found)
    ahead, ahead_apart, pace, bound = found, apart, 1.0, 0.0
    goal = TOLERANCE * bias.value(bias.apart(np.zeros_like(found)))
    for _ in range(MAX_STEPS if bias.total else 0):
        value, slope = bias.value(apart), bias.gradient(apart)
        # The function lies above its tangent, which is least where all samples go to the lowest slope.
        bound = max(bound, value + float(bias.total * slope.min() - np.vdot(slope, found)))
        if value - bound <= goal:
            break
        step = on_simplex(ahead - bias.gradient(ahead_apart) / bias.steepness, bias.total)
        step_apart, move = bias.apart(step), step - found
        if np.vdot(ahead - step, move) > 0:  # it went too far ahead, and has to turn back
            pace = 1.0
        faster = (1 + np.sqrt(1 + 4 * pace**2)) / 2
        further = (pace - 1) / faster
        ahead, ahead_apart = step + further * move, step_apart + further * (step_apart - apart)  # D is linear
        found, apart, pace = step, step_apart, faster
    return found, bound if bias.total else bias.value(apart)


def on_simplex(point: FloatArray, total: float) -> FloatArray:
    """The nearest point whose entries are not negative and sum to `total`.

    >>> on_simplex(np.array([[3.0, -1.0], [2.0, 0.0]]), 3)
    array([[2., 0.],
           [1., 0.]])
    """
    top = point.max()
    above = point.ravel() - top  # so that the largest entry, 0, stays above any level even if numbers are huge
    while True:
        level = (above.sum() - total) / above.size
        still = above[above > level]
        if still.size == above.size:
            return np.asarray(np.maximum(point - (top + level), 0.0))
        above = still
