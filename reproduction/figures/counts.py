"""Redraw the paper's figures that follow from label counts, on its CIFAR-10 partition (K = 20, alpha = 0.1)."""

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from numpy.typing import NDArray

import fedeas
from reproduction.figures import style
from reproduction.published import EXAMPLE, example_counts, published, setting

COUNTS = example_counts()
POLICY = fedeas.FedEAS(float(published().totals.beta))
PLAN = POLICY.allocate(COUNTS)
SWEEP = tuple(map(float, published().beta_sweep.beta))
MIN_REMOVED, MAX_SHARE = 0.5, 0.25  # the paper's two conditions on beta
TOP_CLIENTS = 5  # of Fig. 2(a)
CURVE_POINTS = 40


@style.styled
def demand_figure() -> Figure:
    """Fig. 1(a): samples that each client generates under Full-Balance and under FedEAS."""
    demand = fedeas.FullBalance().allocate(COUNTS)
    order = np.argsort(-demand.per_client, kind="stable")
    title = f"FedEAS generates {PLAN.total / demand.total:.1%} of what balancing every client takes"
    figure, axes = _panel(title, height=4.4)
    names = (f"Full-Balance demand: {demand.total:,} samples", f"{POLICY.spec}: {PLAN.total:,} samples")
    places, hatched = np.arange(len(order)), {"edgecolor": style.GREY, "linewidth": 0.8, "hatch": "/////"}
    axes.bar(places, demand.per_client[order], 0.84, color="white", label=names[0], **hatched)
    axes.bar(places, PLAN.per_client[order], 0.5, color=style.BLUE, label=names[1])
    axes.set_xticks(range(COUNTS.num_clients), [COUNTS.client_name(client) for client in order])
    axes.set(xlabel="client, in falling order of demand", ylabel="synthetic samples", xlim=(-0.7, len(order) - 0.3))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(axis="y", **style.GRID)
    axes.legend(loc="upper right")
    return figure


@style.styled
def concentration_figure() -> Figure:
    """Fig. 2(a): the share of the imbalance and of the budget that the most imbalanced clients have."""
    shares = fedeas.concentration(COUNTS, PLAN)
    held, received = (float(values[TOP_CLIENTS - 1]) for values in (shares.imbalance, shares.budget))
    title = f"{TOP_CLIENTS} of {COUNTS.num_clients} clients hold {held:.1%} of the imbalance "
    figure, axes = _panel(f"{title}and receive {received:.1%} of the budget")
    for values, colour, name, offset in (
        (shares.imbalance, style.VERMILLION, "imbalance score", (-8, 6)),
        (shares.budget, style.BLUE, f"{POLICY.spec} budget", (46, -14)),
    ):
        axes.plot(np.append(0.0, values), "o-", color=colour, markersize=4, label=name)
        top = float(values[TOP_CLIENTS - 1])
        axes.plot(TOP_CLIENTS, top, "o", color=colour, markersize=8)
        text = {"textcoords": "offset points", "ha": "right", "color": colour, "weight": "bold"}
        axes.annotate(f"{top:.1%}", (TOP_CLIENTS, top), offset, **text)
    axes.plot((0, COUNTS.num_clients), (0, 1), ":", color=style.GREY, linewidth=1.2, label="if all clients were alike")
    axes.axvline(TOP_CLIENTS, color=style.GREY, linewidth=0.8, zorder=1)
    axes.set(xlabel="clients counted, in falling order of imbalance", ylabel="share held so far")
    axes.set(xlim=(0, COUNTS.num_clients + 0.3), ylim=(0, 1.03), xticks=range(0, COUNTS.num_clients + 1, TOP_CLIENTS))
    style.percent_axis(axes.yaxis)
    axes.grid(**style.GRID)
    axes.legend(loc="lower right")
    return figure


