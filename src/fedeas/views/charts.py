"""The charts of the report and of the planner, as dictionaries that Plotly's script draws.

Colours of the report such as ``var(--ink)`` stand in its style sheet, so that its charts follow a dark screen. Its
legends are part of the page, where a narrow screen does not shrink them: a click on a name switches the traces with its
number in ``legendgroup``.
"""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

import numpy as np

from fedeas.core.arrays import IntArray
from fedeas.core.foreign_text import for_html
from fedeas.planning.counts import LabelCounts
from fedeas.runs.accuracy_curves import mean_curve
from fedeas.runs.comparison import Difference, Verdict
from fedeas.views.figures import PAGE, Screen, most
from fedeas.views.methods import Breakdown, MethodRuns, RunSnapshot

SOFT = "var(--soft)"  # a colour of the report
DASHES = {"solid": "solid", "dashed": "dash", "dotted": "longdashdot"}  # dots are for unfinished runs
SYMBOLS = {"solid": "circle", "dashed": "square", "dotted": "diamond"}
FEW_ROUNDS = 5
TOOLBAR = 32  # pixels that Plotly's toolbar takes above a chart
NAME_ROOM = 32  # characters of a line of a name beside a chart
MOST_NUMBERS = (25, 12)  # clients and classes of a heat map that shows its numbers
CLEAR = "rgba(0,0,0,0)"
Spec = dict[str, Any]


def chart(traces: Sequence[Spec], across: Spec, upwards: Spec, screen: Screen = PAGE, **more: Any) -> Spec:
    """A figure of these traces and axes; `more` is the rest of its layout."""
    layout = {
        "height": 440,
        "margin": {"l": 8, "r": 16, "t": TOOLBAR, "b": 8},
        "font": {"color": screen.ink, "family": "system-ui, sans-serif", "size": 12},
        "modebar": {"color": SOFT, "activecolor": screen.ink, "bgcolor": CLEAR},
        "hovermode": "closest",
        "showlegend": False,
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "hoverlabel": {"bgcolor": screen.paper, "bordercolor": screen.grid, "font": {"color": screen.ink}},
        "xaxis": across,
        "yaxis": upwards,
    }
    return {"data": traces, "layout": layout | more}


def axis(title: str, screen: Screen = PAGE, **more: Any) -> Spec:
    """An axis, whose grid has the colours of the screen."""
    words = {"title": {"text": for_html(title), "standoff": 10, "font": {"size": 13}}} if title else {}
    return {"automargin": True, "gridcolor": screen.grid, "linecolor": screen.grid, "zeroline": False, **words, **more}


def numbers(values: Any) -> list[float | None]:
    """Numbers for JSON, which has no NaN."""
    return [None if np.isnan(value) else round(float(value), 6) for value in values]


def convergence(
    methods: Sequence[MethodRuns],
    thresholds: Sequence[float] = (),
    screen: Screen = PAGE,
    ends: Mapping[RunSnapshot, tuple[str, str]] | None = None,
) -> Spec:
    """Accuracy over rounds, with the thresholds dashed.

    Each method has the mean and the extremes of its finished seeds, and its unfinished seeds dotted, up to their last
    round. There they have a symbol, and words under the mouse, which `ends` may tell.
    """
    traces: list[Spec] = []
    for group, method in enumerate(methods):
        colour, shared = method.look.colour, _group(group)
        about = f"{for_html(method.name)}, round %{{x}}: %{{y}}<extra></extra>"
        mean, drawn = mean_curve(each.curve for each in method.drawn if each.finished), list[Spec]()
        if mean.seeds > 1:
            values = {"x": [*mean.rounds, *mean.rounds[::-1]], "y": numbers([*mean.high, *mean.low[::-1]])}
            filled = {"fill": "toself", "fillcolor": colour, "opacity": 0.2, "line": {"width": 0}, "mode": "lines"}
            traces.append({**shared, **values, **filled, "hoverinfo": "skip", "showlegend": False})
        if mean.rounds:
            form = {"mode": "lines", "line": _line(method)} if len(mean.rounds) > 1 else _marks(method)
            drawn.append({"x": mean.rounds, "y": numbers(mean.middle), "hovertemplate": about, **form})
        for each in method.drawn:
            if not each.finished:
                symbol, words = (ends or {}).get(each, ("circle-open", "unfinished"))
                sizes, edge = [0] * (len(each.curve.rounds) - 1) + [9], {"width": 1, "color": colour}
                marker = {"size": sizes, "symbol": symbol, "color": colour, "line": edge}
                form = {"mode": "lines+markers", "marker": marker, "line": {"color": colour, "dash": "dot", "width": 2}}
                values = {"x": list(each.curve.rounds), "y": numbers(each.curve.accuracy)}
                drawn.append({**values, "hovertemplate": f"{for_html(words)}, {about}", **form})
        # A legend names the method once.
        traces += [{**shared, **trace, "showlegend": place == 0} for place, trace in enumerate(drawn)]
    curves = [each.curve for method in methods for each in method.drawn]
    shown = [*thresholds, *(value for curve in curves for value in curve.accuracy)]
    few = {"dtick": 1} if max(curve.rounds[-1] for curve in curves) <= FEW_ROUNDS else {}  # Plotly would add halves
    label = {"textposition": "start", "font": {"color": SOFT, "size": 12}, "yanchor": "bottom"}
    threshold = {"type": "line", "x0": 0, "x1": 1, "xref": "paper", "line": {"color": SOFT, "width": 1, "dash": "dash"}}
    return chart(
        traces,
        axis("round", screen, rangemode="tozero", **few),
        _accuracy_axis("accuracy on the test set", shown, 1, screen, tickformat=".0%", hoverformat=".1%"),
        screen,
        shapes=[
            {**threshold, "y0": each, "y1": each, "label": {**label, "text": f"threshold {100 * each:g}%"}}
            for each in thresholds
        ],
    )


