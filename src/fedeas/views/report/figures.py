"""The report's charts: from methods to figures of Plotly, as the dictionaries that its script draws.

Colours such as ``var(--ink)`` stand in the page's style sheet, so that charts follow a dark
screen. Legends are part of the page, where a narrow screen does not shrink them: a click on a name switches the traces
with its number in ``legendgroup``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

import numpy as np

from fedeas.core.arrays import IntArray
from fedeas.core.foreign_text import for_html
from fedeas.planning.counts import LabelCounts
from fedeas.runs.accuracy_curves import mean_curve
from fedeas.runs.comparison import Difference, Verdict
from fedeas.views import figures as plots
from fedeas.views.figures import Look
from fedeas.views.report.methods import Breakdown, MethodRuns

INK, SOFT, LINE, PAPER = "var(--ink)", "var(--soft)", "var(--line)", "var(--paper)"
DASHES = {"solid": "solid", "dashed": "dash", "dotted": "dot"}
SYMBOLS = {"solid": "circle", "dashed": "square", "dotted": "diamond"}
TOOLBAR = 32  # pixels that Plotly's toolbar takes above a chart
NAME_ROOM = 32  # characters of a line of a name beside a chart
MOST_NUMBERS = (25, 12)  # clients and classes of a heat map that shows its numbers

Spec = dict[str, Any]


def convergence(methods: Sequence[MethodRuns], thresholds: Sequence[float]) -> Spec:
    """Accuracy over rounds, with the thresholds dashed.

    Each method has the mean and the extremes of its finished seeds, and its unfinished seeds dotted, up to their last
    round.
    """
    traces: list[Spec] = []
    for group, method in enumerate(methods):
        (colour, dash), mean, same = method.look, mean_curve(method.curves(finished=True)), _group(group)
        about = f"{for_html(method.name)}: %{{y}}<extra></extra>"
        if mean.seeds > 1:
            traces.append(plots.mean_band(mean.rounds, _numbers(mean.low), _numbers(mean.high), colour) | same)
        if mean.rounds:
            line = {"color": colour, "dash": DASHES[dash], "width": 2}
            drawn = {"mode": "lines", "line": line} if len(mean.rounds) > 1 else _marks(method.look, group)
            traces.append({"x": mean.rounds, "y": _numbers(mean.middle), "hovertemplate": about, **same, **drawn})
        for rounds, accuracies in method.curves(finished=False):
            line = {"color": colour, "dash": "dot", "width": 2}
            values = {"x": list(rounds), "y": _numbers(accuracies), "hovertemplate": f"unfinished, {about}"}
            last = {"color": colour, "size": [0] * (len(rounds) - 1) + [8], "symbol": "circle-open"}
            traces.append({**values, "marker": last, "mode": "lines+markers", "line": line, **same})
    curves = [curve for each in methods for finished in (True, False) for curve in each.curves(finished)]
    shown = [*thresholds, *(value for curve in curves for value in curve.accuracy)]
    words = {"textposition": "start", "font": {"color": SOFT, "size": 12}, "yanchor": "bottom"}
    threshold = {"type": "line", "x0": 0, "x1": 1, "xref": "paper", "line": {"color": SOFT, "width": 1, "dash": "dash"}}
    return _chart(
        traces,
        _axis("round", rangemode="tozero", **plots.round_ticks([curve.rounds for curve in curves])),
        _accuracy_axis("accuracy on the test set", shown, 1, tickformat=".0%", hoverformat=".1%"),
        hovermode="x unified",
        shapes=[
            {**threshold, "y0": each, "y1": each, "label": {**words, "text": f"threshold {100 * each:g}%"}}
            for each in thresholds
        ],
    )


def price(methods: Sequence[MethodRuns], level: str) -> Spec:
    """Accuracy against samples: a point with its spread for each method; equal numbers are side by side.

    The axis is logarithmic, with a place for 0.
    """
    samples = [method.total for method in methods]
    positive = [number for number in samples if number > 0]
    first = int(np.floor(np.log10(min(positive, default=10))))
    last = int(np.ceil(np.log10(max(positive, default=10))))
    zero, decades = first - 0.6, range(first, last + 1)
    step = 0.03 * (last - zero)
    traces, ends = [], []
    for group, each in enumerate(methods):
        beside = samples[:group].count(each.total) - (samples.count(each.total) - 1) / 2
        place = round((float(np.log10(each.total)) if each.total else zero) + step * beside, 4)
        mean, spread = each.accuracy.mean, each.accuracy.spread or 0
        ends += [mean - spread, mean + spread]
        error = {"array": [spread], "color": each.look.colour, "visible": spread > 0}
        about = f"{for_html(each.name)}<br>{each.total:,} samples<br>%{{y:.2f}} %<extra></extra>"
        point = {"x": [place], "y": [mean], "error_y": error, "hovertemplate": about}
        traces.append(point | _marks(each.look, group))
    ticks = {"tickvals": [zero, *decades], "ticktext": ["0", *(f"{10**decade:,}" for decade in decades)]}
    across = _axis("synthetic samples of the whole federation", **ticks, range=[zero - 2 * step, last + 2 * step])
    return _chart(traces, across, _accuracy_axis(level, ends, 100))


def differences(apart: Sequence[tuple[MethodRuns, MethodRuns, Difference]]) -> Spec:
    """Paired differences of methods to their references, a row each; hollow where no difference is shown."""
    traces = []
    for row, (method, reference, found) in enumerate(apart):
        assert found.interval is not None
        low, high = found.interval
        marks = _marks(method.look, row)
        if found.verdict not in (Verdict.HIGHER, Verdict.LOWER):
            marks["marker"]["symbol"] += "-open"
        ends = {"array": [high - found.mean], "arrayminus": [found.mean - low], "color": method.look.colour}
        pair = f"{for_html(method.name)}<br>minus {for_html(reference.name)}"
        about = f"{pair}<br>{found.mean:+.2f} points<br>{for_html(found.verdict)}<extra></extra>"
        traces.append({"x": [found.mean], "y": [row], "error_x": ends, "hovertemplate": about, **marks})
    points = _axis("points of accuracy", zeroline=True, zerolinecolor=SOFT, rangemode="tozero")
    rows, height = _rows([method.name for method, _, _ in apart])
    return _chart(traces, points, {**rows, "range": [len(apart) - 0.5, -0.5]}, height=height)


def by_class(same: Sequence[Breakdown]) -> Spec:
    """Accuracy of each class, the marks of the methods side by side; all have the same classes."""
    names = same[0].names
    traces = [
        {
            "x": list(range(len(names))),
            "y": _numbers(each.mean_classes),
            "text": [for_html(name) for name in names],
            "offsetgroup": str(group),
            "hovertemplate": f"{for_html(each.method.name)}<br>%{{text}}: %{{y:.1f}} %<extra></extra>",
            **_marks(each.method.look, group, size=9 if len(names) <= 20 else 5),
        }
        for group, each in enumerate(same)
    ]
    known = [value for each in same for value in each.mean_classes.tolist() if not np.isnan(value)]
    # Plotly leaves out and turns names that do not fit.
    texts = [for_html(name if len(name) <= 16 else f"{name[:15]}…") for name in names]
    few = {"tickvals": list(range(len(names))), "ticktext": texts} if len(names) <= 40 else {}
    across = _axis("class", **few, showgrid=False)
    return _chart(traces, across, _accuracy_axis("accuracy, %", known, 100), scattermode="group")


def by_client(known: Sequence[Breakdown]) -> Spec:
    """Accuracy of the clients of each method, worst first."""
    traces: list[Spec] = []
    for group, each in enumerate(known):
        clients, look = each.mean_clients, each.method.look
        share = (np.arange(len(clients)) + 0.5) / len(clients)
        about = f"{for_html(each.method.name)}<br>%{{x:.0%}} of the clients have at most %{{y:.1f}} %<extra></extra>"
        line = {"color": look.colour, "dash": DASHES[look.dash], "width": 2}
        values = {"x": _numbers(share), "y": _numbers(clients), "hovertemplate": about}
        traces.append({"mode": "lines+markers", "marker": {"size": 4}, "line": line, **values, **_group(group)})
    shares = _axis("share of the clients, worst first", tickformat=".0%", range=[0, 1])
    shown = [value for each in known for value in each.mean_clients.tolist()]
    return _chart(traces, shares, _accuracy_axis("accuracy, %", shown, 100))


def heat_maps(counts: LabelCounts, tables: Sequence[IntArray]) -> list[Spec]:
    """Heat maps of tables of clients x classes, the first with the real counts, on one colour scale.

    If there are very many clients, those with the most real samples are shown. The page's script makes colours of the
    texts.
    """
    rows = plots.most(tables[0].sum(axis=1))
    largest = max(10, *(int(table[rows].max()) for table in tables))
    small = len(rows) <= MOST_NUMBERS[0] and counts.num_classes <= MOST_NUMBERS[1]
    trace: Spec = {
        "type": "heatmap",
        "hovertemplate": "client %{y}<br>class %{x}<br>%{customdata:,} samples<extra></extra>",
        "x": [for_html(name) for name in counts.class_names],
        "y": [for_html(counts.client_name(int(row))) for row in rows],
        "zmin": 0,
        "zmax": float(np.log10(largest)),
        "colorscale": "Viridis",
        "colorbar": {**plots.decade_ticks(largest), "thickness": 10, "outlinewidth": 0, "len": 0.9},
        **({"texttemplate": "%{text:.3~s}", "textfont": {"size": 10}} if small else {}),
    }
    names: Spec = {"type": "category", "showgrid": False}
    across, upwards = _axis("class", **names), _axis("client", **names, autorange="reversed")
    height = int(np.clip(130 + 16 * len(rows), 280, 580))
    return [_chart([{**trace, "text": table[rows].tolist()}], across, upwards, height=height) for table in tables]


def times(spent: Mapping[MethodRuns, Sequence[float]]) -> Spec:
    """Stacked bars of the seconds of each method: hatched for generation, solid for training, pale for the rest."""
    most, colours = max(map(sum, spent.values())), [each.look.colour for each in spent]
    sizes = {"hours": 3600.0, "minutes": 60.0}  # the largest unit that fits at least twice
    unit, seconds = next(((unit, size) for unit, size in sizes.items() if most >= 2 * size), ("seconds", 1.0))
    hatched = {"shape": "/", "fgcolor": colours, "bgcolor": PAPER, "size": 6, "solidity": 0.35}
    generation = {"color": colours, "pattern": hatched}
    fills = {"generation": generation, "training": {"color": colours}, "the rest": {"color": LINE}}
    traces: list[Spec] = [
        {
            "type": "bar",
            "orientation": "h",
            "x": _numbers(np.array([parts[place] for parts in spent.values()]) / seconds),
            "y": list(range(len(spent))),
            "name": part,
            "marker": marker,
            "hovertemplate": f"{part}: %{{x:,.1f}} {unit}<extra></extra>",
        }
        for place, (part, marker) in enumerate(fills.items())
    ]
    sums = [f"{sum(parts) / seconds:,.1f}" for parts in spent.values()]
    traces[-1] |= {"text": sums, "textposition": "outside", "cliponaxis": False}
    rows, height = _rows([each.name for each in spent])
    legend = {"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0, "traceorder": "normal"}
    return _chart(
        traces, _axis(f"{unit} per run", rangemode="tozero"), {**rows, "autorange": "reversed"},
        height=height, barmode="stack", bargap=0.35, showlegend=True, legend=legend,
    )  # fmt: skip


def _chart(traces: Sequence[Spec], across: Spec, upwards: Spec, **more: Any) -> Spec:
    layout = {
        "height": 440,
        "margin": {"l": 8, "r": 16, "t": TOOLBAR, "b": 8},
        "font": {"color": INK, "family": "system-ui, sans-serif", "size": 12},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hoverlabel": {"bgcolor": PAPER, "bordercolor": LINE, "font": {"color": INK}, "align": "left"},
        "modebar": {"color": SOFT, "activecolor": INK, "bgcolor": "rgba(0,0,0,0)"},
        "hovermode": "closest",
        "showlegend": False,
        "xaxis": across,
        "yaxis": upwards,
    }
    return {"data": traces, "layout": layout | more}


def _axis(title: str, **more: Any) -> Spec:
    words = {"title": {"text": for_html(title), "standoff": 10, "font": {"size": 13}}} if title else {}
    return {"automargin": True, "gridcolor": LINE, "linecolor": LINE, "zeroline": False, **words, **more}


def _accuracy_axis(title: str, shown: Sequence[float], whole: float, **more: Any) -> Spec:
    """An axis with a little room around these accuracies, but neither below 0 nor above the `whole`."""
    room = 0.04 * whole
    return _axis(title, range=[max(min(shown) - room, 0), min(max(shown) + room, whole)], **more)


def _rows(names: Sequence[str]) -> tuple[Spec, int]:
    """An axis with a row for each name, in lines that fit beside a chart, and the height of the chart."""
    lines = [wrap(name, NAME_ROOM) for name in names]
    texts = ["<br>".join(map(for_html, each)) for each in lines]
    axis = _axis("", tickvals=list(range(len(names))), ticktext=texts, showgrid=False)
    return axis, 130 + max(34, 16 * max(map(len, lines)) + 8) * len(names)


def _group(group: int) -> Spec:
    """The part of a trace that lets the page's legend switch it."""
    return {"type": "scatter", "legendgroup": str(group), "name": ""}


def _marks(look: Look, group: int, size: int = 10) -> Spec:
    marker = {"color": look.colour, "symbol": SYMBOLS[look.dash], "size": size}
    return {"mode": "markers", "marker": marker, "cliponaxis": False, **_group(group)}


def _numbers(values: Any) -> list[float | None]:
    """Numbers for JSON, which has no NaN."""
    return [None if np.isnan(value) else round(float(value), 6) for value in values]
