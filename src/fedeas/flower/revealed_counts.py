"""Allocations when clients do not share label counts: what each policy needs from clients, and a client's own row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from fedeas.core.arrays import IntArray
from fedeas.errors import PolicyError
from fedeas.planning.counts import LabelCounts
from fedeas.planning.policies.base import AllocationPolicy, Policy, spread_evenly
from fedeas.planning.policies.baselines import MissingOnly, Uniform


class Needs(StrEnum):
    """What clients must reveal for a policy."""

    NOTHING = "nothing"
    NUMBERS = "numbers"
    COUNTS = "counts"


@dataclass(frozen=True)
class Numbers:
    """What a client reveals if a policy needs numbers: the total of the policy to match, and its absent classes."""

    total: int = 0
    absent: int = 0


@dataclass(frozen=True)
class Share:
    """What the server tells a client in return: the sums over all clients, and the client's place among them."""

    clients: int
    place: int
    total: int
    absent: int
    absent_before: int


def needs(policy: AllocationPolicy) -> Needs:
    """What clients must reveal for this policy.

    >>> from fedeas.planning.policies import parse_policy
    >>> [str(needs(parse_policy(spec))) for spec in ("fedeas", "uniform(budget=fedeas(beta=12))", "greedy(budget=9)")]
    ['nothing', 'numbers', 'counts']
    """
    if policy.is_local:
        return Needs.NOTHING
    if isinstance(policy, Uniform | MissingOnly):
        matched = policy.budget
        return Needs.NUMBERS if not isinstance(matched, Policy) or matched.is_local else Needs.COUNTS
    return Needs.COUNTS


def numbers_of(policy: AllocationPolicy, row: IntArray) -> Numbers:
    """The numbers that a client with these counts reveals for a policy that needs them."""
    matched = policy.budget if isinstance(policy, Uniform | MissingOnly) else None
    total = matched.allocate(LabelCounts(row[None])).total if isinstance(matched, Policy) else 0
    return Numbers(total, int((row == 0).sum()) if isinstance(policy, MissingOnly) else 0)


def shares(policy: AllocationPolicy, revealed: Sequence[Numbers]) -> list[Share]:
    """What the server tells each client, from what all clients revealed, in their order."""
    budget = policy.budget if isinstance(policy, Uniform | MissingOnly) else 0
    total = sum(each.total for each in revealed) if isinstance(budget, Policy) else int(budget)
    absent = [each.absent for each in revealed]
    if isinstance(policy, MissingOnly) and total and not sum(absent):
        raise PolicyError(
            f"missing-only cannot place {total:,} samples: every client holds every class; use another policy"
        )
    before = np.cumsum([0, *absent])
    return [Share(len(absent), place, total, sum(absent), int(before[place])) for place in range(len(absent))]


def own_row(policy: AllocationPolicy, row: IntArray, share: Share | None = None) -> IntArray:
    """A client's row of the policy's allocation, from its own counts and, if the policy needs numbers, its share."""
    if policy.is_local:
        own: IntArray = policy.allocate(LabelCounts(row[None])).n[0]
        return own
    if share is None:
        raise PolicyError("a policy that spends a fleet's budget needs the client's share of it")
    generated = np.zeros_like(row)
    if isinstance(policy, MissingOnly):
        absent = np.flatnonzero(row == 0)
        generated[absent] = spread_evenly(share.total, share.absent, share.absent_before, absent.size)
    else:
        generated[:] = spread_evenly(share.total, share.clients * row.size, share.place * row.size, row.size)
    return generated