def price(methods: Sequence[MethodRuns], level: str) -> Spec:
    """Accuracy against samples: a point with its spread for each method; those with equal numbers are side by side."""
    traces, ends = [], []
    for group, each in enumerate(methods):
        mean, spread = each.accuracy.mean, each.accuracy.spread or 0
        ends += [mean - spread, mean + spread]
        error = {"array": [spread], "color": each.look.colour, "visible": spread > 0}
        own: Spec = {"offsetgroup": str(group), "error_y": error}
        traces.append(_points(each, group, [f"{each.total:,}"], [mean], "<br>%{x} samples<br>%{y:.2f} %", **own))
    across = axis("synthetic samples of the whole federation", type="category", showgrid=False)
    return chart(traces, across, _accuracy_axis(level, ends, 100), scattermode="group")


def differences(apart: Sequence[tuple[MethodRuns, MethodRuns, Difference]]) -> Spec:
    """Paired differences of methods to their references, a row each; hollow where no difference is shown."""
    traces = []
    for row, (method, reference, found) in enumerate(apart):
        assert found.interval is not None
        low, high = found.interval
        ends = {"array": [high - found.mean], "arrayminus": [found.mean - low], "color": method.look.colour}
        about = f"<br>minus {for_html(reference.name)}<br>{found.mean:+.2f} points<br>{for_html(found.verdict)}"
        traces.append(_points(method, row, [found.mean], [row], about, error_x=ends))
        if found.verdict not in (Verdict.HIGHER, Verdict.LOWER):
            traces[-1]["marker"]["symbol"] += "-open"
    points = axis("points of accuracy", zeroline=True, zerolinecolor=SOFT, rangemode="tozero")
    rows, height = _rows([method.name for method, _, _ in apart])
    return chart(traces, points, {**rows, "range": [len(apart) - 0.5, -0.5]}, height=height)


def by_class(same: Sequence[Breakdown]) -> Spec:
    """Accuracy of each class, the marks of the methods side by side; all have the same classes."""
    names = same[0].names
    places, size = list(range(len(names))), 9 if len(names) <= 20 else 5
    texts = [for_html(name) for name in names]
    traces = []
    for group, each in enumerate(same):
        own = {"text": texts, "offsetgroup": str(group)}
        about = "<br>%{text}: %{y:.1f} %"
        traces.append(_points(each.method, group, places, numbers(each.mean_classes), about, size, **own))
    known = [value for each in same for value in each.mean_classes.tolist() if not np.isnan(value)]
    # Plotly leaves out and turns names that do not fit.
    short = [for_html(name if len(name) <= 16 else f"{name[:15]}…") for name in names]
    few: Spec = {"tickvals": places, "ticktext": short} if len(names) <= 40 else {}
    across = axis("class", **few, showgrid=False)
    return chart(traces, across, _accuracy_axis("accuracy, %", known, 100), scattermode="group")


