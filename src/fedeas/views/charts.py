"""Parts of Plotly's charts that the report and the planner share, as the dictionaries that its script draws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fedeas.core.arrays import IntArray
from fedeas.core.foreign_text import for_html
from fedeas.planning.counts import LabelCounts
from fedeas.runs.accuracy_curves import AccuracyCurve, mean_curve
from fedeas.views.figures import Look, Screen

DASHES = {"solid": "solid", "dashed": "dash", "dotted": "longdashdot"}  # dots are for unfinished runs
SYMBOLS = {"solid": "circle", "dashed": "square", "dotted": "diamond"}
FEW_ROUNDS = 5
CLEAR = "rgba(0,0,0,0)"

Spec = dict[str, Any]


def chart(traces: Sequence[Spec], across: Spec, upwards: Spec, screen: Screen, **more: Any) -> Spec:
    """A figure of these traces and axes; `more` is the rest of its layout."""
    layout = {
        "font": {"color": screen.ink, "size": 12},
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "hoverlabel": {"bgcolor": screen.paper, "bordercolor": screen.grid, "font": {"color": screen.ink}},
        "xaxis": across,
        "yaxis": upwards,
    }
    return {"data": traces, "layout": layout | more}


def axis(title: str, screen: Screen, **more: Any) -> Spec:
    """An axis, whose grid has the colours of the screen."""
    words = {"title": {"text": for_html(title), "standoff": 10, "font": {"size": 13}}} if title else {}
    return {"automargin": True, "gridcolor": screen.grid, "linecolor": screen.grid, "zeroline": False, **words, **more}


def round_axis(curves: Iterable[AccuracyCurve], screen: Screen) -> Spec:
    """The axis of the rounds of these curves; if they are few, each one is numbered; Plotly would add halves."""
    last = max((curve.rounds[-1] for curve in curves if curve.rounds), default=0)
    return axis("round", screen, rangemode="tozero", **({"dtick": 1} if last <= FEW_ROUNDS else {}))


def marks(look: Look, size: int = 10) -> Spec:
    """Points of a method."""
    return {"mode": "markers", "marker": {"color": look.colour, "symbol": SYMBOLS[look.dash], "size": size}}


def line(look: Look) -> Spec:
    """The line of a method."""
    return {"color": look.colour, "dash": DASHES[look.dash], "width": 2}


def numbers(values: Any) -> list[float | None]:
    """Numbers for JSON, which has no NaN."""
    return [None if np.isnan(value) else round(float(value), 6) for value in values]


def accuracy_traces(
    finished: Iterable[AccuracyCurve],
    unfinished: Iterable[tuple[AccuracyCurve, str, str]],
    look: Look,
    about: str,
    **shared: Any,
) -> list[Spec]:
    """Accuracy of a method over rounds: mean and extremes of its finished seeds, and dotted lines of unfinished ones.

    Each unfinished run has the symbol at its end, and its text under the mouse; `about` is that of the mean.
    """
    mean, band, drawn = mean_curve(finished), list[Spec](), list[Spec]()
    if mean.seeds > 1:
        values = {"x": [*mean.rounds, *mean.rounds[::-1]], "y": numbers([*mean.high, *mean.low[::-1]])}
        filled = {"fill": "toself", "fillcolor": look.colour, "opacity": 0.2, "line": {"width": 0}, "mode": "lines"}
        band = [{**values, **filled, "hoverinfo": "skip", "showlegend": False, **shared}]
    if mean.rounds:
        form = {"mode": "lines", "line": line(look)} if len(mean.rounds) > 1 else marks(look)
        drawn = [{"x": mean.rounds, "y": numbers(mean.middle), "hovertemplate": about, **form}]
    for curve, symbol, words in unfinished:
        sizes, edge = [0] * (len(curve.rounds) - 1) + [9], {"width": 1, "color": look.colour}
        end = {"size": sizes, "symbol": symbol, "color": look.colour, "line": edge}
        values = {"x": list(curve.rounds), "y": numbers(curve.accuracy), "hovertemplate": words}
        dotted = {"color": look.colour, "dash": "dot", "width": 2}
        drawn.append({**values, "mode": "lines+markers", "marker": end, "line": dotted})
    # A legend names the method once.
    return band + [{**trace, "showlegend": place == 0, **shared} for place, trace in enumerate(drawn)]


def heat_map(counts: LabelCounts, rows: IntArray, largest: int, noun: str) -> Spec:
    """What heat maps of these clients and all classes have in common: names, and a logarithmic scale of colours."""
    most = max(10, largest)
    decades = range(int(np.log10(most)) + 1)
    ticks = {"tickvals": list(decades), "ticktext": [f"{10**decade:,}" for decade in decades]}
    return {
        "type": "heatmap",
        "x": [for_html(name) for name in counts.class_names],
        "y": [for_html(counts.client_name(int(row))) for row in rows],
        "hovertemplate": f"client %{{y}}<br>class %{{x}}<br>%{{customdata:,}} {noun}<extra></extra>",
        "zmin": 0,
        "zmax": float(np.log10(most)),
        "colorscale": "Viridis",
        "colorbar": {**ticks, "thickness": 10, "outlinewidth": 0},
    }
