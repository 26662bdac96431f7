"""Policies that weigh the gain of each sample: two that spend a budget, and one that pays a price for each sample.

`Greedy` is the paper's reference of Fig. 2(b), `Optimal` minimises the imbalance I(B), and `CostAware` is the surrogate
of the paper's supplement B.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fedeas.core.arrays import BoolArray, FloatArray, IntArray
from fedeas.core.spec import Positive
from fedeas.planning.counts import Allocation, CertifiedAllocation, LabelCounts
from fedeas.planning.policies.base import Budgeted, Placer, Policy, ReadParts
from fedeas.planning.policies.prices import CLOSE, Fleet, Passes, bisect_price, searchable_budget
from fedeas.planning.policies.waterfill import Waterfill, cubic_root

# Prices closer than this (relatively) are compared exactly; float gains have errors of about 1e-15.
SAFE_MARGIN = 1e-9

# Dynamic programming takes about K B^2 steps; this many take about a second.
EXACT_STEPS = 2 * 10**7

OPEN_CLIENTS = 100_000
"""The search ends when two prices differ by at most this many samples; the rest is decided in memory."""


@dataclass(frozen=True)
class Greedy(Budgeted):
    """Place each sample at the pair of largest gain, Eq. (gain), with N_k and q_k updated and p_k kept.

    Ties go to the lowest client, then the lowest class, and are decided exactly. The result equals that of a loop over
    samples, without the loop: the largest gain always belongs to some client's smallest class, so it is enough to
    know how many samples each client takes. All samples above a price are taken together, and the price is bisected
    until nearly the whole budget is spent. Only the last few samples, those within rounding error of the final price,
    are placed one by one with rational numbers.

    >>> Greedy(budget=4).allocate(LabelCounts([[6, 1, 1], [2, 2, 1]])).n
    array([[0, 2, 2],
           [0, 0, 0]])
    """

    description = "One image after the other where it helps most. Needs the counts of all clients."

    def allocate(self, counts: LabelCounts) -> Allocation:
        """Spend the budget by falling gain."""
        total = searchable_budget(self.budget, [counts])
        curves = Waterfill(counts)
        surplus = total - int(curves.demand.sum())
        if surplus >= 0:
            samples = curves.demand.copy()
            samples[0] += surplus  # all gains are equal from here on: ties go to the lowest client
        else:
            samples = by_falling_gain(curves, total)
        return Allocation(curves.fill(samples), self.spec)

    def in_parts(self, parts: ReadParts) -> Placer:
        """The same for a table that does not fit into memory."""
        samples, rest = spend_by_gain(
            parts,
            Fleet(parts, searchable_budget(self.budget, parts())),
            Waterfill.taken_above,
            lambda near, total, _: by_falling_gain(near, total),
            lambda curves, samples, low: next_gain(curves, samples) >= low,
            SAFE_MARGIN,
        )
        samples[0] += rest
        return filled(samples)


def by_falling_gain(curves: Waterfill, total: int) -> IntArray:
    """The samples of each client if `total` are placed one after the other; fewer than balance all clients."""
    highest = curves.highest_gain * (1 + SAFE_MARGIN)
    too_low, enough = bisect_price(
        lambda price: curves.taken_above(price).sum() <= total, highest, apart=SAFE_MARGIN / 10
    )
    samples = curves.taken_above(enough * (1 + SAFE_MARGIN))
    contenders = np.flatnonzero(next_gain(curves, samples) >= too_low * (1 - SAFE_MARGIN))
    rows = {k: curves.sorted[k].tolist() for k in contenders.tolist()}
    heap = [(-_exact_gain(row, int(samples[k])), k) for k, row in rows.items()]
    heapq.heapify(heap)
    for _ in range(total - int(samples.sum())):
        k = heap[0][1]
        samples[k] += 1
        heapq.heapreplace(heap, (-_exact_gain(rows[k], int(samples[k])), k))
    return samples


def next_gain(curves: Waterfill, samples: IntArray) -> FloatArray:
    """The gain of each client's next sample after `samples[k]`."""
    at = curves.round_after(samples)
    return curves.gain(at.stage, at.level, samples[:, None] - at.start)[:, 0]


def _exact_gain(row: list[int], samples: int) -> Fraction:
    """N (||n||^2 - L M) / M^3 of the next sample of a client with these sorted counts, as a rational number."""
    low = stage = 0
    for stage, count in enumerate(row, start=1):
        low += count
        if stage == len(row) or samples < stage * row[stage] - low:
            break
    level, odd = divmod(low + samples, stage)
    squares = sum(count**2 for count in row[stage:]) + stage * level**2 + odd * (2 * level + 1)
    size = sum(row)
    return Fraction(size * (squares - level * (size + samples)), (size + samples) ** 3)


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


