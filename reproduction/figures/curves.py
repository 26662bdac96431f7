"""Figures of accuracy over rounds, which take plain numbers as those in `accuracy` do."""

from __future__ import annotations

import statistics
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

from reproduction.figures import style
from reproduction.tables import NOT_RUN

COLUMNS = 2  # panels beside each other
LETTERS = 70  # of a title across the whole width


class Line(NamedTuple):
    """A method's accuracy by round for each seed (none if it was not run), and the paper's round at the threshold."""

    name: str
    curves: Sequence[Mapping[int, float]]
    paper_round: int | None = None


class MeanCurve(NamedTuple):
    """Mean and extremes over a method's seeds at each round."""

    rounds: list[int]
    low: list[float]
    middle: list[float]
    high: list[float]
    seeds: int


def mean_curve(curves: Sequence[Mapping[int, float]]) -> MeanCurve:
    """Mean and extremes at the rounds that most seeds have; rounds with fewer seeds would make the mean jump."""
    count = Counter(chain.from_iterable(curves))
    seeds = max(count.values(), default=0)
    rounds = sorted(number for number in count if count[number] == seeds)
    values = [[curve[number] for curve in curves if number in curve] for number in rounds]
    low, middle, high = ([float(of(each)) for each in values] for of in (min, statistics.mean, max))
    return MeanCurve(rounds, low, middle, high, seeds)


@style.styled
def convergence_figure(panels: Mapping[str, Sequence[Line]], threshold: float) -> Figure:
    """Fig. 4: accuracy over rounds in each setting, and the first round at which a method's mean is at the threshold.

    The line is the mean over seeds, and the band goes from the worst to the best seed. The threshold is dashed, the
    rounds that reach it are dotted, and hollow diamonds mark the rounds that the paper prints.
    """
    shown = dict(panels) or {"": ()}
    columns = min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    figure = style.new_figure(style.WIDTH, rows * (3.4 + 0.22 * max(map(len, shown.values()))))  # with room for legends
    figure.set_layout_engine("constrained", wspace=0.06, hspace=0.06)
    grid = figure.subplots(rows, columns, sharey=True, squeeze=False)
    for axes in grid[:, 0]:
        axes.set_ylabel("accuracy on the test set")
    for axes in grid.flat[len(shown) :]:
        axes.set_visible(False)
    every = [line for lines in shown.values() for line in lines]
    looks, last = style.looks_by_name(line.name for line in every), _last_round(every)
    grid[0, 0].set_ylim(0, _top(every, threshold))
    for axes, (title, lines) in zip(grid.flat, shown.items(), strict=False):
        run = any(mean_curve(line.curves).rounds for line in lines)
        _number_rounds(axes, _last_round(lines) if run else last)
        axes.set_title(textwrap.fill(title, LETTERS // columns))
        _convergence_panel(axes, lines, threshold, looks)
        if not run:
            style.say_not_run(axes, bare=not last)
    return figure


@style.styled
def curves_figure(lines: Sequence[Line], title: str) -> Figure:
    """Accuracy over rounds of many methods in one wide panel, each named at the end of its line."""
    figure, axes = style.panel(title, style.WIDTH, 4.6)
    looks = style.looks_by_name(line.name for line in lines)
    means = [(line.name, mean_curve(line.curves)) for line in lines]
    axes.set(ylabel="accuracy on the test set", ylim=(0, _top(lines, 0.1)))
    _number_rounds(axes, max((mean.rounds[-1] for _, mean in means if mean.rounds), default=0))
    ends = []
    for name, mean in means:
        _draw_mean(axes, mean, looks[name])
        ends += [style.End(name, looks[name], (mean.rounds[-1], mean.middle[-1]))] if mean.rounds else []
    style.name_ends(axes, ends)
    missing = [name for name, mean in means if not mean.rounds]
    if not ends:
        style.say_not_run(axes)
    elif missing:
        axes.annotate(f"{NOT_RUN}: {', '.join(missing)}", (1, 0), (-6, 6), "axes fraction", ha="right", **style.POINTS)
    return figure


def _top(lines: Iterable[Line], least: float) -> float:
    """The upper end of the accuracy axis, a little above the highest value."""
    values = chain.from_iterable(curve.values() for line in lines for curve in line.curves)
    return min(1.02, 1.1 * max([least, *values]))


def _last_round(lines: Sequence[Line]) -> int:
    """The last round of any curve or of the paper's rounds; 0 if there is none."""
    run = chain.from_iterable(curve for line in lines for curve in line.curves)
    return max([0, *run, *(line.paper_round or 0 for line in lines)])


def _number_rounds(axes: Any, last: int) -> None:
    """Number the axis with whole rounds, to a little beyond the last."""
    axes.set(xlabel="round", xlim=(0, 1.02 * max(1, last)))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=(1, 2, 5, 10)))
    style.percent_axis(axes.yaxis)
    axes.grid(**style.GRID)


