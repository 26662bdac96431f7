"""What the page shows beside a plan, computed by the library: other policies, their prices and curves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedeas.core.arrays import IntArray
from fedeas.planning import scores
from fedeas.planning.beta import BetaInterval, select_beta
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies import (
    BySize,
    FedEAS,
    FullBalance,
    Greedy,
    MissingOnly,
    Optimal,
    Policy,
    Uniform,
    parse_policy,
)
from fedeas.planning.policies.base import Budgeted
from fedeas.planning.policies.waterfill import Waterfill
from fedeas.planning.request import compare_policies
from fedeas.planning.scores import BudgetPath

CURVE_BUDGETS, CURVE_BETAS = 13, 30
# Logarithms of the highest price over the others. They are dense for small budgets, which a logarithmic axis spreads
# out; at the last price nearly everything is balanced.
FALLS = np.geomspace(0.01, 14.0, 30)

Take = Callable[[Waterfill, float], IntArray]
TAKES: dict[str, Take] = {Greedy.name(): Waterfill.taken_above, Optimal.name(): Waterfill.best_at}


class Curves(NamedTuple):
    """Results that do not depend on the chosen policy: full demand, policies' paths, admissible betas and budgets."""

    demand: Allocation
    paths: dict[str, BudgetPath]
    interval: BetaInterval
    budgets: tuple[int, int] | None


def rivals(counts: LabelCounts, spec: str) -> list[Allocation]:
    """The built-in policies at the budget of this policy's plan; its spec identifies it in a cache."""
    policy = parse_policy(spec)
    return compare_policies(counts, policy, policy.allocate(counts))


def curves(counts: LabelCounts) -> Curves:
    """Imbalance removed against budget, from a thousandth of full balance's total to all of it."""
    demand = FullBalance().allocate(counts)
    interval = select_beta(counts)
    if not demand.total:  # all clients are balanced: there is nothing to draw
        return Curves(demand, {}, interval, None)
    budgets = np.unique(np.geomspace(max(1, demand.total / 1000), demand.total, CURVE_BUDGETS).astype(int)).tolist()
    kinds: list[type[Budgeted]] = [Uniform, BySize, MissingOnly]
    paths = {
        kind.name(): _path(counts, [kind(budget=budget) for budget in budgets]) for kind in kinds if kind.suits(counts)
    }
    vessels = Waterfill(counts)
    for name, take in TAKES.items():
        paths[name] = scores.budget_path(counts, reference_plans(vessels, take, fewest=budgets[0]))
    fedeas = _path(counts, [FedEAS(beta=float(beta)) for beta in np.geomspace(0.1, 100, CURVE_BETAS)])
    within = (fedeas.total >= budgets[0]) & (fedeas.total <= demand.total)
    if within.any():
        shown = BudgetPath(fedeas.total[within], fedeas.imbalance[within], fedeas.removed[within])
        paths = {"fedeas": shown, **paths}
    return Curves(demand, paths, interval, _admissible(counts, interval))


def reference_plans(vessels: Waterfill, take: Take, fewest: int) -> list[Allocation]:
    """Plans of greedy or of the optimum, from `fewest` samples to full balance, each total once.

    At any price of a sample each client can compute how many samples it takes. All of them together are what greedy, or
    the optimum, does with exactly that total. To meet a given budget, about fifty prices must be tried; a curve may
    have any budgets, so that each price gives one point.
    """
    taken = [*(take(vessels, float(price)) for price in vessels.highest_gain * np.exp(-FALLS)), vessels.demand]
    found = {int(samples.sum()): samples for samples in taken}
    return [Allocation(vessels.fill(found[total])) for total in sorted(found) if total >= fewest]


def prices(
    counts: LabelCounts, plans: Sequence[Allocation], chosen: str, rate: float, side: int
) -> dict[str, list[Any]]:
    """A table: images, minutes at a rate of images a second, and megabytes of uncompressed images of this side.

    Only the chosen policy is named with its parameters: all have the same budget.
    """
    images = [plan.generated for plan in plans]
    return {
        "policy": [plan.policy if plan.policy == chosen else plan.policy.partition("(")[0] for plan in plans],
        "images": images,
        "removed %": [100 * scores.imbalance_removed(counts, plan) for plan in plans],
        "minutes": [number / rate / 60 for number in images],
        "MB": [number * side * side * 3 / 1e6 for number in images],
        "most for one client": [int(plan.per_client.max()) for plan in plans],
    }


def _path(counts: LabelCounts, policies: Sequence[Policy]) -> BudgetPath:
    return scores.budget_path(counts, [policy.allocate(counts) for policy in policies])


def _admissible(counts: LabelCounts, interval: BetaInterval) -> tuple[int, int] | None:
    """The interval as budgets; its upper end is open, so the last budget is the one just below."""
    if not interval or not np.isfinite(interval.hi) or interval.lo <= 0:
        return None
    low, high = (FedEAS(beta=beta).allocate(counts).total for beta in (interval.lo, interval.hi * (1 - 1e-9)))
    return low, high
