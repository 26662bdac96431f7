"""Figures of accuracy: at equal budget, over growing budgets, and over the imbalance removed.

They take plain numbers and do not depend on runs. A method that was not run is shown as an empty place with a note.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from reproduction.figures import style
from reproduction.tables import NOT_RUN

PAPER: dict[str, Any] = {"linestyle": "--", "linewidth": 1.4, "alpha": 0.6}  # how the paper's lines differ from ours


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
    for place, bar in enumerate(bars):
        colour = looks[bar.name].colour
        _solid_bar(axes, place - width / 2 if printed else place, width, bar, colour)
        if bar.paper is not None:
            axes.bar(place + width / 2, bar.paper, 0.94 * width, **_hollow(colour))
            _number(axes, place + width / 2, bar.paper, bar.paper)
    axes.set_xticks(range(len(bars)), [textwrap.fill(bar.name, 16) for bar in bars])
    axes.tick_params(axis="x", length=0, labelsize=11)
    tops = [(bar.ours or 0) + (bar.spread or 0) for bar in bars] + [bar.paper or 0 for bar in bars]
    axes.set(ylabel=_level(window), xlim=(-0.6, max(len(bars), 1) - 0.4), ylim=(0, 1.12 * max([10, *tops])))
    axes.grid(axis="y", **style.GRID)
    if not bars:
        style.say_not_run(axes)
    if printed:
        keys = [Patch(color=style.GREY, label="ours"), Patch(**_hollow(style.GREY), label="the paper")]
        figure.legend(handles=keys, loc="outside lower center", ncols=2)
    return figure


@style.styled
def budget_figure(sweeps: Sequence[Sweep], fedavg: Bar, full_balance: Bar, title: str, window: str) -> Figure:
    """Fig. 5(a): accuracy as the total grows, between FedAvg and Full-Balance; the paper's are pale and dashed."""
    figure, axes = style.panel(title, style.WIDTH, 4.6)
    references = (fedavg, full_balance)
    looks = style.looks_by_name([*(sweep.name for sweep in sweeps), *(bar.name for bar in references)])
    totals = [total for sweep in sweeps for total in sweep.totals]
    axes.set(xlabel="synthetic samples in all", ylabel=_level(window), xlim=(0, 1.05 * max([1, *totals])))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(**style.GRID)
    for sweep in sweeps:
        # A line is interrupted where a number is missing.
        colour, (ours, spread, paper) = (
            looks[sweep.name].colour,
            np.array([bar[1:] for bar in sweep.bars], dtype=float).T,
        )
        if not np.isnan(paper).all():
            axes.plot(sweep.totals, paper, marker="o", markerfacecolor="white", color=colour, **PAPER)
        if not np.isnan(ours).all():
            axes.errorbar(sweep.totals, ours, np.nan_to_num(spread), fmt="o-", color=colour, capsize=3, elinewidth=1.2)
    ends = [end for bar in references for end in _draw_reference(axes, bar, looks[bar.name])]
    axes.margins(y=0.12)
    style.name_ends(axes, ends)
    bars = [*chain.from_iterable(sweep.bars for sweep in sweeps), *references]
    printed = _known([bar.paper for bar in bars])
    if not _known([bar.ours for bar in bars]):
        style.say_not_run(axes, bare=not printed)
    keys = [style.key(_run_part(sweep), looks[sweep.name]) for sweep in sweeps]
    keys += [style.key(f"{bar.name}: {NOT_RUN}", looks[bar.name]) for bar in references if bar.ours is None]
    keys += [Line2D([], [], color=style.GREY, label="the paper", **PAPER)] if printed else []
    figure.legend(handles=keys, loc="outside lower center", ncols=3)
    return figure


