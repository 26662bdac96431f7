"""The summary figure: accuracy by budget and policy, ours under both protocols, and the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from fedeas.runs import Measured
from reproduction.figures.style import DIAMOND, GRID, INK, PALE, WIDTH, Look, looks_by_name, mark, new_figure, styled

CLEAN: dict[str, Any] = {"marker": "o", "markersize": 8}
REPLAYED: dict[str, Any] = {"marker": "s", "markersize": 6, "alpha": 0.55}
KINDS = {"ours ± deviation, clean protocol": CLEAN, "ours, the paper's protocol": REPLAYED, "the paper": DIAMOND}
APART = 0.22  # distance between the markers of one policy, relative to the distance between policies


class Spot(NamedTuple):
    """The accuracy of a policy at a budget, in percent: ours and the paper's."""

    budget: str
    policy: str
    clean: Measured | None = None
    replayed: Measured | None = None
    paper: float | None = None


@styled
def overview_figure(panels: Mapping[str, Sequence[Spot]], window: str) -> Figure:
    """One panel for each setting; budgets grow from left to right, and policies of one budget are side by side."""
    figure = new_figure(WIDTH, 1.1 + 3.1 * len(panels))
    places = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    known = {title: [spot for spot in spots if spot[2:] != (None,) * 3] for title, spots in panels.items()}
    every = [spot for spots in known.values() for spot in spots]
    looks = looks_by_name(spot.policy for spot in every)
    for axes, (title, spots) in zip(places, known.items(), strict=True):
        axes.set_title(title)
        axes.set_ylabel(f"accuracy, %,\nmean of {window}")
        _draw_budgets(axes, spots, looks)
    drawn = [any(each is not None for each in kind) for kind in zip(*(spot[2:] for spot in every), strict=True)]
    kinds = [mark(name, INK, **look) for (name, look), there in zip(KINDS.items(), drawn, strict=False) if there]
    names = [mark(name, look.colour, marker="o") for name, look in looks.items()]
    figure.legend(handles=kinds, loc="outside upper left", ncols=3)
    figure.legend(handles=names, loc="outside lower center", ncols=4)
    return figure


def _draw_budgets(axes: Any, spots: Sequence[Spot], looks: Mapping[str, Look]) -> None:
    """Draw policies at whole numbers, with one empty place between two budgets."""
    place, ticks = 0, dict[float, str]()
    for budget, group in groupby(spots, key=lambda spot: spot.budget):
        members = list(group)
        if ticks:
            axes.axvline(place, color=PALE, linewidth=0.8)
        for spot in members:
            place, colour = place + 1, looks[spot.policy].colour
            for offset, ours, kind in ((-APART, spot.clean, CLEAN), (0, spot.replayed, REPLAYED)):
                if ours is not None:
                    whiskers = {"capsize": 3, "elinewidth": 1.2, "linestyle": "", "color": colour}
                    axes.errorbar(place + offset, ours.mean, ours.spread, **whiskers, **kind)
            if spot.paper is not None:
                axes.plot(place + APART, spot.paper, color=colour, **DIAMOND)
        ticks[place - (len(members) - 1) / 2] = budget
        place += 1
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.tick_params(axis="x", length=0)
    axes.set(xlabel="budget: FedEAS's β, and synthetic images on the paper's partition", xlim=(0, max(place, 1)))
    axes.margins(y=0.12)
    axes.grid(axis="y", **GRID)
