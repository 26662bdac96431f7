"""Plots and small heat maps of the page as HTML: a browser draws them much faster than figures of Plotly.

Everything is placed in percent, so that a plot is as wide as its place on the page. Lines are SVG images, because
Streamlit removes SVG elements from HTML. A click on a name in the legend hides its series, or shows it again.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import numpy as np
from numpy.typing import ArrayLike

from fedeas.core.arrays import FloatArray, IntArray
from fedeas.core.foreign_text import for_html
from fedeas.planning.counts import LabelCounts
from fedeas.views.figures import DARK, LIGHT, Screen, shades

STYLE = Path(__file__).with_name("html_plot.css")
DASHES = {"solid": "none", "dashed": "8 6", "dotted": "3 4"}  # by their names in CSS

HEAT_CLIENTS, HEAT_CLASSES = 25, 12  # most of a heat map that is a table
SHADES = 64
SHORT = 3  # characters of a class name that is written across
CORNER = "client"  # what the first column holds
WIDEST_CLIENT = 24  # characters of a client's name before it is broken


class Axis(NamedTuple):
    """An axis from one value to another, and labels of values between them."""

    title: str
    start: float
    end: float
    labels: Mapping[float, str]

    def places(self, values: ArrayLike) -> FloatArray:
        """Percent of the way from the start to the end."""
        places: FloatArray = 100 * (np.asarray(values, float) - self.start) / (self.end - self.start)
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
    band: FloatArray | None  # the ends of a part of the horizontal axis that is shaded


def plot_html(plot: Plot, screen: Screen = LIGHT) -> str:
    """The plot as HTML, to which `STYLE` belongs. All texts of the plot must be escaped already."""
    band, legend, series = "", "", ""
    if plot.band is not None:
        start, end = plot.across.places(plot.band)
        band = f'<div class="band" style="left:{start:.2f}%;width:{end - start:.2f}%"></div>'
    grid = "".join(
        f'<div class="{kind}" style="{side}:{place:.2f}%"><span>{label}</span></div>'
        for kind, side, axis in (("x", "left", plot.across), ("y", "bottom", plot.upwards))
        for place, label in zip(axis.places([*axis.labels]), axis.labels.values(), strict=True)
    )
    for number, each in enumerate(plot.series):
        key = f'<span class="line" style="border-top:{each.width}px {each.dash}"></span>' if each.width else ""
        legend += (
            f'<label><input type="checkbox" checked class="switch{number}"><span class="key" '
            f'style="color:{each.colour}">{key}<i class="{each.mark}"></i></span>{each.name}</label>'
        )
        drawn = _drawn(each, plot.across.places(each.x), plot.upwards.places(each.y))
        series = f'<div class="series{number}" style="color:{each.colour}">{drawn}</div>{series}'
    return (
        f'<div class="plot" role="group" aria-label="{plot.title}" style="{_colours(screen)}">'
        f'<div class="title">{plot.title}</div><div class="legend">{legend}</div>'
        f'<div class="frame" style="height:{plot.height}px">'
        f'<div class="up">{plot.upwards.title}</div>{band}{grid}{series}</div>'
        f'<div class="across">{plot.across.title}</div></div>'
    )


def _colours(screen: Screen) -> str:
    return f"--ink:{screen.ink};--grid:{screen.grid};--paper:{screen.paper}"


def _drawn(series: Series, x: FloatArray, y: FloatArray) -> str:
    """The line as an image that is stretched to the frame, and the points inside the frame with their marks and tips.

    The line's width in pixels stays.
    """
    line = ""
    if series.width:
        ends = " ".join(f"{left:.2f},{100 - up:.2f}" for left, up in zip(x, y, strict=True))
        image = (
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 100" preserveAspectRatio="none">'
            f'<polyline points="{ends}" fill="none" stroke="{series.colour}" stroke-width="{series.width}" '
            f'stroke-dasharray="{DASHES[series.dash]}" stroke-linejoin="round" vector-effect="non-scaling-stroke"/>'
            "</svg>"
        )
        line = f'<img alt="" src="data:image/svg+xml,{quote(image)}">'
    points = "".join(
        f'<i class="{series.mark}{" far" * (left > 50)}" style="left:{left:.2f}%;bottom:{up:.2f}%" '
        f'data-tip="{tip}"></i>'
        for left, up, tip in zip(x.tolist(), y.tolist(), series.tips, strict=True)
        if 0 <= left <= 100 and 0 <= up <= 100
    )
    return line + points


def is_small(clients: int, classes: int) -> bool:
    """Whether a heat map is shown as a table, with its numbers."""
    return clients <= HEAT_CLIENTS and classes <= HEAT_CLASSES


def heat_table(
    counts: LabelCounts, table: IntArray, rows: IntArray, largest: int, title: str, screen: Screen = LIGHT
) -> str:
    """Samples of clients x classes, blank where there are none; the darkest or, on a dark screen, brightest is most."""
    classes = [*map(for_html, counts.class_names)]
    clients = [for_html(counts.client_name(row)) for row in rows]
    heads = (name if len(name) <= SHORT else f'<div class="long">{name}</div>' for name in classes)
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    shares = np.log10(np.maximum(table[rows], 1)) / np.log10(max(largest, 10))
    shades = np.rint(shares * (SHADES - 1)).astype(np.int64)  # places in the palette
    palette, body = _palette(screen), ""
    for client, values, places in zip(clients, table[rows].tolist(), shades.tolist(), strict=True):
        cells = (
            f'<td style="background:{palette[shade][0]};color:{palette[shade][1]}" '
            f'title="client {client}, class {name}: {value:,} images">{value}</td>'
            if value
            else "<td></td>"
            for name, value, shade in zip(classes, values, places, strict=True)
        )
        body += f'<tr><th scope="row">{client}</th>{"".join(cells)}</tr>'
    first, others = min(max(map(len, [*clients, CORNER])), WIDEST_CLIENT) + 2, max(len(str(largest)), SHORT) + 1
    return (
        # Takes the focus so that its sides can be reached with keys. A browser's search for such an element ends here.
        f'<div class="heat" tabindex="0" role="region" aria-label="{title}" style="{_colours(screen)}">'
        f'<table style="min-width:{first + others * len(classes)}ch"><caption>{title}</caption>'
        f'<colgroup><col style="width:{first}ch"></colgroup>'
        f'<thead><tr><th scope="col" class="first">{CORNER}</th>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


@cache
def _palette(screen: Screen) -> list[tuple[str, str]]:
    """Colours from few to many, each with a colour of text that can be read on it."""
    mixed = shades(SHADES)
    # Black and white have the same contrast on a luminance of 0.18.
    luminance = mixed**2.2 @ np.array([0.2126, 0.7152, 0.0722])
    texts = np.where(luminance > 0.18, "#000000", "#ffffff").tolist()
    colours = (f"#{np.rint(255 * colour).astype(np.uint8).tobytes().hex()}" for colour in mixed)
    found = list(zip(colours, texts, strict=True))
    return found if screen == DARK else found[::-1]