@style.styled
def removal_figure(removals: Sequence[tuple[float, Bar]], title: str, window: str) -> Figure:
    """Accuracy over the imbalance removed, in percent: dots are ours, named beside the panel; diamonds the paper's."""
    figure, axes = style.panel(title, style.WIDTH, 4.6)
    looks, bars = style.looks_by_name(bar.name for _, bar in removals), [bar for _, bar in removals]
    ends = [end for each in removals for end in _draw_removal(axes, *each, looks[each[1].name])]
    axes.set(xlabel="label imbalance removed, %", ylabel=_level(window))
    axes.grid(**style.GRID)
    axes.margins(x=0.06, y=0.12)
    style.name_ends(axes, ends, width=0.8)
    printed = bool(_known([bar.paper for bar in bars]))
    if not ends:
        style.say_not_run(axes, bare=not printed)
    missing = [bar.name for bar in bars if bar.ours is None]
    ours = "ours, ± deviation over seeds" if _known([bar.spread for bar in bars]) else "ours"
    keys = [Line2D([], [], color=style.GREY, marker="o", linestyle="", label=ours)] if ends else []
    keys += [Line2D([], [], color=style.GREY, label="the paper", **style.DIAMOND)] if printed else []
    keys += [Line2D([], [], linestyle="", label=f"{NOT_RUN}: {', '.join(missing)}")] if ends and missing else []
    if keys:
        figure.legend(handles=keys, loc="outside lower center", ncols=3)
    return figure


def _level(window: str) -> str:
    return f"accuracy, %, mean of {window}"


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _hollow(colour: str) -> dict[str, Any]:
    return {"facecolor": "white", "edgecolor": colour, "linewidth": 1.6}


def _solid_bar(axes: Any, place: float, width: float, bar: Bar, colour: str) -> None:
    if bar.ours is None:
        axes.annotate(NOT_RUN, (place, 0), (0, 6), rotation=90, ha="center", color=style.GREY, **style.POINTS)
        return
    whiskers = {"capsize": 4, "error_kw": {"ecolor": style.INK, "elinewidth": 1.2}}
    axes.bar(place, bar.ours, 0.94 * width, color=colour, yerr=bar.spread, **whiskers)
    _number(axes, place, bar.ours + (bar.spread or 0), bar.ours)


def _number(axes: Any, place: float, height: float, value: float) -> None:
    axes.annotate(f"{value:.2f}", (place, height), (0, 3), ha="center", **style.POINTS)


def _draw_reference(axes: Any, bar: Bar, look: style.Look) -> list[style.End]:
    """Draw horizontal lines at ours and at the paper's; return names for them."""
    right, ends = axes.get_xlim()[1], []
    if bar.ours is not None:
        axes.axhline(bar.ours, color=look.colour, linewidth=1.6)
        ends.append(style.End(f"{bar.name} {bar.ours:.2f}", look, (right, bar.ours)))
    if bar.paper is not None:
        axes.axhline(bar.paper, color=look.colour, **PAPER)
        ends.append(style.End(f"{bar.name} {bar.paper:.2f} (paper)", look, (right, bar.paper)))
    return ends


def _draw_removal(axes: Any, removed: float, bar: Bar, look: style.Look) -> list[style.End]:
    """Draw a dot at ours, with its spread, and a diamond at the paper's; return a name for the dot."""
    if bar.paper is not None:
        axes.plot(removed, bar.paper, color=look.colour, **style.DIAMOND)
    if bar.ours is None:
        return []
    axes.errorbar(removed, bar.ours, bar.spread, fmt="o", color=look.colour, capsize=3, markersize=7)
    return [style.End(f"{bar.name} {bar.ours:.2f}", look, (removed, bar.ours))]


def _run_part(sweep: Sweep) -> str:
    """The sweep's name, and how much of it was run, unless all was."""
    run, wanted = len(_known([bar.ours for bar in sweep.bars])), len(sweep.bars)
    if not run:
        return f"{sweep.name}: {NOT_RUN}"
    return sweep.name if run == wanted else f"{sweep.name}: {run} of {wanted} run"