def _draw_mean(axes: Any, mean: MeanCurve, look: style.Look) -> None:
    if mean.seeds > 1:
        axes.fill_between(mean.rounds, mean.low, mean.high, color=look.colour, alpha=0.15, linewidth=0)
    if mean.rounds:
        alone = "o" if len(mean.rounds) == 1 else None  # a line of one point would be invisible
        axes.plot(mean.rounds, mean.middle, linestyle=look.dash, color=look.colour, linewidth=1.5, marker=alone)


def _convergence_panel(axes: Any, lines: Sequence[Line], threshold: float, looks: Mapping[str, style.Look]) -> None:
    means = [mean_curve(line.curves) for line in lines]
    firsts = [
        next((number for number, value in zip(mean.rounds, mean.middle, strict=True) if value >= threshold), None)
        for mean in means
    ]
    axes.axhline(threshold, color=style.INK, linestyle="--", linewidth=1)
    right = {"xycoords": ("axes fraction", "data"), "va": "center"}  # where no curve overlaps the number
    axes.annotate(f"{100 * threshold:g}%", (1, threshold), (4, 0), **right, **style.POINTS)
    for line, mean in zip(lines, means, strict=True):
        _draw_mean(axes, mean, looks[line.name])
    reached = [(first, looks[line.name].colour) for line, first in zip(lines, firsts, strict=True) if first is not None]
    for step, (number, colour) in enumerate(sorted(reached)):  # lines may be close, so labels have different heights
        axes.axvline(number, color=colour, linestyle=":", linewidth=1.6)
        side, offset = ("right", -5) if number > 0.8 * axes.get_xlim()[1] else ("left", 5)
        text: dict[str, Any] = {"ha": side, "color": colour, "weight": "bold", "bbox": style.HALO}
        place = {"xy": (number, 0), "xytext": (offset, 6 + 15 * step), "xycoords": ("data", "axes fraction")}
        axes.annotate(f"round {number}", **place, **text, **style.POINTS)
    printed = [line for line in lines if line.paper_round is not None]
    for line in printed:
        axes.plot(line.paper_round, threshold, color=looks[line.name].colour, zorder=4, **style.DIAMOND)
    keys = []
    for line, mean, first in zip(lines, means, firsts, strict=True):
        ours = NOT_RUN if not mean.rounds else "not reached" if first is None else f"round {first}"
        paper = "" if line.paper_round is None else f" (paper: {line.paper_round})"
        keys.append(style.key(f"{line.name}: {ours}{paper}", looks[line.name]))
    keys += [style.mark("the paper's round", style.GREY, **style.DIAMOND)] if printed else []
    if keys:
        below = axes.transAxes + ScaledTranslation(0, -0.5, axes.figure.dpi_scale_trans)  # the axis and its name
        heading: dict[str, Any] = {"title": f"first round at {100 * threshold:g}%", "alignment": "left"}
        axes.legend(handles=keys, loc="upper left", bbox_to_anchor=(0, 0), bbox_transform=below, **heading)
