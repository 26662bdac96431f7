"""Figures of what runs gave, beside what the paper prints: plain numbers in, pictures out.

They know nothing of runs. Whatever was not run is an empty place that says so.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from statistics import mean as exact_mean
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

from fedeas import plots
from fedeas.paper.marks import POINTS, End, Look, looks_of, name_ends

NOT_RUN = "not run"
COLUMNS = 2  # panels beside each other
GRID = {"color": plots.PALE, "linewidth": 0.6}
HALO = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.0}  # keeps text on lines legible
DIAMOND: dict[str, Any] = {"marker": "D", "linestyle": "", "markerfacecolor": "white", "markeredgewidth": 1.6}
PAPER: dict[str, Any] = {"linestyle": "--", "linewidth": 1.4, "alpha": 0.6}  # how the paper's lines differ from ours


class Course(NamedTuple):
    """Accuracy, as a share, of one run after each of these rounds."""

    rounds: Sequence[int]
    accuracy: Sequence[float]


class Line(NamedTuple):
    """A method in a panel: a course for each seed, none if it was not run; and the paper's round at the threshold."""

    name: str
    courses: Sequence[Course]
    paper_round: int | None = None


class Bar(NamedTuple):
    """A method's accuracy in percent: ours with its spread, None if it was not run; and the paper's, if any."""

    name: str
    ours: float | None
    spread: float | None = None
    paper: float | None = None


class Sweep(NamedTuple):
    """A policy's accuracy in percent at each of these totals; None where it was not run, or is not printed."""

    name: str
    totals: Sequence[int]
    ours: Sequence[float | None]
    spread: Sequence[float | None]
    paper: Sequence[float | None]


class Removal(NamedTuple):
    """A policy's accuracy in percent, as a bar has it, at the share of the label imbalance that it removes."""

    removed: float
    bar: Bar


class _Mean(NamedTuple):
    """A method's seeds in one: their mean and extremes at each round."""

    rounds: list[int]
    low: list[float]
    middle: list[float]
    high: list[float]
    seeds: int


@plots.styled
def convergence_figure(panels: Mapping[str, Sequence[Line]], threshold: float) -> Figure:
    """Fig. 4: accuracy over rounds in each setting, and the first round at which a method's mean is at the threshold.

    The line is the mean of the seeds and the band reaches from the worst to the best of them. The threshold is dashed,
    the rounds that reach it are dotted, and hollow diamonds stand at the rounds that the paper prints.
    """
    shown = dict(panels) or {"": ()}
    columns = min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    figure = plots.new_figure(2.4 + 4.0 * columns, rows * (4.2 + 0.22 * max(map(len, shown.values()))))
    figure.set_layout_engine("constrained", wspace=0.06, hspace=0.06)
    grid = figure.subplots(rows, columns, sharey=True, squeeze=False)
    every = [line for lines in shown.values() for line in lines]
    looks, last = looks_of(line.name for line in every), _last_round(every)
    grid[0, 0].set_ylim(0, _head_room([threshold, *_accuracies(every)]))
    for axes in grid[:, 0]:
        axes.set_ylabel("accuracy on the test set")
    for axes in grid.flat[len(shown) :]:
        axes.set_visible(False)
    for axes, (title, lines) in zip(grid.flat, shown.items(), strict=False):
        run = any(_mean(line.courses).rounds for line in lines)
        _number_rounds(axes, _last_round(lines) if run else last)
        axes.set_title(title)
        _convergence_panel(axes, lines, threshold, looks)
        if not run:
            _say_not_run(axes, bare=not last)
    return figure


@plots.styled
def allocation_figure(bars: Sequence[Bar], title: str) -> Figure:
    """Fig. 1(b): what each policy makes of one total; ours as solid bars, the paper's as hollow ones beside them."""
    figure, axes = _panel(title, max(6.0, 2.0 + 1.5 * len(bars)), 4.6)
    printed = any(bar.paper is not None for bar in bars)
    looks, width = looks_of(bar.name for bar in bars), 0.38 if printed else 0.6
    for place, bar in enumerate(bars):
        colour = looks[bar.name].colour
        _solid_bar(axes, place - width / 2 if printed else place, width, bar, colour)
        if bar.paper is not None:
            axes.bar(place + width / 2, bar.paper, 0.94 * width, **_hollow(colour))
            _number(axes, place + width / 2, bar.paper, bar.paper)
    axes.set_xticks(range(len(bars)), [textwrap.fill(bar.name, 16) for bar in bars])
    axes.tick_params(axis="x", length=0, labelsize=11)
    tops = [(bar.ours or 0) + (bar.spread or 0) for bar in bars] + [bar.paper or 0 for bar in bars]
    axes.set(ylabel="accuracy, %", xlim=(-0.6, max(len(bars), 1) - 0.4), ylim=(0, 1.12 * max([10, *tops])))
    axes.grid(axis="y", **GRID)
    if not bars:
        _say_not_run(axes)
    if printed:
        keys = [Patch(color=plots.GREY, label="ours"), Patch(**_hollow(plots.GREY), label="the paper")]
        figure.legend(handles=keys, loc="outside lower center", ncols=2)
    return figure


