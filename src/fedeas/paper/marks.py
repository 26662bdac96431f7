"""How methods look in the figures of results, and where their names stand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np

from fedeas import plots
from fedeas.arrays import FloatArray

POINTS: dict[str, Any] = {"textcoords": "offset points", "fontsize": 10}

USUAL = {**plots.USUAL, "fedavg": plots.USUAL["no-generation"]}
SPARE = (plots.PURPLE, plots.SKY, plots.INK)  # for methods that have no colour by custom


class Look(NamedTuple):
    """How a method is drawn wherever it appears in a figure."""

    colour: str
    dash: str = "-"


class End(NamedTuple):
    """A name for what ends at this point."""

    name: str
    look: Look
    point: tuple[float, float]


def looks_of(names: Iterable[str]) -> dict[str, Look]:
    """A look for each name: its usual colour while that is free, else the next spare one, dashed if need be."""
    looks: dict[str, Look] = {}
    spare = cycle([Look(colour, dash) for dash in ("-", "--", ":") for colour in SPARE])
    for name in dict.fromkeys(names):
        usual = USUAL.get(name.partition("(")[0].strip().lower())
        looks[name] = next(spare) if usual is None or Look(usual) in looks.values() else Look(usual)
    return looks


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
