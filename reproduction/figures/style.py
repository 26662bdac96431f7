"""Shared by the figures of results: the looks of methods, the places of names, and the note for missing runs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedeas.core.arrays import FloatArray
from fedeas.views import figures as plots
from fedeas.views.figures import Look
from reproduction.tables import NOT_RUN

WIDTH = 7.5  # inches of a wide figure: at a width of 600 pixels, ten-point letters are eleven pixels high
POINTS: dict[str, Any] = {"textcoords": "offset points", "fontsize": 10}
HALO = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.0}  # keeps text on lines legible
DIAMOND: dict[str, Any] = {"marker": "D", "linestyle": "", "markerfacecolor": "white", "markeredgewidth": 1.6}


class End(NamedTuple):
    """The name of a line that ends at this point."""

    name: str
    look: Look
    point: tuple[float, float]


def panel(title: str, width: float, height: float) -> tuple[Figure, Any]:
    """A figure of this size in inches with one panel; its title is wrapped to fit."""
    figure = plots.new_figure(width, height)
    axes = figure.subplots()
    axes.set_title("\n".join(textwrap.fill(line, int(11 * width)) for line in title.splitlines()))
    return figure, axes


def looks_by_name(names: Iterable[str]) -> dict[str, Look]:
    """A look for each name; a policy's colour is used for that policy only, in every figure."""
    distinct = list(dict.fromkeys(names))
    return dict(zip(distinct, plots.looks_of([_policy(name) for name in distinct], plots.SPARE), strict=True))


def key(name: str, look: Look) -> Line2D:
    """A method's line in a legend."""
    return Line2D([], [], color=look.colour, linestyle=look.dash, label=name)


def say_not_run(axes: Any, bare: bool = True) -> None:
    """Write "not run" in the middle of the panel; if the panel is `bare`, remove the numbers on its axes."""
    place = {"transform": axes.transAxes, "ha": "center", "va": "center"}
    axes.text(0.5, 0.5, NOT_RUN, fontsize=14, color=plots.GREY, bbox=HALO, **place)
    if bare:
        axes.tick_params(length=0, labelbottom=False, labelleft=False)
        axes.grid(False)


def name_ends(axes: Any, ends: Sequence[End], width: float = 1.5) -> None:
    """Write names right of the panel, connected to their points, as close in height as the other names allow."""
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
    """The policy in the paper's name for a method: FedAvg alone generates nothing."""
    policy = name.partition("(")[0].strip().lower()
    return "no-generation" if policy == "fedavg" else policy


def _apart(heights: FloatArray, line: float) -> FloatArray:
    """Move rising heights in [0, 1] as little as possible so that each is at least a line above the one before.

    After subtracting one line per place, heights must not fall: this is isotonic regression, by its min-max formula.
    """
    number = len(heights)
    steps = min(line, 1 / max(number - 1, 1)) * np.arange(number)
    wanted = heights - steps
    level = [
        max(min(wanted[first : last + 1].mean() for last in range(place, number)) for first in range(place + 1))
        for place in range(number)
    ]
    return np.asarray(np.clip(level, 0, 1 - steps[-1:].sum()) + steps)
