"""The page's figures in Plotly, with named axes and colours that colour-blind people can distinguish.

Each takes the colours of the screen, light or dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

import numpy as np
import plotly.graph_objects as go

from fedeas.core.arrays import IntArray
from fedeas.core.foreign_text import for_html
from fedeas.planning.counts import LabelCounts
from fedeas.runs.accuracy_curves import mean_curve
from fedeas.views import figures as plots
from fedeas.views.figures import DARK, LIGHT, Screen
from fedeas.views.web.runs import ListedMethod

MOST_CLIENTS = 500  # rows of a figure, each with its name
MOST_METHODS = 24  # lines of a figure
FONT = '"Source Sans", sans-serif'  # the page's own
# Below the figure, for narrow screens; it may take all the room that `accuracy` adds for it.
LEGEND = {
    "orientation": "h", "xref": "container", "x": 0, "yref": "container", "y": 0, "yanchor": "bottom",
    "tracegroupgap": 0, "maxheight": 1,
}  # fmt: skip
LEGEND_LINE, LEGEND_CHARACTERS = 20, 50  # pixels and characters of a line of the legend on a narrow screen
ROW = 16  # pixels of a client's row, enough for its name

DASHES = {"solid": "solid", "dashed": "dash", "dotted": "longdashdot"}  # dots are for unfinished runs

Axis = dict[str, Any]


def heat_map(
    counts: LabelCounts, table: IntArray, rows: IntArray, largest: int, title: str, screen: Screen = LIGHT
) -> go.Figure:
    """Samples of clients x classes, blank where there are none. The largest count has the strongest colour."""
    shown = table[rows].astype(float)
    shown[shown == 0] = np.nan
    largest, height = max(largest, 10), max(150 + ROW * rows.size, 320)
    bar = {
        **plots.decade_ticks(largest),
        "thickness": 12,
        "title": {"text": "images", "side": "right"},
        "len": min(400, height - 180),  # beside the shortest map under the longest names
        "lenmode": "pixels",
        "y": 1,
        "yanchor": "top",
    }
    classes = [*map(for_html, counts.class_names)]
    names: Axis = {"type": "category", "showgrid": False}
    angle = 90 if max(map(len, classes)) > 3 else 0  # so that all of them fit
    across = _axis("class", screen, **names, tickangle=angle, side="top")
    downwards = [rows.size - 0.5, -0.5]  # the first client is at the top
    upwards = _axis("client", screen, **names, range=downwards, dtick=1, ticklabelstandoff=7)
    figure = _figure(title, height, across, upwards, screen)
    figure.add_heatmap(
        z=np.log10(shown),
        x=classes,
        y=[for_html(counts.client_name(row)) for row in rows],
        customdata=table[rows],
        hovertemplate="client %{y}<br>class %{x}<br>%{customdata:,} images<extra></extra>",
        zmin=0,
        zmax=float(np.log10(largest)),
        colorscale="Viridis",
        reversescale=screen is not DARK,
        colorbar=bar,
    )
    return figure


def accuracy(methods: Sequence[ListedMethod], screen: Screen = LIGHT) -> go.Figure:
    """Accuracy over rounds: mean and extremes over each method's finished seeds, and dotted lines of unfinished runs.

    A dotted line ends in a dot if the run is in progress, and in a cross if it was stopped.
    """
    shown = methods[:MOST_METHODS]
    accuracies = _axis("accuracy on the test set", screen, tickformat=".0%")
    drawn = [run.curve.rounds for method in shown for run in (*method.finished, *method.unfinished)]
    across = _axis("round", screen, rangemode="tozero", **plots.round_ticks(drawn))
    names = [wrap(method.name, LEGEND_CHARACTERS) for method in shown]
    height = 440 + LEGEND_LINE * sum(map(len, names))
    figure = _figure("Accuracy over rounds", height, across, accuracies, screen)
    looks = plots.looks_of([method.policy for method in shown])
    for method, lines, look in zip(shown, names, looks, strict=True):
        colour = screen.ink if look.colour == plots.INK else look.colour
        style = {"name": "<br>".join(map(for_html, lines)), "legendgroup": method.name}
        mean = mean_curve(run.curve for run in method.finished)
        if mean.seeds > 1:
            figure.add_scatter(**plots.mean_band(mean.rounds, mean.low, mean.high, colour), **style, showlegend=False)
        if mean.rounds:
            seeds = f" (mean of {mean.seeds} seeds)" if mean.seeds > 1 else ""
            figure.add_scatter(
                x=mean.rounds,
                y=mean.middle,
                mode="lines" if len(mean.rounds) > 1 else "markers",
                line={"color": colour, "dash": DASHES[look.dash], "width": 2},
                hovertemplate=f"{for_html(method.name)}{seeds}<br>round %{{x}}<br>%{{y:.1%}}<extra></extra>",
                showlegend=True,
                **style,
            )
        for place, run in enumerate(method.unfinished):
            rounds = list(run.curve.rounds)
            symbol = "circle" if run.under_way else "x"
            sizes = [0] * (len(rounds) - 1) + [9]
            figure.add_scatter(
                x=rounds,
                y=list(run.curve.accuracy),
                mode="lines+markers",
                marker={"size": sizes, "symbol": symbol, "color": colour, "line": {"width": 0}},
                line={"color": colour, "dash": "dot", "width": 1.8},
                hovertemplate=f"{for_html(run.name)}, {run.state}<br>round %{{x}}<br>%{{y:.1%}}<extra></extra>",
                showlegend=not (mean.rounds or place),  # the legend names a method once
                **style,
            )
    return figure


def _figure(title: str, height: int, across: Axis, upwards: Axis, screen: Screen) -> go.Figure:
    """An empty figure in our style, set in one call: Plotly's templates and updates are slow."""
    return go.Figure(
        layout={
            "template": "none",
            "title": {"text": title, "font": {"size": 15}, "x": 0, "y": 1, "yanchor": "top", "pad": {"t": 6}},
            "font": {"color": screen.ink, "size": 12, "family": FONT},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "hoverlabel": {"bgcolor": screen.paper, "font": {"color": screen.ink}},
            "height": height,
            "margin": {"l": 10, "r": 10, "t": 40, "b": 10},
            "dragmode": False,
            "xaxis": across,
            "yaxis": upwards,
            "legend": LEGEND,
        }
    )


def _axis(title: str, screen: Screen, **more: Any) -> Axis:
    plain = {"automargin": True, "gridcolor": screen.grid, "zeroline": False, "ticks": ""}
    return {**plain, "title": {"text": title, "standoff": 14}, **more}