@plots.styled
def budget_figure(
    sweeps: Sequence[Sweep], fedavg: Bar, full_balance: Bar, title: str = "Accuracy over synthetic samples"
) -> Figure:
    """Fig. 5(a): accuracy as the total grows, between FedAvg and Full-Balance; the paper's lines are pale, dashed."""
    figure, axes = _panel(title, 9, 5.2)
    references = (fedavg, full_balance)
    looks = looks_of([*(sweep.name for sweep in sweeps), *(bar.name for bar in references)])
    totals = [total for sweep in sweeps for total in sweep.totals]
    axes.set(xlabel="synthetic samples in all", ylabel="accuracy, %", xlim=(0, 1.05 * max([1, *totals])))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(**GRID)
    for sweep in sweeps:
        _draw_sweep(axes, sweep, looks[sweep.name].colour)
    ends = [end for bar in references for end in _draw_reference(axes, bar, looks[bar.name])]
    axes.margins(y=0.12)
    name_ends(axes, ends)
    values = [*chain.from_iterable(sweep.ours for sweep in sweeps), *(bar.ours for bar in references)]
    printed = [*chain.from_iterable(sweep.paper for sweep in sweeps), *(bar.paper for bar in references)]
    if not _known(values):
        _say_not_run(axes, bare=not _known(printed))
    keys = [_key(_run_part(sweep.name, sweep.ours), looks[sweep.name]) for sweep in sweeps]
    keys += [_key(f"{bar.name}: {NOT_RUN}", looks[bar.name]) for bar in references if bar.ours is None]
    keys += [Line2D([], [], color=plots.GREY, label="the paper", **PAPER)] if _known(printed) else []
    figure.legend(handles=keys, loc="outside lower center", ncols=3)
    return figure


@plots.styled
def course_figure(lines: Sequence[Line], title: str) -> Figure:
    """Accuracy over rounds of many methods in one wide panel, each named at the end of its line."""
    figure, axes = _panel(title, 10, 5.4)
    looks, means = looks_of(line.name for line in lines), [(line.name, _mean(line.courses)) for line in lines]
    axes.set(ylabel="accuracy on the test set", ylim=(0, _head_room([0.1, *_accuracies(lines)])))
    _number_rounds(axes, max((mean.rounds[-1] for _, mean in means if mean.rounds), default=0))
    ends = []
    for name, mean in means:
        _draw_mean(axes, mean, looks[name])
        ends += [End(name, looks[name], (mean.rounds[-1], mean.middle[-1]))] if mean.rounds else []
    name_ends(axes, ends)
    missing = [name for name, mean in means if not mean.rounds]
    if not ends:
        _say_not_run(axes)
    elif missing:
        axes.annotate(f"{NOT_RUN}: {', '.join(missing)}", (1, 0), (-6, 6), "axes fraction", ha="right", **POINTS)
    return figure


@plots.styled
def removal_figure(removals: Sequence[Removal], title: str) -> Figure:
    """Accuracy over the imbalance removed: dots are ours, named beside the panel; hollow diamonds are the paper's."""
    figure, axes = _panel(title, 9, 5.2)
    looks, bars = looks_of(bar.name for _, bar in removals), [bar for _, bar in removals]
    ends = [end for each in removals for end in _draw_removal(axes, each, looks[each.bar.name])]
    axes.set(xlabel="label imbalance removed, %", ylabel="accuracy, %")
    axes.grid(**GRID)
    axes.margins(x=0.06, y=0.12)
    name_ends(axes, ends, width=0.8)
    printed = bool(_known([bar.paper for bar in bars]))
    if not ends:
        _say_not_run(axes, bare=not printed)
    missing = [bar.name for bar in bars if bar.ours is None]
    keys = [Line2D([], [], color=plots.GREY, marker="o", linestyle="", label="ours")] if ends else []
    keys += [Line2D([], [], color=plots.GREY, label="the paper", **DIAMOND)] if printed else []
    keys += [Line2D([], [], linestyle="", label=f"{NOT_RUN}: {', '.join(missing)}")] if ends and missing else []
    if keys:
        figure.legend(handles=keys, loc="outside lower center", ncols=3)
    return figure


