"""The laws of policies, on small tables of counts that are always the same."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedeas.core.errors import InputError, PolicyError
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies import AllocationPolicy, Policy, parse_policy
from fedeas.planning.policies.base import samples_in

TABLES = 12


def check_policy(policy: AllocationPolicy) -> None:
    """Check that a policy keeps the laws that plans and runs rely on.

    It gives an `Allocation` of the shape of the counts, the same each time, and leaves the counts as they are. If it
    says that it is local, a client's row depends on that client alone. If it has a `budget`, it spends it exactly. If
    it has a spec, the spec is read back. A `PolicyError` says that counts leave no room for a budget; such tables are
    passed over.
    """
    assert isinstance(getattr(policy, "is_local", None), bool), "is_local must be True or False"
    if isinstance(policy, Policy) and "<locals>" not in type(policy).__qualname__:  # else its name cannot be found
        assert parse_policy(policy.spec) == policy, f"the spec {policy.spec!r} is not read back as the same policy"
    checked = 0
    for counts in tables():
        try:
            plan = policy.allocate(counts)
        except PolicyError:
            continue
        except InputError as error:
            raise AssertionError(f"allocate fails for the counts {counts.n.tolist()}: {error}") from error
        checked += 1
        table = f"for the counts {counts.n.tolist()}"
        assert isinstance(plan, Allocation), f"allocate must give an Allocation, not {type(plan).__name__}"
        assert plan.n.shape == counts.n.shape, f"the allocation is {plan.n.shape} for counts of {counts.n.shape}"
        assert plan.n.min() >= 0, f"negative numbers of samples {table}"
        again = policy.allocate(LabelCounts(counts.n.copy()))
        assert np.array_equal(plan.n, again.n), f"two allocations differ {table}"
        budget = getattr(policy, "budget", None)
        if isinstance(budget, int | np.integer | Policy):
            wanted = samples_in(budget, [counts])  # type: ignore[arg-type]
            assert plan.total == wanted, f"{plan.total} samples are spent of a budget of {wanted}, {table}"
        for client in range(len(counts)) if policy.is_local else ():
            alone, row = policy.allocate(counts[[client]]).n[0], plan.n[client]
            rows = f"client {client} gets {row.tolist()} among the others, {alone.tolist()} alone"
            assert np.array_equal(row, alone), f"is_local, but {rows}, {table}"
    assert checked, "the policy refuses every table of counts"


def tables() -> Iterator[LabelCounts]:
    """Small tables: skewed ones of several sizes, a balanced one, one client, one class each."""
    rng = np.random.default_rng(0)
    for number in range(TABLES):
        clients, classes = 1 + number % 5, 2 + number % 4
        n = rng.integers(0, 40, (clients, classes)) * (rng.random((clients, classes)) < 0.6)
        n[np.arange(clients), rng.integers(0, classes, clients)] += 1  # no client is empty
        yield LabelCounts(n)
    yield LabelCounts(np.full((3, 4), 7))
    yield LabelCounts([[10, 0]])
    yield LabelCounts(np.diag([5, 1, 30]))
