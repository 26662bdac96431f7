"""Allocations when clients do not share label counts: the numbers that a client reveals, and its own row."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedeas.core.arrays import IntArray
from fedeas.core.errors import PolicyError
from fedeas.planning.counts import LabelCounts
from fedeas.planning.policies.base import Policy, Spread, spread_evenly


@dataclass(frozen=True)
class Numbers:
    """The numbers that a client reveals if a policy needs them.

    They are the total of the policy to match, and how many classes the client fills.
    For Missing-only the latter is the number of its absent classes.
    """

    total: int = 0
    filled: int = 0


@dataclass(frozen=True)
class Share:
    """The server's reply to these numbers: the budget, and how many classes all and earlier clients fill."""

    total: int
    filled: int
    filled_before: int


def numbers_of(policy: Policy, row: IntArray) -> Numbers:
    """The numbers that a client with these counts reveals."""
    spread = _spread(policy)
    total = spread.budget.allocate(LabelCounts(row[None])).total if isinstance(spread.budget, Policy) else 0
    return Numbers(total, int(spread.receives(row).sum()))


def shares(policy: Policy, revealed: Sequence[Numbers]) -> list[Share]:
    """The share of each client, from the numbers of all clients, in their order."""
    spread = _spread(policy)
    total = sum(each.total for each in revealed) if isinstance(spread.budget, Policy) else int(spread.budget)
    before = np.cumsum([0, *(each.filled for each in revealed)]).tolist()
    filled = before.pop()
    spread.check_pairs(total, filled)
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
