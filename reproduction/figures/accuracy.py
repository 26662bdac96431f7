"""Figures of accuracy: by policy, over growing budgets, over the imbalance removed, and all in a summary.

They take plain numbers and do not depend on runs. A method that was not run is shown as an empty place with a note.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import chain, groupby
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fedeas.runs import Measured
from reproduction.figures import style
from reproduction.tables import NOT_RUN

PAPER: dict[str, Any] = {"linestyle": "--", "linewidth": 1.4, "alpha": 0.6}  # how the paper's lines differ from ours
LEVEL = "accuracy, %, mean of {}"
CLEAN: dict[str, Any] = {"marker": "o", "markersize": 8}
REPLAYED: dict[str, Any] = {"marker": "s", "markersize": 6, "alpha": 0.55}
KINDS = {"ours ± deviation, clean protocol": CLEAN, "ours, the paper's protocol": REPLAYED, "the paper": style.DIAMOND}
APART = 0.22  # distance between the markers of one policy, relative to the distance between policies


class Bar(NamedTuple):
    """A method's accuracy in percent: ours with its spread (None if it was not run), and the paper's, if any."""

    name: str
    ours: float | None
    spread: float | None = None
    paper: float | None = None


class Sweep(NamedTuple):
    """A policy's accuracy at each of these totals."""

    name: str
    totals: Sequence[int]
    bars: Sequence[Bar]


@style.styled
def allocation_figure(bars: Sequence[Bar], title: str, window: str) -> Figure:
    """Fig. 1(b): accuracy of each policy at equal budget; ours as solid bars, the paper's as hollow bars."""
    figure, axes = style.panel(title, min(style.WIDTH, 2.0 + 1.5 * len(bars)), 4.6)
    printed = any(bar.paper is not None for bar in bars)
    looks, width = style.looks_by_name(bar.name for bar in bars), 0.38 if printed else 0.6
    whiskers = {"capsize": 4, "error_kw": {"ecolor": style.INK, "elinewidth": 1.2}}
    hollow: dict[str, Any] = {"facecolor": "white", "linewidth": 1.6}
    above: dict[str, Any] = {"xytext": (0, 3), "ha": "center", **style.POINTS}
    for number, bar in enumerate(bars):
        colour, place = looks[bar.name].colour, number - width / 2 if printed else number
        if bar.ours is None:
            axes.annotate(NOT_RUN, (place, 0), (0, 6), rotation=90, ha="center", color=style.GREY, **style.POINTS)
        else:
            axes.bar(place, bar.ours, 0.94 * width, color=colour, yerr=bar.spread, **whiskers)
            axes.annotate(f"{bar.ours:.2f}", (place, bar.ours + (bar.spread or 0)), **above)
        if bar.paper is not None:
            axes.bar(number + width / 2, bar.paper, 0.94 * width, edgecolor=colour, **hollow)
            axes.annotate(f"{bar.paper:.2f}", (number + width / 2, bar.paper), **above)
    axes.set_xticks(range(len(bars)), [textwrap.fill(bar.name, 16) for bar in bars])
    axes.tick_params(axis="x", length=0, labelsize=11)
    tops = [(bar.ours or 0) + (bar.spread or 0) for bar in bars] + [bar.paper or 0 for bar in bars]
    axes.set(ylabel=LEVEL.format(window), xlim=(-0.6, max(len(bars), 1) - 0.4), ylim=(0, 1.12 * max([10, *tops])))
    axes.grid(axis="y", **style.GRID)
    if not bars:
        style.say_not_run(axes)
    if printed:
        keys = [Patch(color=style.GREY, label="ours"), Patch(edgecolor=style.GREY, label="the paper", **hollow)]
        figure.legend(handles=keys, loc="outside lower center", ncols=2)
    return figure


@style.styled
def budget_figure(sweeps: Sequence[Sweep], fedavg: Bar, full_balance: Bar, title: str, window: str) -> Figure:
    """Fig. 5(a): accuracy as the total grows, between FedAvg and Full-Balance; the paper's are pale and dashed."""
    figure, axes = style.panel(title, style.WIDTH, 4.6)
    references = (fedavg, full_balance)
    looks = style.looks_by_name([*(sweep.name for sweep in sweeps), *(bar.name for bar in references)])
    right = 1.05 * max([1, *(total for sweep in sweeps for total in sweep.totals)])
    axes.set(xlabel="synthetic samples in all", ylabel=LEVEL.format(window), xlim=(0, right))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(**style.GRID)
    keys, ends = list[Line2D](), list[style.End]()
    for sweep in sweeps:
        colour, missing = looks[sweep.name].colour, sum(bar.ours is None for bar in sweep.bars)
        # A line is interrupted where a number is missing.
        ours, spread, paper = np.array([bar[1:] for bar in sweep.bars], dtype=float).T
        if not np.isnan(paper).all():
            axes.plot(sweep.totals, paper, marker="o", markerfacecolor="white", color=colour, **PAPER)
        if not np.isnan(ours).all():
            axes.errorbar(sweep.totals, ours, np.nan_to_num(spread), fmt="o-", color=colour, capsize=3, elinewidth=1.2)
        number = len(sweep.bars)
        run = f": {number - missing} of {number} run" if missing < number else f": {NOT_RUN}"
        keys.append(style.key(sweep.name + run * bool(missing), looks[sweep.name]))
    for bar in references:
        look = looks[bar.name]
        if bar.ours is not None:
            axes.axhline(bar.ours, color=look.colour, linewidth=1.6)
            ends.append(style.End(f"{bar.name} {bar.ours:.2f}", look, (right, bar.ours)))
        if bar.paper is not None:
            axes.axhline(bar.paper, color=look.colour, **PAPER)
            ends.append(style.End(f"{bar.name} {bar.paper:.2f} (paper)", look, (right, bar.paper)))
        keys += [style.key(f"{bar.name}: {NOT_RUN}", look)] if bar.ours is None else []
    axes.margins(y=0.12)
    style.name_ends(axes, ends)
    bars = [*chain.from_iterable(sweep.bars for sweep in sweeps), *references]
    printed = any(bar.paper is not None for bar in bars)
    if all(bar.ours is None for bar in bars):
        style.say_not_run(axes, bare=not printed)
    keys += [Line2D([], [], color=style.GREY, label="the paper", **PAPER)] if printed else []
    figure.legend(handles=keys, loc="outside lower center", ncols=3)
    return figure


