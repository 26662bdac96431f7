"""Charts of a plan: images of each client, what policies remove for their images, and who holds the imbalance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedeas.core.arrays import IntArray
from fedeas.core.foreign_text import for_html
from fedeas.planning import scores
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.scores import BudgetPath
from fedeas.views import figures as plots
from fedeas.views.web.html_plot import Axis, Plot, Series
from fedeas.views.web.plan_result import Curves

ROW = 20  # pixels of a client's row


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


def demand_dots(counts: LabelCounts, allocation: Allocation, demand: Allocation, rows: IntArray) -> Plot:
    """Images of each client under this plan and under full balance, a row for each client."""
    names = [for_html(counts.client_name(row)) for row in rows]
    plans = (
        ("this plan", allocation.per_client[rows], plots.BLUE, "circle"),
        ("full balance", demand.per_client[rows], plots.GREY, "ring"),
    )
    most = max(1, *(int(images.max()) for _, images, *_ in plans))
    dots = []
    for label, images, colour, mark in plans:
        tips = [f"client {name}\n{label}: {number:,} images" for name, number in zip(names, images, strict=True)]
        dots.append(Series(label, images, range(len(names)), colour, tips, mark=mark))
    return Plot(
        "Images of each client",
        ROW * len(names),
        Axis("", 0, 1.03 * most, {value: f"{value:,}" for value in range(0, most + 1, _step(most))}),
        Axis("client", len(names) - 0.5, -0.5, dict(enumerate(names))),
        dots,
        labels_above=True,
    )


def trade_off(curves: Curves, spec: str, images: int, removed: float) -> Plot:
    """Imbalance removed against budget for all policies, with the current plan as a star."""
    plan = BudgetPath(np.array([images]), np.array([0.0]), np.array([removed]))
    paths = {"this plan": plan} | {name: curves.paths[name] for name in CURVES if name in curves.paths}
    lowest = min(float(path.removed.min()) for path in paths.values())
    return Plot(
        "Imbalance removed for how many images",
        360,
        _budget_axis(np.concatenate([path.total for path in paths.values()])),
        _share_axis("imbalance removed", max(min(0.0, lowest), -0.5) - 0.03, 1.05),
        [_curve(name, path, for_html(spec) if path is plan else name) for name, path in paths.items()],
        curves.budgets,
    )


def _curve(name: str, path: BudgetPath, policy: str) -> Series:
    look, points = CURVES[name], zip(path.total.tolist(), path.removed.tolist(), strict=True)
    tips = [f"{policy}\n{images:,} images\n{removed:.1%} removed" for images, removed in points]
    return Series(name + look.remark, path.total, path.removed, look.colour, tips, look.width, look.dash, look.mark)


def concentration(counts: LabelCounts, allocation: Allocation) -> Plot:
    """The share of the imbalance and of the budget that the most imbalanced clients have."""
    held = scores.concentration(counts, allocation)
    shares = np.arange(counts.num_clients + 1) / counts.num_clients
    lines = []
    for label, values, colour, dash in (
        ("imbalance", np.append(0, held.imbalance), plots.VERMILLION, "solid"),
        ("planned images", np.append(0, held.budget), plots.BLUE, "dashed"),
    ):
        points = zip(shares, values, strict=True)
        tips = [f"the most imbalanced {share:.0%}\nhold {value:.1%} of the {label}" for share, value in points]
        lines.append(Series(label, shares, values, colour, tips, 2.5, dash))
    return Plot(
        "Who holds imbalance and budget",
        300,
        _share_axis("share of the clients, most imbalanced first", 0, 1.03),
        _share_axis("share held", 0, 1.03),
        [*lines, Series("if all were alike", [0, 1], [0, 1], plots.GREY, width=1, dash="dotted")],
    )


def _budget_axis(budgets: IntArray) -> Axis:
    """A logarithmic axis with a label for each power of ten, or with more labels if it has only one of these."""
    used = budgets[budgets > 0] if budgets.any() else np.ones(1)
    start, end = float(used.min()) / 1.2, float(used.max()) * 1.2

    def labels(*parts: int) -> dict[float, str]:
        values = (part * 10**power for power in range(12) for part in parts)
        return {value: f"{value:,}" for value in values if start <= value <= end}

    shown = labels(1) if len(labels(1)) > 1 else labels(1, 2, 5)
    return Axis("images to generate (logarithmic)", start, end, shown, log=True)


def _share_axis(title: str, start: float, end: float) -> Axis:
    return Axis(title, start, end, {part / 5: f"{part / 5:.0%}" for part in range(-5, 6) if start <= part / 5 <= end})


def _step(most: int) -> int:
    """The smallest 1, 2 or 5 times a power of ten that divides an axis up to `most` into six parts or fewer."""
    steps = (part * 10**power for power in range(20) for part in (1, 2, 5))
    return int(next(step for step in steps if 6 * step >= most))
