"""Scores of an allocation, from label counts alone.

Functions take the counts (a `LabelCounts`, an array, nested lists or a data frame) and often an allocation or a plan,
whose samples are added first. The weights p_k are always those of the real data, as in Eq. (surrogate).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas.core.arrays import FloatArray, IntArray
from fedeas.core.errors import InputError
from fedeas.planning.counts import LabelCounts, Planned, Table, as_counts


class ImbalanceSplit(NamedTuple):
    """The two terms of Eq. (r-decomp), whose sum is I."""

    heterogeneity: float
    global_imbalance: float


class Concentration(NamedTuple):
    """Clients in falling order of imbalance, with running shares of imbalance and budget."""

    order: IntArray
    imbalance: FloatArray
    budget: FloatArray


class BudgetPath(NamedTuple):
    """Samples spent, the imbalance I left at each point, and the share of I removed."""

    total: IntArray
    imbalance: FloatArray
    removed: FloatArray


def client_imbalance(counts: Table, allocation: Planned | None = None) -> FloatArray:
    """p_k ||q_k - u||^2, each client's part of I."""
    counts = as_counts(counts)
    n, sizes = _augmented(counts, allocation)
    distance = np.empty(counts.num_clients)
    for rows in counts.blocks():
        # sum_c (C n_c - N)^2 / (C N)^2, where C n_c - N = C (n_c - mean) - rest is a whole number: a balanced client
        # gets exactly 0, without cancellation errors.
        mean, rest = np.divmod(sizes[rows, None], counts.num_classes)
        apart = (n[rows] - mean) * float(counts.num_classes) - rest
        distance[rows] = np.vecdot(apart, apart) / (counts.num_classes * sizes[rows].astype(np.float64)) ** 2
    return counts.weights * distance


def imbalance(counts: Table, allocation: Planned | None = None) -> float:
    """I(B) of Eq. (surrogate): 0 exactly when every client is balanced.

    >>> imbalance(LabelCounts([[10, 0], [5, 5]]))
    0.25
    """
    return float(client_imbalance(counts, allocation).sum())


def imbalance_split(counts: Table, allocation: Planned | None = None) -> ImbalanceSplit:
    """I as cross-client heterogeneity plus global imbalance, Eq. (r-decomp).

    >>> imbalance_split(LabelCounts([[10, 0], [0, 10]]))
    ImbalanceSplit(heterogeneity=0.5, global_imbalance=0.0)
    """
    counts = as_counts(counts)
    n, sizes = _augmented(counts, allocation)
    proportions = n / sizes[:, None]
    mean = counts.weights @ proportions
    spread = ((proportions - mean) ** 2).sum(axis=1)
    return ImbalanceSplit(float(counts.weights @ spread), float(((mean - 1 / counts.num_classes) ** 2).sum()))


def marginal_gain(counts: Table, allocation: Planned | None = None) -> FloatArray:
    """First-order drop of I for one more sample of class c at client k, Eq. (gain).

    >>> marginal_gain(LabelCounts([[3, 1]]))
    array([[-0.0625,  0.1875]])
    """
    counts = as_counts(counts)
    n, sizes = _augmented(counts, allocation)
    q = n / sizes[:, None]
    return np.asarray(2 * (counts.weights / sizes)[:, None] * ((q**2).sum(axis=1, keepdims=True) - q))


def negative_gain(counts: Table) -> NDArray[np.bool_]:
    """Pairs at which a sample would raise I: q_k^c > ||q_k||^2, decided in whole numbers."""
    counts = as_counts(counts)
    return np.asarray(counts.n * counts.sizes[:, None] > (counts.n**2).sum(axis=1)[:, None])


def imbalance_removed(counts: Table, allocation: Planned) -> float:
    """Share of the imbalance that the allocation removes, 1 - I(B) / I(0); 0 if all clients are balanced.

    >>> from fedeas import Allocation
    >>> imbalance_removed(LabelCounts([[10, 0]]), Allocation([[0, 10]]))
    1.0
    """
    counts = as_counts(counts)
    before = imbalance(counts)
    return 1 - imbalance(counts, allocation) / before if before > 0 else 0.0


def synthetic_share(counts: Table, allocation: Planned) -> float:
    """Share of synthetic samples in the combined training data, B / (N + B)."""
    counts = as_counts(counts)
    return allocation.total / (counts.total + allocation.total)


def budget_path(counts: Table, allocations: Iterable[Planned]) -> BudgetPath:
    """I for a policy's allocations at several budgets, as in Fig. 2(b).

    >>> from fedeas import Allocation
    >>> counts = LabelCounts([[10, 0]])
    >>> budget_path(counts, [Allocation([[0, 0]]), Allocation([[0, 10]])]).removed
    array([0., 1.])
    """
    counts = as_counts(counts)
    before, points = imbalance(counts), [(each.total, imbalance(counts, each)) for each in allocations]
    totals, left = (np.array(values) for values in zip(*points, strict=True))
    return BudgetPath(totals, left, 1 - left / before if before > 0 else np.zeros(len(points)))


def concentration(counts: Table, allocation: Planned | None = None) -> Concentration:
    """Shares of I and of the budget held by the most imbalanced clients, as in Fig. 2(a).

    >>> from fedeas import Allocation
    >>> counts = LabelCounts([[5, 5], [10, 0]])
    >>> concentration(counts, Allocation([[0, 0], [0, 4]])).imbalance
    array([1., 1.])
    """
    parts = client_imbalance(counts)
    order = np.argsort(-parts, kind="stable")
    spent = np.zeros(len(parts)) if allocation is None else allocation.per_client.astype(np.float64)
    # Of nothing, every share is 0.
    imbalance, budget = (np.cumsum(values[order]) / (values.sum() or np.inf) for values in (parts, spent))
    return Concentration(order, imbalance, budget)


def budget_ratio(budgets: ArrayLike) -> float:
    """Largest over smallest positive budget b_k of the clients.

    >>> budget_ratio([27, 196, 0])
    7.2592592592592595
    """
    positive = np.asarray(budgets)[np.asarray(budgets) > 0]
    if positive.size == 0:
        raise InputError("no client has a positive budget, so there is no ratio; raise beta")
    return float(positive.max() / positive.min())


def accuracy_per_thousand(accuracy_gain: float, total: int) -> float:
    """Eta: percentage points of accuracy gained for each thousand generated samples.

    >>> round(accuracy_per_thousand(10.59, 4113), 3)
    2.575
    """
    if total <= 0:
        raise InputError("accuracy for each thousand samples needs a positive number of generated samples")
    return accuracy_gain * 1e3 / total


def heterogeneity_left(ratio: ArrayLike) -> FloatArray:
    """h(r) = ((1 - r) / (1 + r))^2 of the two-client theorem: heterogeneity left at generation ratio r = m / n.

    >>> heterogeneity_left([0, 1])
    array([1., 0.])
    """
    r = np.asarray(ratio, dtype=np.float64)
    if (r < 0).any():
        raise InputError(f"the generation ratio is {r.min():g}; give 0 or more")
    return np.asarray(((1 - r) / (1 + r)) ** 2)


def _augmented(counts: LabelCounts, allocation: Planned | None) -> tuple[IntArray, IntArray]:
    """Real and allocated samples together, by client and class, and by client."""
    if allocation is None:
        return counts.n, counts.sizes
    return counts.joined(allocation), counts.sizes + allocation.per_client
