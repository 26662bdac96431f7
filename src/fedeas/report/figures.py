"""The report's figures: from numbers to SVG pictures, as text for an ``src`` attribute.

They do not depend on runs. Legends are part of the page, where a narrow screen does not shrink them.
"""

from __future__ import annotations

import base64
import re
import textwrap
from collections.abc import Sequence
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
from matplotlib import style
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator, SymmetricalLogLocator
from matplotlib.transforms import ScaledTranslation

from fedeas.core.arrays import IntArray
from fedeas.plotting import figures as plots
from fedeas.plotting.figures import Look
from fedeas.runs.accuracy_curves import AccuracyCurve, mean_curve

WIDTH = 5.8  # inches: ten-point text stays legible when the picture shrinks to the width of a phone
TEXT = {"font.size": 10, "axes.titlesize": 10, "xtick.labelsize": 9, "ytick.labelsize": 9, "lines.linewidth": 1.7}
STEP = 9  # points between marks side by side


class MethodCurves(NamedTuple):
    """The accuracy curves of a method's seeds."""

    look: Look
    finished: Sequence[AccuracyCurve]
    unfinished: Sequence[AccuracyCurve] = ()


class Point(NamedTuple):
    """A method's accuracy in percent, and its number of samples."""

    name: str
    look: Look
    samples: int
    accuracy: float
    spread: float


class Spent(NamedTuple):
    """The seconds that a method spends."""

    name: str
    look: Look
    generation: float
    training: float
    rest: float


def convergence(curves: Sequence[MethodCurves], thresholds: Sequence[float]) -> str:
    """Accuracy over rounds, a line and a band for each method, with the thresholds dashed."""
    with _style():
        figure, axes = _panel(3.7)
        for curve in curves:
            _draw_curve(axes, curve)
        for threshold in thresholds:
            axes.axhline(threshold, color=plots.INK, linestyle="--", linewidth=1)
            at_left = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
            axes.annotate(f"threshold {100 * threshold:g}%", (0, threshold), (4, 4), fontsize=9, **at_left)
        axes.set(xlabel="round", ylabel="accuracy on the test set")
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=(1, 2, 5, 10)))
        plots.percent_axis(axes.yaxis)
        axes.grid(**plots.GRID)
        return _source(figure)


def price(points: Sequence[Point], level: str) -> str:
    """Accuracy against samples: a named point with its spread for each method; equal numbers are side by side."""
    with _style():
        figure, axes = _panel(3.7)
        for point, beside in zip(points, _beside(points), strict=True):
            shift = ScaledTranslation(beside * STEP / 72, 0, figure.dpi_scale_trans)
            mark = axes.errorbar(point.samples, point.accuracy, point.spread or None, fmt="o", color=point.look.colour)
            for artist in mark.get_children():
                artist.set_transform(artist.get_transform() + shift)
        axes.margins(y=0.12)
        _number_samples(axes, [point.samples for point in points])
        axes.set(xlabel="synthetic samples of the whole federation", ylabel=level)
        axes.grid(**plots.GRID)
        _name_points(axes, points)
        return _source(figure)


def heat_maps(tables: Sequence[IntArray]) -> tuple[list[str], str]:
    """Heat maps of tables of clients x classes, the first with the real counts, and their common colour scale.

    If there are very many clients, those with the most real samples are shown.
    """
    clients = plots.most(tables[0].sum(axis=1))
    shown = [table[clients] for table in tables]
    norm = plots.heat_norm(*shown)
    return [_heat_map(table, clients, norm) for table in shown], _heat_key(norm)


def times(spent: Sequence[Spent]) -> str:
    """Stacked bars: hatched for generation, solid for training, pale for the rest."""
    with _style():
        figure, axes = _panel(1.15 + 0.36 * len(spent))
        unit, seconds = _unit(max(sum(each[2:]) for each in spent))
        for place, each in enumerate(spent):
            _draw_bar(axes, place, each, seconds)
        axes.set_yticks(range(len(spent)), [textwrap.fill(_short(each.name), 24) for each in spent])
        axes.invert_yaxis()
        axes.set(xlabel=f"{unit} for each run, on average")
        axes.margins(x=0.14)
        axes.set_xlim(left=0)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", **plots.GRID)
        keys = [Patch(label=name, **_fill(plots.GREY)[name]) for name in _fill(plots.GREY)]
        figure.legend(handles=keys, loc="outside upper left", ncols=3, fontsize=9, handlelength=1.6)
        return _source(figure)


def _style() -> Any:
    return style.context(["default", plots.STYLE, TEXT])


def _panel(height: float) -> tuple[Figure, Any]:
    figure = plots.new_figure(WIDTH, height)
    return figure, figure.subplots()


