"""The page's figures in Plotly, with named axes and colours that colour-blind people can distinguish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from fedeas.core.arrays import IntArray
from fedeas.core.foreign_text import for_html
from fedeas.planning import scores
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.plotting import figures as plots
from fedeas.web.plan_result import Curves
from fedeas.web.runs import ListedRun


class CurveLook(NamedTuple):
    """How the curve of a policy is drawn."""

    colour: str
    width: int = 2
    dash: str = "solid"
    mark: str = ""
    remark: str = ""


# In the order of drawing: later curves are on top. Greedy and optimal overlap, so that one of them is wider.
CURVES = {
    "greedy": CurveLook(plots.SKY, width=6, remark=" (reference)"),
    "optimal": CurveLook(plots.INK, dash="dot", remark=" (reference)"),
    "uniform": CurveLook(plots.USUAL["uniform"], mark="square"),
    "by-size": CurveLook(plots.PURPLE, mark="diamond"),
    "missing-only": CurveLook(plots.USUAL["missing-only"], mark="triangle-up"),
    "fedeas": CurveLook(plots.USUAL["fedeas"], width=3),
}
GRID = "#e8ebef"
MOST_CURVES = 24
FONT = '"Source Sans", sans-serif'  # the page's own
LEGEND = {"orientation": "h", "y": -0.22, "yanchor": "top", "x": 0}  # below the figure, for narrow screens

Axis = dict[str, Any]


def heat_map(counts: LabelCounts, table: IntArray, rows: IntArray, largest: int, title: str) -> go.Figure:
    """Samples of clients x classes, dark where there are many and white where there are none."""
    shown = table[rows].astype(float)
    shown[shown == 0] = np.nan
    decades = list(range(int(np.log10(max(largest, 10))) + 1))
    bar = {
        "tickvals": decades,
        "ticktext": [f"{10**decade:,}" for decade in decades],
        "thickness": 12,
        "title": {"text": "images", "side": "right"},
    }
    names = {"type": "category", "showgrid": False}
    across = _axis("class", tickangle=_angle(counts), **names)
    figure = _figure(title, _height(rows.size), across, _axis("client", autorange="reversed", **names))
    figure.add_heatmap(
        z=np.log10(shown),
        x=_class_names(counts),
        y=_client_names(counts, rows),
        customdata=table[rows],
        hovertemplate="client %{y}<br>class %{x}<br>%{customdata:,} images<extra></extra>",
        zmin=0,
        zmax=float(np.log10(max(largest, 10))),
        colorscale="Viridis",
        reversescale=True,
        colorbar=bar,
    )
    return figure


def demand_bars(counts: LabelCounts, allocation: Allocation, demand: Allocation, rows: IntArray) -> go.Figure:
    """Images of each client under full balance and under this plan."""
    clients = _axis("client", type="category", showgrid=False)
    images = _axis("images (logarithmic)", type="log", dtick=1, tickformat=",")
    figure = _figure("Each client: full demand and planned budget", 380, clients, images, barmode="overlay")
    names = _client_names(counts, rows)
    for label, plan, colour, width in (
        ("full balance asks for", demand, plots.PALE, 0.85),
        ("this plan generates", allocation, plots.BLUE, 0.5),
    ):
        template = f"client %{{x}}<br>{label} %{{y:,}}<extra></extra>"
        values = plan.per_client[rows]
        figure.add_bar(x=names, y=values, name=label, marker_color=colour, width=width, hovertemplate=template)
    return figure


def trade_off(curves: Curves, spec: str, images: int, removed: float) -> go.Figure:
    """Imbalance removed against budget for all policies, with the current plan as a star."""
    lowest = min((float(path.removed.min()) for path in curves.paths.values()), default=0.0)
    budgets = _axis("images to generate (logarithmic)", type="log", dtick=1, tickformat="~s")
    shares = _axis("imbalance removed", tickformat=".0%", range=[max(min(0.0, lowest), -0.5) - 0.03, 1.05])
    figure = _figure("Imbalance removed for how many images", 460, budgets, shares)
    if curves.budgets:
        figure.add_vrect(*curves.budgets, fillcolor=plots.BLUE, opacity=0.12, line_width=0, layer="below")
    for name, look in CURVES.items():
        if name not in curves.paths:
            continue
        path = curves.paths[name]
        figure.add_scatter(
            x=path.total,
            y=path.removed,
            name=name + look.remark,
            mode="lines+markers" if look.mark else "lines",
            line={"color": look.colour, "width": look.width, "dash": look.dash},
            legendrank=1 if name == "fedeas" else 2,
            marker={"symbol": look.mark or "circle", "size": 7},
            hovertemplate=f"{name}<br>%{{x:,}} images<br>%{{y:.1%}} removed<extra></extra>",
        )
    figure.add_scatter(
        x=[images],
        y=[removed],
        name="this plan",
        mode="markers",
        marker={"color": plots.VERMILLION, "size": 15, "symbol": "star", "line": {"color": "white", "width": 1}},
        hovertemplate=f"{for_html(spec)}<br>%{{x:,}} images<br>%{{y:.1%}} removed<extra></extra>",
    )
    return figure


def concentration(counts: LabelCounts, allocation: Allocation) -> go.Figure:
    """The share of the imbalance and of the budget that the most imbalanced clients have."""
    held = scores.concentration(counts, allocation)
    share = np.arange(1, counts.num_clients + 1) / counts.num_clients
    clients = _axis("share of the clients, most imbalanced first", tickformat=".0%", range=[0, 1.04])
    figure = _figure(
        "Who holds imbalance and budget", 380, clients, _axis("share held", tickformat=".0%", range=[0, 1.03])
    )
    for label, values, colour, dash in (
        ("imbalance", held.imbalance, plots.VERMILLION, "solid"),
        ("planned images", held.budget, plots.BLUE, "dash"),
    ):
        figure.add_scatter(
            x=np.append(0, share),
            y=np.append(0, values),
            name=label,
            mode="lines",
            line={"color": colour, "dash": dash, "width": 2.5},
            hovertemplate=f"the most imbalanced %{{x:.0%}}<br>hold %{{y:.1%}} of the {label}<extra></extra>",
        )
    even = {"color": plots.GREY, "dash": "dot", "width": 1}
    figure.add_scatter(x=[0, 1], y=[0, 1], name="if all were alike", mode="lines", line=even, hoverinfo="skip")
    return figure


def accuracy(runs: Sequence[ListedRun]) -> go.Figure:
    """Accuracy over rounds, a line for each run; unfinished runs are dotted, and many runs are named by policy only."""
    shown = [run for run in runs if run.curve.rounds][:MOST_CURVES]
    accuracies = _axis("accuracy on the test set", tickformat=".0%")
    figure = _figure("Accuracy over rounds", 440, _axis("round", rangemode="tozero"), accuracies)
    kinds = list(dict.fromkeys(_kind(run) for run in shown))
    colours = {kind: look.colour for kind, look in zip(kinds, plots.looks_of(kinds), strict=True)}
    many = len(shown) > 8
    for place, run in enumerate(shown):
        kind = _kind(run)
        figure.add_scatter(
            x=run.curve.rounds,
            y=run.curve.accuracy,
            name=kind if many else for_html(run.name),
            legendgroup=kind if many else str(place),
            showlegend=not many or kind not in map(_kind, shown[:place]),
            mode="lines" if len(run.curve.rounds) > 1 else "markers",
            line={"color": colours[kind], "dash": "solid" if run.finished else "dot", "width": 1.8},
            hovertemplate=f"{for_html(run.name)}<br>round %{{x}}<br>%{{y:.1%}}<extra></extra>",
        )
    return figure


def _figure(title: str, height: int, across: Axis, upwards: Axis, **more: Any) -> go.Figure:
    """An empty figure in our style, set in one call: Plotly's templates and updates are slow."""
    return go.Figure(
        layout={
            "template": "none",
            "title": {"text": title, "font": {"size": 15}, "x": 0, "xref": "container", "y": 0.98, "yanchor": "top"},
            "font": {"color": plots.INK, "size": 12, "family": FONT},
            "height": height,
            "margin": {"l": 10, "r": 10, "t": 40, "b": 10},
            "dragmode": False,
            "xaxis": across,
            "yaxis": upwards,
            "legend": LEGEND,
            **more,
        }
    )


def _axis(title: str, **more: Any) -> Axis:
    plain = {"automargin": True, "gridcolor": GRID, "zeroline": False, "ticks": ""}
    return {**plain, "title": {"text": title, "standoff": 14}, **more}


def _kind(run: ListedRun) -> str:
    return run.policy.partition("(")[0]


def _height(clients: int) -> int:
    return int(np.clip(150 + 16 * clients, 320, 620))


def _class_names(counts: LabelCounts) -> list[str]:
    return [for_html(counts.class_name(column)) for column in range(counts.num_classes)]


def _angle(counts: LabelCounts) -> int:
    """Rotate class names that are longer than three characters, so that all of them fit."""
    return 90 if max(map(len, _class_names(counts))) > 3 else 0


def _client_names(counts: LabelCounts, rows: IntArray) -> list[str]:
    return [for_html(counts.client_name(row)) for row in rows]