def _panel(title: str, width: float, height: float) -> tuple[Figure, Any]:
    figure = plots.new_figure(width, height)
    axes = figure.subplots()
    axes.set_title("\n".join(textwrap.fill(line, int(11 * width)) for line in title.splitlines()))
    return figure, axes


def _mean(courses: Sequence[Course]) -> _Mean:
    """Mean and extremes at the rounds that most seeds have: where one is missing, the mean would jump."""
    found: dict[int, list[float]] = {}
    for number, accuracy in chain.from_iterable(zip(*course, strict=True) for course in courses):
        found.setdefault(number, []).append(accuracy)
    seeds = max(map(len, found.values()), default=0)
    rounds = sorted(number for number, values in found.items() if len(values) == seeds)
    low, middle, high = ([of(found[number]) for number in rounds] for of in (min, exact_mean, max))
    return _Mean(rounds, low, middle, high, seeds)


def _first_round(mean: _Mean, threshold: float) -> int | None:
    return next((number for number, value in zip(mean.rounds, mean.middle, strict=True) if value >= threshold), None)


def _accuracies(lines: Iterable[Line]) -> list[float]:
    return [accuracy for line in lines for course in line.courses for accuracy in course.accuracy]


def _head_room(accuracies: Sequence[float]) -> float:
    """The upper end of an axis of shares, a little above the highest of them."""
    return min(1.02, 1.1 * max(accuracies))


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _say_not_run(axes: Any, bare: bool = True) -> None:
    """Say it in the middle of the panel; one that shows nothing else has no use for numbers along its edges."""
    place = {"transform": axes.transAxes, "ha": "center", "va": "center"}
    axes.text(0.5, 0.5, NOT_RUN, fontsize=14, color=plots.GREY, bbox=HALO, **place)
    if bare:
        axes.tick_params(length=0, labelbottom=False, labelleft=False)
        axes.grid(False)


def _last_round(lines: Sequence[Line]) -> int:
    """The last round of any course and of what the paper prints; 0 if there is none."""
    run = chain.from_iterable(course.rounds for line in lines for course in line.courses)
    return max([0, *run, *(line.paper_round or 0 for line in lines)])


def _number_rounds(axes: Any, last: int) -> None:
    """An axis of whole rounds that reaches a little beyond the last."""
    axes.set(xlabel="round", xlim=(0, 1.02 * max(1, last)))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=(1, 2, 5, 10)))
    plots.percent_axis(axes.yaxis)
    axes.grid(**GRID)


def _draw_mean(axes: Any, mean: _Mean, look: Look) -> None:
    if mean.seeds > 1:
        axes.fill_between(mean.rounds, mean.low, mean.high, color=look.colour, alpha=0.15, linewidth=0)
    if mean.rounds:
        alone = "o" if len(mean.rounds) == 1 else None  # a line of one point would not be seen
        axes.plot(mean.rounds, mean.middle, look.dash, color=look.colour, linewidth=1.5, marker=alone)


def _convergence_panel(axes: Any, lines: Sequence[Line], threshold: float, looks: Mapping[str, Look]) -> None:
    means = [_mean(line.courses) for line in lines]
    firsts = [_first_round(mean, threshold) for mean in means]
    _draw_threshold(axes, threshold)
    for line, mean in zip(lines, means, strict=True):
        _draw_mean(axes, mean, looks[line.name])
    reached = [(line, first) for line, first in zip(lines, firsts, strict=True) if first is not None]
    _mark_firsts(axes, [(first, looks[line.name].colour) for line, first in reached])
    printed = [line for line in lines if line.paper_round is not None]
    for line in printed:
        axes.plot(line.paper_round, threshold, color=looks[line.name].colour, zorder=4, **DIAMOND)
    keys = [_key(_reached(*each), looks[each[0].name]) for each in zip(lines, means, firsts, strict=True)]
    keys += [Line2D([], [], color=plots.GREY, label="the paper's round", **DIAMOND)] if printed else []
    if keys:
        below = axes.transAxes + ScaledTranslation(0, -0.5, axes.figure.dpi_scale_trans)  # the axis and its name
        heading: dict[str, Any] = {"title": f"first round at {100 * threshold:g}%", "alignment": "left"}
        axes.legend(handles=keys, loc="upper left", bbox_to_anchor=(0, 0), bbox_transform=below, **heading)