def filled(samples: NDArray[np.integer]) -> Placer:
    """Place the next part, given the samples of each client."""
    start = 0

    def place(part: LabelCounts) -> IntArray:
        nonlocal start
        start += len(part)
        return Waterfill(part).fill(samples[start - len(part) : start].astype(np.int64))

    return place


def spend_by_gain(
    parts: ReadParts,
    fleet: Fleet,
    take: Callable[[Waterfill, float], IntArray],
    settle: Callable[[Waterfill, int, float], IntArray],
    is_open: Callable[[Waterfill, IntArray, float], BoolArray],
    margin: float,
) -> tuple[NDArray[np.int32], int]:
    """The samples of each client, and what the budget leaves.

    All clients `take` the samples above a price; memory is enough to `settle` those that are still open near it.
    """
    passes = Passes(parts, Waterfill, lambda curves, price: int(take(curves, price).sum()))
    highest, demand = 0.0, 0  # a price at which nobody takes a sample, and the samples that balance everybody
    for curves in passes.curves():
        highest, demand = max(highest, 2 * curves.highest_gain), demand + int(curves.demand.sum())
    if fleet.total >= demand:
        return np.concatenate([curves.demand.astype(np.int32) for curves in passes.curves()]), fleet.total - demand
    some = Waterfill(fleet.some)
    guess = bisect_price(lambda price: passes.taken(some, price) <= fleet.sampled_total, highest).enough
    low, high = passes.enclose(fleet.total, demand, highest, guess, OPEN_CLIENTS)
    taken, opened, counts, total = [], [], [], fleet.total
    for curves in passes.curves():
        above = take(curves, high * (1 + margin))
        taken.append(above.astype(np.int32))  # there may be millions of clients
        left = is_open(curves, above, low * (1 - margin))
        opened.append(left)
        counts.append(curves.counts.n[left])
        total -= int(above[~left].sum())
    samples = np.concatenate(taken)
    chosen = settle(Waterfill(LabelCounts(np.concatenate(counts))), total, highest)
    samples[np.concatenate(opened)] = chosen
    return samples, total - int(chosen.sum())


@dataclass(frozen=True)
class CostAware(Policy):
    """Maximise J = sum_{k,c} a_k^c g(m_k^c / d_k^c) - price * sum m_k^c over classes below the client's mean.

    The supplement leaves weights and curves open. Here they are those of the imbalance score: d = n̄_k - n_k^c is what
    the class lacks, g(r) = 1 - h(r) = 4r / (1 + r)^2 the closed-form benefit of filling a share r of it, and
    a = N_k (q_k^c - 1/C)^2 the pair's part of I (times sum N, which keeps the policy local). One sample is then worth
    at most 4 (1/C - q_k^c): a price of 4/C or more generates nothing, a price near 0 fills every class to the mean.

    Setting J' = 0 gives the interior optimum r* with (1 - r) / (1 + r)^3 = price / (4 (1/C - q)), a cubic in 1 + r
    with a closed form. J is concave in m, so the best whole number is one of the two beside r* d.

    >>> CostAware(price=0.1).allocate(LabelCounts([[90, 10, 0]])).n
    array([[ 0, 14, 22]])
    """

    price: Positive
    is_local = True
    description = "Generates for as long as the next image is worth its price."

    def allocate(self, counts: LabelCounts) -> Allocation:
        """The optimal whole number for each pair."""
        generated = np.empty_like(counts.n)
        for rows in counts.blocks():
            sizes = counts.sizes[rows, None]
            lack = np.maximum(sizes / counts.num_classes - counts.n[rows], 0.0)
            with np.errstate(divide="ignore"):
                ratio = self.price * sizes / (4 * lack)  # price over the worth of the first sample
            wanted = np.where(ratio < 1, cubic_root(1 / ratio, -2 / ratio) - 1, 0.0) * lack
            below = np.floor(np.clip(wanted, 0.0, lack))
            generated[rows] = below + (self._benefit(below + 1, lack, sizes) > self._benefit(below, lack, sizes))
        return Allocation(generated, self.spec)

    def _benefit(self, samples: FloatArray, lack: FloatArray, sizes: IntArray) -> FloatArray:
        """J of a pair, a 4r / (1 + r)^2 - price m with a = lack^2 / N, written so that lack may be 0."""
        with np.errstate(invalid="ignore"):
            share = np.where(lack > 0, 4 * samples * lack / (lack + samples) ** 2, 0.0)
        return lack**2 / sizes * share - self.price * samples