@style.styled
def removal_figure(removals: Sequence[tuple[float, Bar]], title: str, window: str) -> Figure:
    """Accuracy over the imbalance removed, in percent: dots are ours, named beside the panel; diamonds the paper's."""
    figure, axes = style.panel(title, style.WIDTH, 4.6)
    looks, ends = style.looks_by_name(bar.name for _, bar in removals), list[style.End]()
    for removed, bar in removals:
        look = looks[bar.name]
        if bar.paper is not None:
            axes.plot(removed, bar.paper, color=look.colour, **style.DIAMOND)
        if bar.ours is not None:
            axes.errorbar(removed, bar.ours, bar.spread, fmt="o", color=look.colour, capsize=3, markersize=7)
            ends.append(style.End(f"{bar.name} {bar.ours:.2f}", look, (removed, bar.ours)))
    axes.set(xlabel="label imbalance removed, %", ylabel=LEVEL.format(window))
    axes.grid(**style.GRID)
    axes.margins(x=0.06, y=0.12)
    style.name_ends(axes, ends, width=0.8)
    printed = any(bar.paper is not None for _, bar in removals)
    if not ends:
        style.say_not_run(axes, bare=not printed)
    missing = [bar.name for _, bar in removals if bar.ours is None]
    ours = "ours, ± deviation over seeds" if any(bar.spread is not None for _, bar in removals) else "ours"
    keys = [style.mark(ours, style.GREY, marker="o")] if ends else []
    keys += [style.mark("the paper", style.GREY, **style.DIAMOND)] if printed else []
    keys += [style.mark(f"{NOT_RUN}: {', '.join(missing)}", style.GREY)] if ends and missing else []
    if keys:
        figure.legend(handles=keys, loc="outside lower center", ncols=3)
    return figure


class Spot(NamedTuple):
    """The accuracy of a policy at a budget, in percent: ours and the paper's."""

    budget: str
    policy: str
    clean: Measured | None = None
    replayed: Measured | None = None
    paper: float | None = None


@style.styled
def overview_figure(panels: Mapping[str, Sequence[Spot]], window: str) -> Figure:
    """One panel for each setting; budgets grow from left to right, and policies of one budget are side by side."""
    figure = style.new_figure(style.WIDTH, 1.1 + 3.1 * len(panels))
    places = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    known = {title: [spot for spot in spots if spot[2:] != (None,) * 3] for title, spots in panels.items()}
    every = [spot for spots in known.values() for spot in spots]
    looks = style.looks_by_name(spot.policy for spot in every)
    for axes, (title, spots) in zip(places, known.items(), strict=True):
        axes.set_title(title)
        axes.set_ylabel(f"accuracy, %,\nmean of {window}")
        # Policies are at whole numbers, with one empty place between two budgets.
        place, ticks = 0, dict[float, str]()
        for budget, group in groupby(spots, key=lambda spot: spot.budget):
            members = list(group)
            if ticks:
                axes.axvline(place, color=style.PALE, linewidth=0.8)
            for spot in members:
                place, colour = place + 1, looks[spot.policy].colour
                for offset, ours, kind in ((-APART, spot.clean, CLEAN), (0, spot.replayed, REPLAYED)):
                    if ours is not None:
                        whiskers = {"capsize": 3, "elinewidth": 1.2, "linestyle": "", "color": colour}
                        axes.errorbar(place + offset, ours.mean, ours.spread, **whiskers, **kind)
                if spot.paper is not None:
                    axes.plot(place + APART, spot.paper, color=colour, **style.DIAMOND)
            ticks[place - (len(members) - 1) / 2] = budget
            place += 1
        axes.set_xticks(list(ticks), list(ticks.values()))
        axes.tick_params(axis="x", length=0)
        axes.set(xlabel="budget: FedEAS's β, and synthetic images on the paper's partition", xlim=(0, max(place, 1)))
        axes.margins(y=0.12)
        axes.grid(axis="y", **style.GRID)
    drawn = [any(each is not None for each in kind) for kind in zip(*(spot[2:] for spot in every), strict=True)]
    kinds = [style.mark(name, style.INK, **KINDS[name]) for name, there in zip(KINDS, drawn, strict=False) if there]
    names = [style.mark(name, look.colour, marker="o") for name, look in looks.items()]
    figure.legend(handles=kinds, loc="outside upper left", ncols=3)
    figure.legend(handles=names, loc="outside lower center", ncols=4)
    return figure