def by_client(known: Sequence[Breakdown]) -> Spec:
    """Accuracy of the clients of each method, worst first."""
    traces: list[Spec] = []
    for group, each in enumerate(known):
        clients, about = numbers(each.mean_clients), "<br>%{x:.0%} of the clients have at most %{y:.1f} %"
        share = numbers((np.arange(len(clients)) + 0.5) / len(clients))
        form = {"mode": "lines+markers", "line": _line(each.method), "cliponaxis": True}
        traces.append(_points(each.method, group, share, clients, about, size=4, **form))
    shares = axis("share of the clients, worst first", tickformat=".0%", range=[0, 1])
    shown = [value for each in known for value in each.mean_clients.tolist()]
    return chart(traces, shares, _accuracy_axis("accuracy, %", shown, 100))


def heat_map(
    counts: LabelCounts, table: IntArray, rows: IntArray, largest: int, noun: str, screen: Screen = PAGE
) -> Spec:
    """A heat map of clients x classes, on a logarithmic scale of colours up to the largest count.

    Who draws it makes the colours `z` of the counts in `customdata`.
    """
    top = float(np.log10(max(10, largest)))
    decades = range(int(top) + 1)
    ticks = {"tickvals": list(decades), "ticktext": [f"{10**decade:,}" for decade in decades]}
    trace = {
        "type": "heatmap",
        "x": [for_html(name) for name in counts.class_names],
        "y": [for_html(counts.client_name(int(row))) for row in rows],
        "customdata": table[rows].tolist(),
        "hovertemplate": f"client %{{y}}<br>class %{{x}}<br>%{{customdata:,}} {noun}<extra></extra>",
        "zmin": 0,
        "zmax": top,
        "colorscale": "Viridis",
        "colorbar": {**ticks, "thickness": 10, "outlinewidth": 0, "len": 0.9},
    }
    names: Spec = {"type": "category", "showgrid": False}
    across, upwards = axis("class", screen, **names), axis("client", screen, **names, autorange="reversed")
    return chart([trace], across, upwards, screen, height=int(np.clip(130 + 16 * len(rows), 280, 580)))


def heat_maps(counts: LabelCounts, tables: Sequence[IntArray]) -> list[Spec]:
    """Heat maps of tables of clients x classes, the first with the real counts, on one colour scale.

    If there are very many clients, those with the most real samples are shown. The page's script makes the colours.
    """
    rows = most(tables[0].sum(axis=1))
    largest = max(int(table[rows].max()) for table in tables)
    maps = [heat_map(counts, table, rows, largest, "samples") for table in tables]
    if len(rows) <= MOST_NUMBERS[0] and counts.num_classes <= MOST_NUMBERS[1]:
        for each in maps:
            each["data"][0] |= {"texttemplate": "%{text:.3~s}", "textfont": {"size": 10}}
    return maps


def _accuracy_axis(title: str, shown: Sequence[float], whole: float, screen: Screen = PAGE, **more: Any) -> Spec:
    """An axis with a little room around these accuracies, but neither below 0 nor above the `whole`."""
    room = 0.04 * whole
    return axis(title, screen, range=[max(min(shown) - room, 0), min(max(shown) + room, whole)], **more)


def _rows(names: Sequence[str]) -> tuple[Spec, int]:
    """An axis with a row for each name, in lines that fit beside a chart, and the height of the chart."""
    lines = [wrap(name, NAME_ROOM) for name in names]
    texts = ["<br>".join(map(for_html, each)) for each in lines]
    upwards = axis("", tickvals=list(range(len(names))), ticktext=texts, showgrid=False)
    return upwards, 130 + max(34, 16 * max(map(len, lines)) + 8) * len(names)


def _group(group: int) -> Spec:
    """The part of a trace that lets the page's legend switch it."""
    return {"type": "scatter", "legendgroup": str(group), "name": ""}


def _marks(method: MethodRuns, size: int = 10) -> Spec:
    """Points of a method."""
    return {
        "mode": "markers",
        "marker": {"color": method.look.colour, "symbol": SYMBOLS[method.look.dash], "size": size},
    }


def _line(method: MethodRuns) -> Spec:
    """The line of a method."""
    return {"color": method.look.colour, "dash": DASHES[method.look.dash], "width": 2}


def _points(method: MethodRuns, group: int, x: Any, y: Any, about: str, size: int = 10, **more: Any) -> Spec:
    """Marks of a method, with its name and a text under the mouse."""
    words = f"{for_html(method.name)}{about}<extra></extra>"
    values = {"x": x, "y": y, "hovertemplate": words, "cliponaxis": False}
    return {**values, **_marks(method, size), **_group(group), **more}
