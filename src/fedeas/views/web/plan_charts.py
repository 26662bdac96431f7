"""What the page shows beside a plan, computed by the library: other policies and their prices, and charts.

The charts show where images go, and what policies remove for their images.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedeas.core.arrays import IntArray
from fedeas.core.foreign_text import for_html
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
from fedeas.views import charts
from fedeas.views import figures as plots
from fedeas.views.charts import Spec
from fedeas.views.figures import DARK, LIGHT, Screen
from fedeas.views.web.html_plot import Axis, Plot, Series

ROW = 16  # pixels of a client's row, enough for its name
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


class CurveLook(NamedTuple):
    """How the curve of a policy is drawn."""

    colour: str
    width: float = 2
    dash: str = "solid"
    mark: str = ""
    remark: str = ""


# The first is on top. Greedy and optimal overlap, so that one of them is wider.
CURVES = {
    "this plan": CurveLook(plots.VERMILLION, width=0, mark="star"),
    "fedeas": CurveLook(plots.USUAL["fedeas"], width=3),
    "missing-only": CurveLook(plots.USUAL["missing-only"], mark="triangle"),
    "by-size": CurveLook(plots.PURPLE, mark="diamond"),
    "uniform": CurveLook(plots.USUAL["uniform"], mark="square"),
    "optimal": CurveLook(plots.GREY, dash="dotted", remark=" (reference)"),
    "greedy": CurveLook(plots.SKY, width=6, remark=" (reference)"),
}


def rivals(counts: LabelCounts, spec: str) -> list[Allocation]:
    """The built-in policies at the budget of this policy's plan; its spec identifies it in a cache."""
    policy = parse_policy(spec)
    return compare_policies(counts, policy, policy.allocate(counts))


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


def curves(counts: LabelCounts) -> Curves:
    """Imbalance removed against budget, from a thousandth of full balance's total to all of it."""
    demand = FullBalance().allocate(counts)
    interval = select_beta(counts)
    if not demand.total:  # all clients are balanced: there is nothing to draw
        return Curves(demand, {}, interval, None)

    def path(policies: Sequence[Policy]) -> BudgetPath:
        return scores.budget_path(counts, [policy.allocate(counts) for policy in policies])

    budgets = np.unique(np.geomspace(max(1, demand.total / 1000), demand.total, CURVE_BUDGETS).astype(int)).tolist()
    kinds: list[type[Budgeted]] = [Uniform, BySize, MissingOnly]
    paths = {kind.name(): path([kind(budget=budget) for budget in budgets]) for kind in kinds if kind.suits(counts)}
    vessels = Waterfill(counts)
    for name, take in TAKES.items():
        paths[name] = scores.budget_path(counts, reference_plans(vessels, take, fewest=budgets[0]))
    fedeas = path([FedEAS(beta=float(beta)) for beta in np.geomspace(0.1, 100, CURVE_BETAS)])
    within = (fedeas.total >= budgets[0]) & (fedeas.total <= demand.total)
    if within.any():
        paths["fedeas"] = BudgetPath(fedeas.total[within], fedeas.imbalance[within], fedeas.removed[within])
    admissible = None
    if interval and np.isfinite(interval.hi) and interval.lo > 0:
        ends = (interval.lo, interval.hi * (1 - 1e-9))  # the upper end is open: take the budget just below
        low, high = (FedEAS(beta=beta).allocate(counts).total for beta in ends)
        admissible = low, high
    return Curves(demand, paths, interval, admissible)


def reference_plans(vessels: Waterfill, take: Take, fewest: int) -> list[Allocation]:
    """Plans of greedy or of the optimum, from `fewest` samples to full balance, each total once.

    At any price of a sample each client can compute how many samples it takes. All of them together are what greedy, or
    the optimum, does with exactly that total. To meet a given budget, about fifty prices must be tried; a curve may
    have any budgets, so that each price gives one point.
    """
    taken = [*(take(vessels, float(price)) for price in vessels.highest_gain * np.exp(-FALLS)), vessels.demand]
    found = {int(samples.sum()): samples for samples in taken}
    return [Allocation(vessels.fill(found[total])) for total in sorted(found) if total >= fewest]


def tall_heat_map(counts: LabelCounts, table: IntArray, rows: IntArray, largest: int, screen: Screen = LIGHT) -> Spec:
    """A heat map with the name of every client, blank where there are no images, whose largest count is strongest."""
    figure, shown = charts.heat_map(counts, table, rows, largest, "images", screen), table[rows]
    (trace,), layout = figure["data"], figure["layout"]
    trace |= {"z": np.log10(np.where(shown, shown, np.nan)), "customdata": shown, "reversescale": screen is not DARK}
    height = max(150 + ROW * rows.size, 320)
    length = min(400, height - 180)  # beside the shortest map under the longest names
    trace["colorbar"] |= {"len": length, "lenmode": "pixels", "y": 1, "yanchor": "top"}
    angle = 90 if max(map(len, trace["x"])) > 3 else 0  # so that all of them fit
    layout["xaxis"] |= {"tickangle": angle, "side": "top"}
    layout["yaxis"] |= {"dtick": 1, "ticklabelstandoff": 7}
    layout["height"] = height
    return figure


def trade_off(curves: Curves, spec: str, images: int, removed: float) -> Plot:
    """Imbalance removed against budget for all policies, with the current plan as a star."""
    plan = BudgetPath(np.array([images]), np.array([0.0]), np.array([removed]))
    paths = {"this plan": plan} | {name: curves.paths[name] for name in CURVES if name in curves.paths}
    drawn = []
    for name, path in paths.items():
        look, policy = CURVES[name], for_html(spec) if path is plan else name
        points = zip(path.total.tolist(), path.removed.tolist(), strict=True)
        tips = [f"{policy}\n{number:,} images\n{share:.1%} removed" for number, share in points]
        across = np.log10(np.maximum(path.total, 0.01))  # nothing is left of the axis
        drawn.append(
            Series(name + look.remark, across, path.removed, look.colour, tips, look.width, look.dash, look.mark)
        )
    foot = max(min(0.0, *(float(path.removed.min()) for path in paths.values())), -0.5) - 0.03
    budgets = np.concatenate([path.total for path in paths.values()])
    used = budgets[budgets > 0] if budgets.any() else np.ones(1)
    start, end = np.log10(used.min() / 1.2), np.log10(used.max() * 1.2)

    def labels(*parts: int) -> dict[float, str]:
        values = (part * 10**power for power in range(12) for part in parts)
        return {float(np.log10(value)): f"{value:,}" for value in values if start <= np.log10(value) <= end}

    shares = {part / 5: f"{part / 5:.0%}" for part in range(-2, 6) if part / 5 >= foot}
    shown = labels(1) if len(labels(1)) > 1 else labels(1, 2, 5)  # one power of ten alone would not show a scale
    return Plot(
        "Imbalance removed for how many images",
        360,
        Axis("images to generate (logarithmic)", float(start), float(end), shown),
        Axis("imbalance removed", foot, 1.05, shares),
        drawn,
        curves.budgets and np.log10(curves.budgets),
    )