def _draw_threshold(axes: Any, threshold: float) -> None:
    """A dashed line, numbered at its right end, where no curve can be in the way."""
    axes.axhline(threshold, color=plots.INK, linestyle="--", linewidth=1)
    right = {"xycoords": ("axes fraction", "data"), "va": "center"}
    axes.annotate(f"{100 * threshold:g}%", (1, threshold), (4, 0), **right, **POINTS)


def _mark_firsts(axes: Any, firsts: Sequence[tuple[int, str]]) -> None:
    """Dotted lines at these rounds; their labels are at different heights, for the lines may stand close together."""
    for step, (number, colour) in enumerate(sorted(firsts)):
        axes.axvline(number, color=colour, linestyle=":", linewidth=1.6)
        late = number > 0.8 * axes.get_xlim()[1]
        side, offset = ("right", -5) if late else ("left", 5)
        text: dict[str, Any] = {"ha": side, "color": colour, "weight": "bold", "bbox": HALO}
        place = {"xy": (number, 0), "xytext": (offset, 6 + 15 * step), "xycoords": ("data", "axes fraction")}
        axes.annotate(f"round {number}", **place, **text, **POINTS)


def _reached(line: Line, mean: _Mean, first: int | None) -> str:
    ours = NOT_RUN if not mean.rounds else "not reached" if first is None else f"round {first}"
    paper = "" if line.paper_round is None else f" (paper: {line.paper_round})"
    return f"{line.name}: {ours}{paper}"


def _key(name: str, look: Look) -> Line2D:
    return Line2D([], [], color=look.colour, linestyle=look.dash, label=name)


def _hollow(colour: str) -> dict[str, Any]:
    return {"facecolor": "white", "edgecolor": colour, "linewidth": 1.6}


def _solid_bar(axes: Any, place: float, width: float, bar: Bar, colour: str) -> None:
    if bar.ours is None:
        axes.annotate(NOT_RUN, (place, 0), (0, 6), rotation=90, ha="center", color=plots.GREY, **POINTS)
        return
    whiskers = {"capsize": 4, "error_kw": {"ecolor": plots.INK, "elinewidth": 1.2}}
    axes.bar(place, bar.ours, 0.94 * width, color=colour, yerr=bar.spread, **whiskers)
    _number(axes, place, bar.ours + (bar.spread or 0), bar.ours)


def _number(axes: Any, place: float, height: float, value: float) -> None:
    axes.annotate(f"{value:.2f}", (place, height), (0, 3), ha="center", **POINTS)


def _draw_sweep(axes: Any, sweep: Sweep, colour: str) -> None:
    """Ours with error bars and the paper's; a line breaks off where a number is missing."""
    ours, spread, paper = (np.array(values, dtype=float) for values in (sweep.ours, sweep.spread, sweep.paper))
    if _known(sweep.paper):
        axes.plot(sweep.totals, paper, marker="o", markerfacecolor="white", color=colour, **PAPER)
    if _known(sweep.ours):
        axes.errorbar(sweep.totals, ours, np.nan_to_num(spread), fmt="o-", color=colour, capsize=3, elinewidth=1.2)


def _draw_reference(axes: Any, bar: Bar, look: Look) -> list[End]:
    """Horizontal lines at ours and at the paper's, and names for them."""
    right, ends = axes.get_xlim()[1], []
    if bar.ours is not None:
        axes.axhline(bar.ours, color=look.colour, linewidth=1.6)
        ends.append(End(f"{bar.name} {bar.ours:.2f}", look, (right, bar.ours)))
    if bar.paper is not None:
        axes.axhline(bar.paper, color=look.colour, **PAPER)
        ends.append(End(f"{bar.name} {bar.paper:.2f} (paper)", look, (right, bar.paper)))
    return ends


def _draw_removal(axes: Any, removal: Removal, look: Look) -> list[End]:
    """A dot at ours, with its spread, and a diamond at the paper's; a name for the dot."""
    removed, bar = removal
    if bar.paper is not None:
        axes.plot(removed, bar.paper, color=look.colour, **DIAMOND)
    if bar.ours is None:
        return []
    axes.errorbar(removed, bar.ours, bar.spread, fmt="o", color=look.colour, capsize=3, markersize=7)
    return [End(f"{bar.name} {bar.ours:.2f}", look, (removed, bar.ours))]


def _run_part(name: str, ours: Sequence[float | None]) -> str:
    run = len(_known(ours))
    return name if 0 < run == len(ours) else f"{name}: {run} of {len(ours)} run" if run else f"{name}: {NOT_RUN}"
