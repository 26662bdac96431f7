"""Allocations when clients do not share label counts: the numbers that they reveal, and a client's own row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedeas.core.arrays import IntArray
from fedeas.core.errors import PolicyError
from fedeas.planning.counts import LabelCounts
from fedeas.planning.policies.base import Policy, spread_evenly
from fedeas.planning.policies.baselines import Spread, no_absent_class


@dataclass(frozen=True)
class Numbers:
    """What a client reveals if a policy needs numbers: the total of the policy to match, and how many classes it fills.

    For Missing-only the latter is the number of its absent classes.
    """

    total: int = 0
    filled: int = 0


@dataclass(frozen=True)
class Share:
    """What the server tells a client in return: the budget, and how many classes all and earlier clients fill."""

    total: int
    filled: int
    filled_before: int


def numbers_of(policy: Policy, row: IntArray) -> Numbers:
    """The numbers that a client with these counts reveals."""
    spread = _spread(policy)
    total = spread.budget.allocate(LabelCounts(row[None])).total if isinstance(spread.budget, Policy) else 0
    return Numbers(total, int(spread.receives(row).sum()))


def shares(policy: Policy, revealed: Sequence[Numbers]) -> list[Share]:
    """What the server tells each client, from what all clients revealed, in their order."""
    budget = _spread(policy).budget
    total = sum(each.total for each in revealed) if isinstance(budget, Policy) else int(budget)
    before = np.cumsum([0, *(each.filled for each in revealed)]).tolist()
    filled = before.pop()
    if total and not filled:
        raise no_absent_class(total)
    return [Share(total, filled, each) for each in before]


def own_row(policy: Policy, row: IntArray, share: Share | None = None) -> IntArray:
    """A client's row of the policy's allocation, from its own counts and, if the policy needs numbers, its share."""
    if policy.is_local:
        own: IntArray = policy.allocate(LabelCounts(row[None])).n[0]
        return own
    if share is None:
        raise PolicyError("a policy that spends a fleet's budget needs the client's share of it")
    receives, generated = _spread(policy).receives(row), np.zeros_like(row)
    generated[receives] = spread_evenly(share.total, share.filled, share.filled_before, int(receives.sum()))
    return generated


def _spread(policy: Policy) -> Spread:
    if not isinstance(policy, Spread):
        raise PolicyError(f"{policy.spec} cannot be computed from a few numbers of each client")
    return policy
