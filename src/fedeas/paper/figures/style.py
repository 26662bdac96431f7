"""What the figures of results share: how methods look, where their names stand, and how what is missing is said."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedeas.core.arrays import FloatArray
from fedeas.paper.tables import NOT_RUN
from fedeas.plotting import figures as plots
from fedeas.plotting.figures import Look

WIDTH = 7.5  # inches of a wide figure: shown at 600 pixels, letters of ten points are eleven pixels high
POINTS: dict[str, Any] = {"textcoords": "offset points", "fontsize": 10}
HALO = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.0}  # keeps text on lines legible
DIAMOND: dict[str, Any] = {"marker": "D", "linestyle": "", "markerfacecolor": "white", "markeredgewidth": 1.6}


class End(NamedTuple):
    """A name for what ends at this point."""

    name: str
    look: Look
    point: tuple[float, float]


def panel(title: str, width: float, height: float) -> tuple[Figure, Any]:
    """A figure of so many inches with one panel, its title broken to fit."""
    figure = plots.new_figure(width, height)
    axes = figure.subplots()
    axes.set_title("\n".join(textwrap.fill(line, int(11 * width)) for line in title.splitlines()))
    return figure, axes


def looks_by_name(names: Iterable[str]) -> dict[str, Look]:
    """A look for each name; the colour of a policy is never lent, for it means that policy in every figure."""
    distinct = list(dict.fromkeys(names))
    return dict(zip(distinct, plots.looks_of([_policy(name) for name in distinct], plots.SPARE), strict=True))


def key(name: str, look: Look) -> Line2D:
    """A method's line in a legend."""
    return Line2D([], [], color=look.colour, linestyle=look.dash, label=name)


def say_not_run(axes: Any, bare: bool = True) -> None:
    """Say it in the middle of the panel; one that shows nothing else has no use for numbers along its edges."""
    place = {"transform": axes.transAxes, "ha": "center", "va": "center"}
    axes.text(0.5, 0.5, NOT_RUN, fontsize=14, color=plots.GREY, bbox=HALO, **place)
    if bare:
        axes.tick_params(length=0, labelbottom=False, labelleft=False)
        axes.grid(False)


def name_ends(axes: Any, ends: Sequence[End], width: float = 1.5) -> None:
    """Names right of the panel, tied to what they name, as near to its height as the others allow."""
    in_order = sorted(ends, key=lambda end: end.point[1])
    low, high = axes.get_ylim()
    line = 1.35 * POINTS["fontsize"] / (72 * axes.bbox.height / axes.figure.dpi)
    heights = _apart(np.array([(end.point[1] - low) / (high - low) for end in in_order]), line)
    for end, height in zip(in_order, heights, strict=True):
        tie: dict[str, Any] = {"arrowstyle": "-", "color": end.look.colour, "linestyle": end.look.dash}
        tie |= {"linewidth": width, "relpos": (0, 0.5), "shrinkA": 1, "shrinkB": 1}
        text: dict[str, Any] = {"va": "center", "fontsize": POINTS["fontsize"], "textcoords": "axes fraction"}
        axes.annotate(end.name, end.point, (1.03, height), arrowprops=tie, annotation_clip=False, **text)


def _policy(name: str) -> str:
    """What the paper's name for a method says of its policy: FedAvg by itself generates nothing."""
    policy = name.partition("(")[0].strip().lower()
    return "no-generation" if policy == "fedavg" else policy


def _apart(heights: FloatArray, line: float) -> FloatArray:
    """Rising heights within 0 to 1 moved as little as possible so that each is a line above the one before.

    Less its place in the order, a height may not fall: that is isotonic regression, by its min-max formula.
    """
    number = len(heights)
    steps = min(line, 1 / max(number - 1, 1)) * np.arange(number)
    wanted = heights - steps
    level = [
        max(min(wanted[first : last + 1].mean() for last in range(place, number)) for first in range(place + 1))
        for place in range(number)
    ]
    return np.asarray(np.clip(level, 0, 1 - steps[-1:].sum()) + steps)