@style.styled
def reduction_figure() -> Figure:
    """Fig. 2(b): imbalance removed as the budget grows, for FedEAS, Uniform and the greedy reference."""
    path = fedeas.beta_path(POLICY, COUNTS, 1.06 * SWEEP[-1])
    figure, axes = _panel("The same number of samples removes more imbalance in scarce classes")
    steps = np.searchsorted(path.beta, SWEEP, side="right") - 1
    matched = path.total[steps]
    budgets = np.union1d(np.linspace(0, path.total[-1], CURVE_POINTS).astype(int), matched)
    greedy, uniform = (
        fedeas.budget_path(COUNTS, (policy(int(budget)).allocate(COUNTS) for budget in budgets)).removed
        for policy in (fedeas.Greedy, fedeas.Uniform)
    )
    optimal = [fedeas.Optimal(int(budget)).allocate(COUNTS) for budget in budgets]
    most = [fedeas.imbalance_removed(COUNTS, best) + best.gap / fedeas.imbalance(COUNTS) for best in optimal]
    slack = float((np.array(most) - greedy).max())  # how much more than greedy any allocation could remove
    at = np.searchsorted(budgets, matched)
    bound = 10.0 ** np.ceil(np.log10(max(100 * slack, 1e-9)))  # the next power of ten
    name = f"greedy (optimal is within {bound:g} points)"
    axes.plot(budgets, greedy, "--", color=style.INK, linewidth=1.4, label=name)
    axes.plot(path.total, path.removed, "o-", color=style.BLUE, markevery=list(steps), label="FedEAS")
    axes.plot(budgets, uniform, "s-", color=style.ORANGE, markevery=list(at), label="uniform, at the same budgets")
    for beta, total, share in zip(SWEEP, matched, uniform[at], strict=True):
        axes.annotate(f"β = {beta:g}", (total, share), (6, -15), textcoords="offset points", fontsize=10)
    same = (fedeas.Uniform(POLICY).allocate(COUNTS), PLAN)
    low, high = (fedeas.imbalance_removed(COUNTS, plan) for plan in same)
    arrow = {"arrowstyle": "|-|", "color": style.INK, "shrinkA": 5, "shrinkB": 5, "mutation_scale": 5}
    axes.annotate("", (PLAN.total, low), (PLAN.total, high), arrowprops=arrow)
    place, gap = (PLAN.total, low + 0.68 * (high - low)), f"+{100 * (high - low):.1f} points"
    axes.annotate(gap, place, (9, 0), textcoords="offset points", va="center")
    axes.set(xlabel="synthetic samples in all", ylabel="imbalance removed", xlim=(0, None), ylim=(0, None))
    style.percent_axis(axes.yaxis)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(**style.GRID)
    axes.legend(loc="lower right")
    return figure


@style.styled
def overview_figure() -> Figure:
    """Fig. 3: from entropy to budget to fill, on four clients from the most to the least skewed."""
    # From the most to the least skewed, in about equal steps of entropy.
    wanted = np.linspace(COUNTS.entropy.min(), COUNTS.entropy.max(), 4)
    chosen = np.abs(COUNTS.entropy[:, None] - wanted).argmin(axis=0)
    figure = style.new_figure(10, 10.5)
    parts: Any = figure.subfigures(2, 1, height_ratios=(1, 2.3), hspace=0.03)
    top, bottom = parts
    _entropy_to_budget(top.subplots(), chosen)
    bottom.suptitle("What the marked clients hold under each policy (grey: real, colour: synthetic, dashed: budget b)")
    policies = (fedeas.FullBalance(), fedeas.Uniform(POLICY), fedeas.MissingOnly(POLICY), POLICY)
    panels = bottom.subplots(len(chosen), len(policies), sharex=True, sharey=True)
    classes, budgets = range(COUNTS.num_classes), POLICY.budgets(COUNTS)
    for column, policy in zip(panels.T, policies, strict=True):
        plan = policy.allocate(COUNTS)
        column[0].set_title(f"{policy.name()}\n{plan.total:,} samples in all", fontsize=10)
        for axes, client in zip(column, chosen, strict=True):
            axes.bar(classes, COUNTS.n[client], color=style.GREY)
            colour = style.BLUE if policy is POLICY else style.ORANGE
            axes.bar(classes, plan.n[client], bottom=COUNTS.n[client], color=colour)
            axes.set_yscale("symlog", linthresh=10, linscale=0.5)
            axes.set_ylim(0, 2 * COUNTS.n.max())
            axes.yaxis.set_major_formatter(EngFormatter(sep=""))
            if policy is POLICY:
                axes.axhline(budgets[client], color=style.INK, linestyle="--", linewidth=1)
                right = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
                axes.annotate(f"b = {budgets[client]}", (1, budgets[client]), (2, 0), **right)
            axes.set_xticks(classes, COUNTS.class_names)
            axes.tick_params(axis="x", rotation=90 if max(map(len, COUNTS.class_names)) > 2 else 0, labelsize=9)
    for axes, client in zip(panels[:, 0], chosen, strict=True):
        axes.set_ylabel(f"client {COUNTS.client_name(client)}\nsamples")
    return figure