def _source(figure: Figure) -> str:
    file = BytesIO()
    silent = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(file, format="svg", dpi=plots.DPI, metadata=silent)
    picture = file.getvalue()[file.getvalue().index(b"<svg") :]
    # The reader's system font is narrower than the one used for the layout, so everything still fits.
    text = re.sub(rb"'DejaVu Sans'[^;\"]*", b"system-ui, sans-serif", picture)
    return "data:image/svg+xml;base64," + base64.b64encode(text).decode()


def _draw_curve(axes: Any, curve: MethodCurves) -> None:
    """Draw mean and extremes of the finished seeds, and the unfinished seeds dotted, up to their last round."""
    (colour, dash), mean = curve.look, mean_curve(curve.finished)
    alone = "o" if len(mean.rounds) == 1 else None
    axes.fill_between(mean.rounds, mean.low, mean.high, color=colour, alpha=0.18, linewidth=0)
    axes.plot(mean.rounds, mean.middle, linestyle=dash, color=colour, marker=alone)
    for rounds, accuracies in curve.unfinished:
        axes.plot(rounds, accuracies, linestyle=(0, (1, 1.2)), color=colour, linewidth=1.4)
        axes.plot(rounds[-1:], accuracies[-1:], "o", color=colour, markersize=4, markerfacecolor="white")


def _short(name: str, room: int = 32) -> str:
    return name if len(name) <= room else f"{name[: room - 1]}…"


def _beside(points: Sequence[Point]) -> list[float]:
    """How many places each point is moved, so that points with the same number are centred on it."""
    numbers = [point.samples for point in points]
    return [
        numbers[:place].count(number) - (numbers.count(number) - 1) / 2 for place, number in enumerate(numbers)
    ]  # fmt: skip


def _number_samples(axes: Any, samples: Sequence[int]) -> None:
    """Set a logarithmic axis that includes 0, with room on the right for names."""
    positive = [number for number in samples if number > 0]
    foot = 10.0 ** np.floor(np.log10(min(positive, default=10)))
    axes.set_xscale("symlog", linthresh=foot, linscale=0.5)
    axes.xaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=foot))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlim(-0.25 * foot, 6 * max(positive, default=10))


def _name_points(axes: Any, points: Sequence[Point]) -> None:
    """Write names to the right of the points; names that would overlap move up."""
    low, high = axes.get_ylim()
    line, free = 0.065 * (high - low), dict.fromkeys((point.samples for point in points), -np.inf)
    for point in sorted(points, key=lambda point: point.accuracy):
        beside = sum(other.samples == point.samples for other in points) - 1
        height = max(point.accuracy, free[point.samples])
        free[point.samples] = height + line
        text, place = _short(point.name), (point.samples, height)
        right = (STEP * beside / 2 + 9, 0)
        axes.annotate(text, place, right, textcoords="offset points", va="center", fontsize=9, color=plots.INK)


def _heat_map(table: IntArray, clients: IntArray, norm: Any) -> str:
    with _style():
        figure = plots.new_figure(3.2, float(np.clip(0.7 + 0.165 * len(table), 2.2, 5.5)))
        axes = figure.subplots()
        plots.heat_map(axes, table, norm, numbers=norm.vmax < 1000)
        for axis, names, room in ((axes.xaxis, np.arange(table.shape[1]), 10), (axes.yaxis, clients, 20)):
            places = np.arange(0, len(names), -(-len(names) // room))
            axis.set_ticks(places, labels=[str(names[place]) for place in places])
        axes.tick_params(labelsize=8, length=2)
        axes.set(xlabel="class", ylabel="client")
        return _source(figure)


def _heat_key(norm: Any) -> str:
    with _style():
        figure = plots.new_figure(3.2, 0.62)
        scale, tick = ScalarMappable(norm, plots.HEAT), EngFormatter(sep="")
        bar = figure.colorbar(scale, figure.subplots(), orientation="horizontal", format=tick)
        bar.set_label("samples (white: none)")
        return _source(figure)


def _unit(most: float) -> tuple[str, float]:
    """The largest unit that fits at least twice, else seconds."""
    sizes = {"hours": 3600.0, "minutes": 60.0}
    return next(((unit, size) for unit, size in sizes.items() if most >= 2 * size), ("seconds", 1.0))


def _fill(colour: str) -> dict[str, dict[str, Any]]:
    return {
        "generation": {"facecolor": "white", "edgecolor": colour, "hatch": "//////", "linewidth": 0.8},
        "training": {"facecolor": colour, "edgecolor": colour, "linewidth": 0.8},
        "the rest": {"facecolor": plots.PALE, "edgecolor": plots.PALE, "linewidth": 0.8},
    }


def _draw_bar(axes: Any, place: int, spent: Spent, seconds: float) -> None:
    left = 0.0
    for length, fill in zip(spent[2:], _fill(spent.look.colour).values(), strict=True):
        axes.barh(place, length / seconds, 0.6, left, **fill)
        left += length / seconds
    axes.annotate(f"{left:,.1f}", (left, place), (5, 0), textcoords="offset points", va="center", fontsize=9)
