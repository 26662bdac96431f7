"""The allocation of B samples that minimises the imbalance I(B), or one within a certified gap of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedeas.core.arrays import FloatArray, IntArray
from fedeas.planning.counts import CertifiedAllocation, LabelCounts
from fedeas.planning.policies.base import Budgeted, Placer, ReadParts
from fedeas.planning.policies.prices import CLOSE, Fleet, bisect_price, searchable_budget
from fedeas.planning.policies.waterfill import Waterfill, filled, spend_by_gain

# Dynamic programming takes about K B^2 steps; this many take about a second.
EXACT_STEPS = 2 * 10**7


@dataclass(frozen=True)
class Optimal(Budgeted):
    """Minimise I(B) over all allocations of exactly `budget` samples.

    Within a client the best use of t samples is water-filling, so the search is over the number t_k of each client.
    Small problems are solved exactly by dynamic programming over clients. Large ones are solved on the convex hulls
    of the clients' curves: for a price per sample each client takes the t_k that is best for it alone, the price is
    bisected until the budget is met, and Lagrangian duality turns the same price into a lower bound. The result is a
    `CertifiedAllocation`, whose ``gap`` bounds how much better the optimum can be.

    >>> best = Optimal(budget=4).allocate(LabelCounts([[3, 4, 2], [5, 8, 7], [2, 2, 3]]))
    >>> best.n.sum(), best.gap
    (np.int64(4), 0.0)
    """

    description = "The best allocation of this many images. Needs the counts of all clients; for comparison."

    def allocate(self, counts: LabelCounts) -> CertifiedAllocation:
        """Exact for a small problem, with a certified gap for a large one."""
        total = searchable_budget(self.budget, [counts])
        curves = Waterfill(counts)
        if is_small(counts.num_clients, total):
            samples, gap = _by_dynamic_programming(curves, total), 0.0
        else:
            samples, bound = _by_convex_hulls(curves, total)
            gap = max(float(curves.value(samples).sum()) - bound, 0.0) / counts.total
        return CertifiedAllocation(curves.fill(samples), self.spec, gap)

    def in_parts(self, parts: ReadParts) -> Placer:
        """The same for a table that does not fit into memory; one more reading places the last few samples."""
        fleet = Fleet(parts, searchable_budget(self.budget, parts()))
        if is_small(fleet.clients, fleet.total):
            whole = Waterfill(LabelCounts(np.concatenate([part.n for part in parts()])))
            return filled(_by_dynamic_programming(whole, fleet.total))
        samples, rest = spend_by_gain(
            parts,
            fleet,
            Waterfill.best_at,
            lambda near, total, highest: on_hulls(near, total, highest)[0],
            lambda curves, samples, low: samples != (curves.best_at(low) if low > 0 else curves.demand),
            CLOSE,
        )
        start, least, row = 0, np.inf, 0
        for part in parts():
            change = change_by(Waterfill(part), samples[start : start + len(part)].astype(np.int64), rest)
            if change.min() < least:
                least, row = change.min(), start + int(change.argmin())
            start += len(part)
        samples[row] += rest
        return filled(samples)


def is_small(clients: int, total: int) -> bool:
    """Whether dynamic programming is quick enough."""
    return clients * total**2 <= EXACT_STEPS


def _by_dynamic_programming(curves: Waterfill, total: int) -> IntArray:
    """best[b] is the least value of the clients so far with b samples; choices remember how many the last one took."""
    num_clients = curves.counts.num_clients
    takes = np.arange(total + 1)
    values = np.stack([curves.value(np.full(num_clients, take)) for take in takes], axis=1)
    best, choices = values[0], [takes]
    for value in values[1:]:
        # Row b of `before` is best[b], best[b - 1], ..., best[0], then infinity: the value of the clients before, by
        # how many samples this client takes.
        padded = np.concatenate([best[::-1], np.full(total, np.inf)])
        before = np.lib.stride_tricks.sliding_window_view(padded, total + 1)[::-1]
        sums = before + value
        choices.append(sums.argmin(axis=1))
        best = sums.min(axis=1)
    samples, left = np.zeros(num_clients, dtype=np.int64), total
    for client in range(num_clients - 1, -1, -1):
        samples[client] = choices[client][left]
        left -= samples[client]
    return samples


def _by_convex_hulls(curves: Waterfill, total: int) -> tuple[IntArray, float]:
    """Samples for each client, and a lower bound on the sum of their values."""
    if total >= curves.demand.sum():  # every client can be balanced; the rest goes where it adds least imbalance
        samples, bound = curves.demand.copy(), float(curves.value(curves.demand).sum())
    else:
        samples, price = on_hulls(curves, total, 2 * curves.highest_gain)
        bound = float((curves.value(samples) + 2 * price * samples).sum()) - 2 * price * total
    # The last few samples go to the one client whose value they lower most (or raise least).
    rest = total - int(samples.sum())
    samples[int(change_by(curves, samples, rest).argmin())] += rest
    return samples, bound


def on_hulls(curves: Waterfill, total: int, highest: float) -> tuple[IntArray, float]:
    """The best samples on the hulls, at most `total`, and their price; the next step of a client may not fit."""
    too_low, enough = bisect_price(lambda price: curves.best_at(price).sum() <= total, highest)
    samples = curves.best_at(enough)
    more = curves.best_at(too_low) if too_low > 0 else curves.demand
    # Each client's two choices are equally good at this price. Take the larger ones while they fit the budget.
    steps = np.maximum(more - samples, 0)
    fits = np.cumsum(steps) <= total - int(samples.sum())
    return samples + np.where(fits, steps, 0), enough


def change_by(curves: Waterfill, samples: IntArray, rest: int) -> FloatArray:
    """How the value of each client changes if it gets all of the rest."""
    return curves.value(samples + rest) - curves.value(samples)