def _entropy_to_budget(axes: Any, chosen: NDArray[np.int64]) -> None:
    budgets, mean = POLICY.budgets(COUNTS), COUNTS.sizes / COUNTS.num_classes
    dots = axes.scatter(COUNTS.entropy, budgets, mean, color=style.SKY, alpha=0.8, edgecolors="white")
    axes.scatter(COUNTS.entropy[chosen], budgets[chosen], mean[chosen], color=style.VERMILLION, edgecolors="white")
    for client in chosen:
        place, below = (COUNTS.entropy[client], budgets[client]), -13 - np.sqrt(mean[client]) / 2
        text = f"client {COUNTS.client_name(client)}"
        axes.annotate(text, place, (0, below), textcoords="offset points", ha="center", color="#a34700")
    keys = dots.legend_elements("sizes", num=3, fmt="{x:,.0f}", color=style.SKY)
    axes.legend(*keys, title="mean samples\nper class", loc="upper right", labelspacing=1.1, borderpad=0.8)
    axes.set(xlabel="normalised entropy of the client's labels (0: one class, 1: balanced)", xlim=(0, 1))
    axes.set(ylabel="budget b of each class", ylim=(0, 1.12 * budgets.max()))
    axes.set_title(f"More skew, and more data, give a larger budget: {POLICY.spec}, {setting(EXAMPLE).title}")
    axes.grid(**style.GRID)


@style.styled
def selection_figure() -> Figure:
    """Fig. 5(b): the betas that remove enough imbalance with few enough synthetic samples."""
    path = fedeas.beta_path(POLICY, COUNTS, 1.25 * SWEEP[-1])
    interval = fedeas.select_beta(COUNTS, POLICY, MIN_REMOVED, MAX_SHARE)
    figure, axes = _panel(f"Both conditions hold for β in [{interval.lo:.2f}, {interval.hi:.2f})")
    share = path.total / (COUNTS.total + path.total)
    steps = np.searchsorted(path.beta, SWEEP, side="right") - 1
    inside = (path.beta >= interval.lo) & (path.beta < interval.hi)
    axes.fill_between((0, MAX_SHARE), MIN_REMOVED, 1, color=style.GREEN, alpha=0.15, linewidth=0)
    axes.axhline(MIN_REMOVED, color=style.GREY, linestyle="--", linewidth=1.2)
    axes.axvline(MAX_SHARE, color=style.GREY, linestyle="--", linewidth=1.2)
    note = f"at least {MIN_REMOVED:.0%} removed,\nless than {MAX_SHARE:.0%} synthetic"
    axes.text(0.5 * MAX_SHARE, MIN_REMOVED + 0.2, note, ha="center", va="center", color="#00664b")
    axes.plot(share[inside], path.removed[inside], color=style.ORANGE, linewidth=7, solid_capstyle="butt")
    axes.plot(share, path.removed, "o-", color=style.BLUE, markevery=list(steps), markersize=7)
    for beta, step in zip(SWEEP, steps, strict=True):
        place = (share[step], path.removed[step])
        axes.annotate(f"β = {beta:g}", place, (-8, 7), textcoords="offset points", ha="right")
    axes.set(xlabel="synthetic share of the training data", ylabel="imbalance removed")
    axes.set(xlim=(0, 1.05 * share[-1]), ylim=(0, 1.1 * path.removed[-1]))
    style.percent_axis(axes.xaxis)
    style.percent_axis(axes.yaxis)
    return figure


@style.styled
def closed_form_figure() -> Figure:
    """Supplement B: the heterogeneity left in the two-client case, and how fast it falls."""
    ratio = np.linspace(0, 1, 1001)
    left = fedeas.heterogeneity_left(ratio)
    slope = np.abs(np.gradient(left, ratio, edge_order=2))
    figure = style.new_figure(9, 4)
    figure.set_layout_engine("constrained", wspace=0.06)
    share, speed = figure.subplots(1, 2)
    share.plot(ratio, left, color=style.VERMILLION, label="heterogeneity left, h(r)")
    share.plot(ratio, 1 - left, color=style.BLUE, label="removed, 1 − h(r)")
    share.set(title="Two clients that hold one class each", ylabel="share of the heterogeneity", ylim=(0, 1.02))
    share.legend(loc="center right")
    style.percent_axis(share.yaxis)
    speed.plot(ratio, slope, color=style.PURPLE)
    speed.set(title="The first samples count most", ylabel="drop per unit of r, |h′(r)|", ylim=(0, 1.08 * slope[0]))
    for end, height, offset in ((0, float(slope[0]), (12, -4)), (1, float(slope[-1]), (-72, 14))):
        speed.plot(end, height, "o", color=style.PURPLE, clip_on=False)
        speed.annotate(f"{height:.2f} at r = {end}", (end, height), offset, textcoords="offset points")
    for axes in (share, speed):
        axes.set(xlabel="synthetic over real samples, r", xlim=(0, 1.02))
        axes.grid(**style.GRID)
    return figure


COUNT_FIGURES: dict[str, Callable[[], Figure]] = {
    "fig1a-demand": demand_figure,
    "fig2a-concentration": concentration_figure,
    "fig2b-reduction": reduction_figure,
    "fig3-overview": overview_figure,
    "fig5b-selection": selection_figure,
    "supp-closed-form": closed_form_figure,
}


def _panel(title: str, height: float = 4.8) -> tuple[Figure, Any]:
    return style.panel(f"{title}\n{setting(EXAMPLE).title}", 8, height)
