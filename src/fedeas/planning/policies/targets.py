"""The class shares that policies bring clients towards."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedeas.core.arrays import FloatArray, IntArray
from fedeas.planning.counts import Allocation, LabelCounts

Target = Literal["uniform", "global"]


def target_shares(counts: LabelCounts, target: Target) -> FloatArray:
    """The share of each class in the target; above 0, for a class that nobody holds a tiny one."""
    return shares_towards(target, counts.n.sum(axis=0))


def distance_to_target(counts: LabelCounts, target: Target, allocation: Allocation | None = None) -> float:
    """sum_k p_k ||q_k - t||^2 for the shares t of the target; with equal shares this is I(B).

    >>> distance_to_target(LabelCounts([[10, 0], [5, 5]]), "uniform")
    0.25
    """
    after = counts.n if allocation is None else counts.joined(allocation)
    apart = after / after.sum(axis=1, keepdims=True) - target_shares(counts, target)
    return float(counts.weights @ (apart**2).sum(axis=1))


def shares_towards(target: Target, held: IntArray) -> FloatArray:
    """The same, from the samples of each class that all clients hold together."""
    if target == "uniform":
        return np.full(len(held), 1 / len(held))
    some = np.maximum(held.astype(np.float64), 1e-9)
    return np.asarray(some / some.sum())
