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
from fedeas.runs.comparison import Difference, Verdict
from fedeas.views import charts
from fedeas.views.charts import Spec, axis, numbers
from fedeas.views.figures import Screen, most
from fedeas.views.report.methods import Breakdown, MethodRuns

PAGE, SOFT = Screen("var(--ink)", "var(--line)", "var(--paper)"), "var(--soft)"
TOOLBAR = 32  # pixels that Plotly's toolbar takes above a chart
NAME_ROOM = 32  # characters of a line of a name beside a chart
MOST_NUMBERS = (25, 12)  # clients and classes of a heat map that shows its numbers


def convergence(methods: Sequence[MethodRuns], thresholds: Sequence[float]) -> Spec:
    """Accuracy over rounds, with the thresholds dashed.

    Each method has the mean and the extremes of its finished seeds, and its unfinished seeds dotted, up to their last
    round.
    """
    traces: list[Spec] = []
    for group, method in enumerate(methods):
        about = f"{for_html(method.name)}: %{{y}}<extra></extra>"
        unfinished = [(curve, "circle-open", f"unfinished, {about}") for curve in method.unfinished_curves]
        traces += charts.accuracy_traces(method.finished_curves, unfinished, method.look, about, **_group(group))
    curves = [curve for each in methods for curve in (*each.finished_curves, *each.unfinished_curves)]
    shown = [*thresholds, *(value for curve in curves for value in curve.accuracy)]
    words = {"textposition": "start", "font": {"color": SOFT, "size": 12}, "yanchor": "bottom"}
    threshold = {"type": "line", "x0": 0, "x1": 1, "xref": "paper", "line": {"color": SOFT, "width": 1, "dash": "dash"}}
    return _chart(
        traces,
        charts.round_axis(curves, PAGE),
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
        about = f"<br>{each.total:,} samples<br>%{{y:.2f}} %"
        traces.append(_points(each, group, [place], [mean], about, error_y=error))
    ticks = {"tickvals": [zero, *decades], "ticktext": ["0", *(f"{10**decade:,}" for decade in decades)]}
    across = axis("synthetic samples of the whole federation", PAGE, **ticks, range=[zero - 2 * step, last + 2 * step])
    return _chart(traces, across, _accuracy_axis(level, ends, 100))


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
    points = axis("points of accuracy", PAGE, zeroline=True, zerolinecolor=SOFT, rangemode="tozero")
    rows, height = _rows([method.name for method, _, _ in apart])
    return _chart(traces, points, {**rows, "range": [len(apart) - 0.5, -0.5]}, height=height)


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
    few = {"tickvals": places, "ticktext": short} if len(names) <= 40 else {}
    across = axis("class", PAGE, **few, showgrid=False)
    return _chart(traces, across, _accuracy_axis("accuracy, %", known, 100), scattermode="group")


def by_client(known: Sequence[Breakdown]) -> Spec:
    """Accuracy of the clients of each method, worst first."""
    traces: list[Spec] = []
    for group, each in enumerate(known):
        clients, about = numbers(each.mean_clients), "<br>%{x:.0%} of the clients have at most %{y:.1f} %"
        share = numbers((np.arange(len(clients)) + 0.5) / len(clients))
        form = {"mode": "lines+markers", "line": charts.line(each.method.look), "cliponaxis": True}
        traces.append(_points(each.method, group, share, clients, about, size=4, **form))
    shares = axis("share of the clients, worst first", PAGE, tickformat=".0%", range=[0, 1])
    shown = [value for each in known for value in each.mean_clients.tolist()]
    return _chart(traces, shares, _accuracy_axis("accuracy, %", shown, 100))


def heat_maps(counts: LabelCounts, tables: Sequence[IntArray]) -> list[Spec]:
    """Heat maps of tables of clients x classes, the first with the real counts, on one colour scale.

    If there are very many clients, those with the most real samples are shown. The page's script makes colours of the
    texts.
    """
    rows = most(tables[0].sum(axis=1))
    trace = charts.heat_map(counts, rows, max(int(table[rows].max()) for table in tables), "samples")
    trace["colorbar"]["len"] = 0.9
    if len(rows) <= MOST_NUMBERS[0] and counts.num_classes <= MOST_NUMBERS[1]:
        trace |= {"texttemplate": "%{text:.3~s}", "textfont": {"size": 10}}
    names: Spec = {"type": "category", "showgrid": False}
    across, upwards = axis("class", PAGE, **names), axis("client", PAGE, **names, autorange="reversed")
    height = int(np.clip(130 + 16 * len(rows), 280, 580))
    return [_chart([{**trace, "text": table[rows].tolist()}], across, upwards, height=height) for table in tables]


def times(spent: Mapping[MethodRuns, Sequence[float]]) -> Spec:
    """Stacked bars of the seconds of each method: hatched for generation, solid for training, pale for the rest."""
    most, colours = max(map(sum, spent.values())), [each.look.colour for each in spent]
    sizes = {"hours": 3600.0, "minutes": 60.0}  # the largest unit that fits at least twice
    unit, seconds = next(((unit, size) for unit, size in sizes.items() if most >= 2 * size), ("seconds", 1.0))
    hatched = {"shape": "/", "fgcolor": colours, "bgcolor": PAGE.paper, "size": 6, "solidity": 0.35}
    generation = {"color": colours, "pattern": hatched}
    fills = {"generation": generation, "training": {"color": colours}, "the rest": {"color": PAGE.grid}}
    traces: list[Spec] = [
        {
            "type": "bar",
            "orientation": "h",
            "x": numbers(np.array([parts[place] for parts in spent.values()]) / seconds),
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
        traces, axis(f"{unit} per run", PAGE, rangemode="tozero"), {**rows, "autorange": "reversed"},
        height=height, barmode="stack", bargap=0.35, showlegend=True, legend=legend,
    )  # fmt: skip


def _chart(traces: Sequence[Spec], across: Spec, upwards: Spec, **more: Any) -> Spec:
    own = {
        "height": 440,
        "margin": {"l": 8, "r": 16, "t": TOOLBAR, "b": 8},
        "font": {"color": PAGE.ink, "family": "system-ui, sans-serif", "size": 12},
        "modebar": {"color": SOFT, "activecolor": PAGE.ink, "bgcolor": charts.CLEAR},
        "hovermode": "closest",
        "showlegend": False,
    }
    return charts.chart(traces, across, upwards, PAGE, **own | more)


def _accuracy_axis(title: str, shown: Sequence[float], whole: float, **more: Any) -> Spec:
    """An axis with a little room around these accuracies, but neither below 0 nor above the `whole`."""
    room = 0.04 * whole
    return axis(title, PAGE, range=[max(min(shown) - room, 0), min(max(shown) + room, whole)], **more)


def _rows(names: Sequence[str]) -> tuple[Spec, int]:
    """An axis with a row for each name, in lines that fit beside a chart, and the height of the chart."""
    lines = [wrap(name, NAME_ROOM) for name in names]
    texts = ["<br>".join(map(for_html, each)) for each in lines]
    upwards = axis("", PAGE, tickvals=list(range(len(names))), ticktext=texts, showgrid=False)
    return upwards, 130 + max(34, 16 * max(map(len, lines)) + 8) * len(names)


def _group(group: int) -> Spec:
    """The part of a trace that lets the page's legend switch it."""
    return {"type": "scatter", "legendgroup": str(group), "name": ""}


def _points(method: MethodRuns, group: int, x: Any, y: Any, about: str, size: int = 10, **more: Any) -> Spec:
    """Marks of a method, with its name and a text under the mouse."""
    words = f"{for_html(method.name)}{about}<extra></extra>"
    values = {"x": x, "y": y, "hovertemplate": words, "cliponaxis": False}
    return {**values, **charts.marks(method.look, size), **_group(group), **more}
