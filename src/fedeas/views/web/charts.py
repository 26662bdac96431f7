"""The page's figures in Plotly, with named axes and colours that colour-blind people can distinguish.

Each takes the colours of the screen, light or dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

import numpy as np

from fedeas.core.arrays import IntArray
from fedeas.core.foreign_text import for_html
from fedeas.planning.counts import LabelCounts
from fedeas.views import charts
from fedeas.views.charts import Spec, axis
from fedeas.views.figures import DARK, INK, LIGHT, Screen, looks_of
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


def heat_map(
    counts: LabelCounts, table: IntArray, rows: IntArray, largest: int, title: str, screen: Screen = LIGHT
) -> Spec:
    """Samples of clients x classes, blank where there are none. The largest count has the strongest colour."""
    trace = charts.heat_map(counts, rows, largest, "images")
    shown, height = table[rows], max(150 + ROW * rows.size, 320)
    trace |= {"z": np.log10(np.where(shown, shown, np.nan)), "customdata": shown, "reversescale": screen is not DARK}
    side = {"text": "images", "side": "right"}
    length = min(400, height - 180)  # beside the shortest map under the longest names
    trace["colorbar"] |= {"title": side, "len": length, "lenmode": "pixels", "y": 1, "yanchor": "top"}
    names: Spec = {"type": "category", "showgrid": False}
    angle = 90 if max(map(len, trace["x"])) > 3 else 0  # so that all of them fit
    across = axis("class", screen, **names, tickangle=angle, side="top")
    downwards = [rows.size - 0.5, -0.5]  # the first client is at the top
    upwards = axis("client", screen, **names, range=downwards, dtick=1, ticklabelstandoff=7)
    return _figure([trace], title, height, across, upwards, screen)


def accuracy(methods: Sequence[ListedMethod], screen: Screen = LIGHT) -> Spec:
    """Accuracy over rounds: mean and extremes over each method's finished seeds, and dotted lines of unfinished runs.

    A dotted line ends in a dot if the run is in progress, and in a cross if it was stopped.
    """
    shown = methods[:MOST_METHODS]
    names = [wrap(method.name, LEGEND_CHARACTERS) for method in shown]
    traces: list[Spec] = []
    for method, lines, look in zip(shown, names, looks_of([method.policy for method in shown]), strict=True):
        seeds = f" (mean of {len(method.finished)} seeds)" if len(method.finished) > 1 else ""
        values = "<br>round %{x}<br>%{y:.1%}<extra></extra>"
        traces += charts.accuracy_traces(
            [run.curve for run in method.finished],
            [
                (run.curve, "circle" if run.under_way else "x", f"{for_html(f'{run.name}, {run.state}')}{values}")
                for run in method.unfinished
            ],
            look._replace(colour=screen.ink) if look.colour == INK else look,
            f"{for_html(method.name)}{seeds}{values}",
            name="<br>".join(map(for_html, lines)),
            legendgroup=method.name,
        )
    across = charts.round_axis((run.curve for each in shown for run in (*each.finished, *each.unfinished)), screen)
    upwards = axis("accuracy on the test set", screen, tickformat=".0%")
    height = 440 + LEGEND_LINE * sum(map(len, names))
    return _figure(traces, "Accuracy over rounds", height, across, upwards, screen)


def _figure(traces: Sequence[Spec], title: str, height: int, across: Spec, upwards: Spec, screen: Screen) -> Spec:
    heading = {"text": title, "font": {"size": 15}, "x": 0, "y": 1, "yanchor": "top", "pad": {"t": 6}}
    return charts.chart(
        traces, across, upwards, screen, template="none", title=heading, height=height, dragmode=False, legend=LEGEND,
        font={"color": screen.ink, "size": 12, "family": FONT}, margin={"l": 10, "r": 10, "t": 40, "b": 10},
    )  # fmt: skip
