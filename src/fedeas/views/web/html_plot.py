"""Plots of the page as HTML: a browser draws them much faster than figures of Plotly.

Everything is placed in percent, so that a plot is as wide as its place on the page. Lines are SVG images, because
Streamlit removes SVG elements from HTML. A click on a name in the legend hides its series, or shows it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import numpy as np
from numpy.typing import ArrayLike

from fedeas.core.arrays import FloatArray
from fedeas.views.figures import LIGHT, Screen

STYLE = Path(__file__).with_name("html_plot.css")
WIDEST = 40  # characters of a label beside the plot
MOST_TIPS = 60  # points of a line that show their numbers
DASHES = {"solid": "none", "dashed": "8 6", "dotted": "3 4"}  # by their names in CSS


class Axis(NamedTuple):
    """An axis from one value to another, and labels of values between them."""

    title: str
    start: float
    end: float
    labels: Mapping[float, str]
    log: bool = False

    def places(self, values: ArrayLike) -> FloatArray:
        """Percent of the way from the start to the end; zero on a logarithmic axis is before the start."""
        ends, found = np.array([self.start, self.end]), np.asarray(values, float)
        if self.log:
            ends, found = np.log10(ends), np.log10(np.maximum(found, self.start / 10))
        places: FloatArray = 100 * (found - ends[0]) / (ends[1] - ends[0])
        return places


class Series(NamedTuple):
    """Points with marks, a line between them, or both. The tip of a point is shown when the mouse is on it."""

    name: str
    x: ArrayLike
    y: ArrayLike
    colour: str
    tips: Sequence[str] = ()
    width: float = 0  # of the line; 0 for none
    dash: str = "solid"
    mark: str = ""


class Plot(NamedTuple):
    """A plot with the height of its frame in pixels. The first series is on top."""

    title: str
    height: int
    across: Axis
    upwards: Axis
    series: Sequence[Series]
    band: tuple[float, float] | None = None  # a part of the horizontal axis that is shaded
    labels_above: bool = False


def plot_html(plot: Plot, screen: Screen = LIGHT) -> str:
    """The plot as HTML, to which `STYLE` belongs. All texts of the plot must be escaped already."""
    longest = min(max(map(len, plot.upwards.labels.values()), default=0), WIDEST)
    style = f"--ink:{screen.ink};--grid:{screen.grid};--paper:{screen.paper};--names:min({longest + 1}ch, 40vw)"
    band, series = "", []
    if plot.band:
        start, end = plot.across.places(plot.band)
        band = f'<div class="band" style="left:{start:.2f}%;width:{end - start:.2f}%"></div>'
    for number, each in enumerate(plot.series):
        x, y = plot.across.places(each.x), plot.upwards.places(each.y)
        drawn = (_line(each, x, y) if each.width else "") + (_points(each, x, y) if each.tips else "")
        series.append(f'<div class="series{number}" style="color:{each.colour}">{drawn}</div>')
    return (
        f'<div class="plot" role="group" aria-label="{plot.title}" style="{style}">'
        f'<div class="title">{plot.title}</div>'
        f'<div class="legend">{"".join(map(_key, range(len(series)), plot.series))}</div>'
        f'<div class="frame{" above" * plot.labels_above}" style="height:{plot.height}px">'
        f'<div class="up">{plot.upwards.title}</div>{band}{_grid(plot)}{"".join(reversed(series))}</div>'
        f'<div class="across">{plot.across.title}</div></div>'
    )


def _key(number: int, series: Series) -> str:
    """A series in the legend."""
    line = f'<span class="line" style="border-top:{series.width}px {series.dash}"></span>' if series.width else ""
    return (
        f'<label><input type="checkbox" checked class="switch{number}"><span class="key" style="color:{series.colour}">'
        f'{line}<i class="{series.mark}"></i></span>{series.name}</label>'
    )


def _grid(plot: Plot) -> str:
    """Grid lines with their labels."""
    kinds = (("x", "left", plot.across), ("y", "bottom", plot.upwards))
    return "".join(
        f'<div class="{kind}" style="{side}:{place:.2f}%"><span title="{label}">{label}</span></div>'
        for kind, side, axis in kinds
        for place, label in zip(axis.places([*axis.labels]), axis.labels.values(), strict=True)
    )


def _points(series: Series, x: FloatArray, y: FloatArray) -> str:
    """The points inside the frame, each with its mark and its tip."""
    step = 1 if series.mark else ceil(len(x) / MOST_TIPS)
    points = zip(x.tolist(), y.tolist(), series.tips, strict=True)
    return "".join(
        f'<i class="{series.mark}{" far" * (left > 50)}" style="left:{left:.2f}%;bottom:{up:.2f}%" data-tip="{tip}">'
        "</i>"
        for left, up, tip in list(points)[::step]
        if 0 <= left <= 100 and 0 <= up <= 100
    )


def _line(series: Series, x: FloatArray, y: FloatArray) -> str:
    """The line as an image that is stretched to the frame; its width in pixels stays."""
    points = " ".join(f"{left:.2f},{100 - up:.2f}" for left, up in zip(x, y, strict=True))
    image = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 100" preserveAspectRatio="none">'
        f'<polyline points="{points}" fill="none" stroke="{series.colour}" stroke-width="{series.width}" '
        f'stroke-dasharray="{DASHES[series.dash]}" stroke-linejoin="round" vector-effect="non-scaling-stroke"/></svg>'
    )
    return f'<img alt="" src="data:image/svg+xml,{quote(image)}">'
