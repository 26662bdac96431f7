"""Figures of partitions and plans, and the colours, looks and drawing functions that all figures share."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec

import numpy as np
from matplotlib import style
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, PercentFormatter

from fedeas.core.arrays import IntArray
from fedeas.core.errors import InputError
from fedeas.core.files import PathLike, written_whole
from fedeas.core.foreign_text import printable
from fedeas.core.log import log
from fedeas.core.sentences import first_of
from fedeas.planning import scores
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies import POLICIES, FullBalance
from fedeas.views.fonts import characters_missed, use_fallbacks

# Okabe and Ito's colours, which colour-blind people can distinguish, and grey.
PALETTE = {
    "orange": "#e69f00",
    "sky": "#56b4e9",
    "green": "#009e73",
    "blue": "#0072b2",
    "vermillion": "#d55e00",
    "purple": "#cc79a7",
    "grey": "#7f7f7f",
}
ORANGE, SKY, GREEN, BLUE, VERMILLION, PURPLE, GREY = PALETTE.values()
INK, PALE = "#222222", "#d9d9d9"

# The colours that belong to a policy in all figures.
USUAL = {name: PALETTE[policy.colour] for name, policy in POLICIES.items() if policy.colour}
SPARE = (PURPLE, SKY, INK)  # not used by any policy
DASHES = ("solid", "dashed", "dotted")  # also the names in CSS, for the legend of a page

HEAT = "viridis_r"  # dark means many; white, which it does not contain, means none
DPI = 160
MOST_CLIENTS = 200
FEW_ROUNDS = 5
LONGEST_NAME = 16  # characters of a client's or class's name at an axis
FORMATS = ("png", "svg")
GRID: dict[str, Any] = {"color": PALE, "linewidth": 0.6}

STYLE: dict[str, Any] = {
    "figure.dpi": DPI,
    "font.size": 11,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "figure.titlesize": 12,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "lines.linewidth": 2.0,
    "text.parse_math": False,  # names of clients and classes are not formulas
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "svg.fonttype": "none",
    "svg.hashsalt": "fedeas",
}

P = ParamSpec("P")


class Look(NamedTuple):
    """How a method is drawn."""

    colour: str
    dash: str = "solid"


class Screen(NamedTuple):
    """Colours of text, of grid lines and of the page itself."""

    ink: str
    grid: str
    paper: str


LIGHT, DARK = Screen(INK, "#e8ebef", "#ffffff"), Screen("#edebe8", "#302e2b", "#171614")


def looks_of(policies: Sequence[str]) -> list[Look]:
    """A look for each policy: its usual colour if that is free, else the next other colour, and at last dashes.

    Dots and bars cannot be dashed, so that all colours are used first.
    """
    chosen: list[Look] = []
    lent = [Look(colour, dash) for dash in DASHES for colour in (*SPARE, *USUAL.values())]
    for policy in policies:
        usual = [Look(USUAL[policy])] if policy in USUAL else []
        chosen.append(min([*usual, *lent], key=chosen.count))  # the first of the least used looks
    return chosen


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Decorate a drawing function: it uses our style and does not change the caller's settings."""

    @wraps(draw)
    def in_style(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with style.context(["default", STYLE]):
            return draw(*args, **kwargs)

    return in_style


def checked_ending(path: PathLike) -> str:
    """The ending of a figure's file; refuse one that cannot be drawn."""
    ending = Path(path).suffix.lower()
    if ending.removeprefix(".") not in FORMATS:
        raise InputError(f"{path}: figures are written as PNG or SVG; use a name that ends in .png or .svg")
    return ending


def save(figure: Figure, path: PathLike) -> None:
    """Write the figure as PNG or SVG, by the file's ending; the same figure gives the same bytes."""
    is_svg = checked_ending(path) == ".svg"
    undated = {"Date": None} if is_svg else None
    # Ticks are created only now, so the style is needed again.
    with style.context(["default", STYLE]), written_whole(path) as part:
        draw = partial(figure.savefig, part, dpi=DPI, metadata=undated)
        missed = characters_missed(draw)
        if missed and use_fallbacks(figure):
            missed = characters_missed(draw)
    if missed and not is_svg:  # an SVG holds text, which is drawn with the fonts of whoever looks at it
        shown = printable(first_of(missed))
        log.warning("%s: shows boxes for %s, which no font here has; use .svg, or install a font", path, shown)


def save_all(figures: Iterable[tuple[str, Figure]], folder: Path) -> None:
    """Write figures by these names in every format."""
    for name, figure in figures:
        for ending in FORMATS:
            save(figure, folder / f"{name}.{ending}")


def stacked(figure: Figure, *heights: float) -> Any:
    """Parts of a figure, one below the other, each with its own layout."""
    return figure.subfigures(len(heights), 1, height_ratios=heights, hspace=0.03)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches that makes room for its labels."""
    return Figure(figsize=(width, height), layout="constrained")


@styled
def plan_figure(counts: LabelCounts, allocation: Allocation) -> Figure:
    """Real and synthetic samples as heat maps of clients x classes, beside each client's demand and its plan."""
    demand = FullBalance().allocate(counts)
    rows = most(allocation.per_client)
    figure = new_figure(10, _height(rows.size))
    real, synthetic, bars = figure.subplots(1, 3, sharey=True, width_ratios=(1, 1, 0.9))
    share = scores.imbalance_removed(counts, allocation)
    does = f"{allocation.policy or 'plan'}: {allocation.total:,} synthetic samples remove {share:.1%} of the imbalance"
    title = f"{textwrap.fill(does, 90)}\n(Full-Balance generates {demand.total:,})"
    figure.suptitle(title + _selection(rows, counts, "synthetic"))
    tables = counts.n[rows], allocation.n[rows]
    norm = heat_norm(*tables)
    for axes, table, title in zip((real, synthetic), tables, ("Real samples", "Synthetic samples"), strict=True):
        image = heat_map(axes, table, norm)
        name_classes(axes, counts)
        axes.set_title(title)
    _name_clients(real, counts, rows)
    heat_bar(figure, image, [real, synthetic])
    wanted, planned, places = demand.per_client[rows], allocation.per_client[rows], np.arange(rows.size)
    line, wide, narrow = (0.0, 1.0, 1.0) if rows.size > 60 else (0.8, 0.84, 0.5)
    hatched = {"color": "white", "edgecolor": GREY, "linewidth": line, "hatch": "/////"}
    bars.barh(places, wanted, wide, label="Full-Balance demand", **hatched)
    bars.barh(places, planned, narrow, color=BLUE, label="this plan")
    _scale_counts(bars, np.concatenate([wanted, planned]))
    bars.set_xlabel("synthetic samples of the client")
    bars.legend(loc="lower left", bbox_to_anchor=(-0.02, 0.99), borderaxespad=0.2)
    return figure


@styled
def partition_figure(counts: LabelCounts) -> Figure:
    """Real samples as a heat map of clients x classes, beside the clients' sizes."""
    rows = most(counts.sizes)
    figure = new_figure(8, _height(rows.size))
    heat, bars = figure.subplots(1, 2, sharey=True, width_ratios=(1.3, 1))
    clients = "1 client" if counts.num_clients == 1 else f"{counts.num_clients:,} clients"
    held = f"{counts.total:,} samples of {counts.num_classes:,} classes at {clients}"
    title = f"{held}, imbalance {scores.imbalance(counts):.3f}"
    figure.suptitle(title + _selection(rows, counts, "real"))
    image = heat_map(heat, counts.n[rows], heat_norm(counts.n[rows]))
    heat.set_title("Samples of each class")
    name_classes(heat, counts)
    _name_clients(heat, counts, rows)
    heat_bar(figure, image, [heat])
    bars.barh(np.arange(rows.size), counts.sizes[rows], 0.8, color=BLUE)
    bars.set(title="Samples of each client", xlabel="samples")
    _number_from(bars, 0, int(counts.sizes.max()))
    return figure


@styled
def comparison_figure(counts: LabelCounts, allocations: Sequence[Allocation]) -> Figure:
    """Bars of the imbalance that each policy removes, above heat maps of its samples."""
    lines = -(-len(allocations) // 4)
    columns = -(-len(allocations) // lines)
    label_lines = max(_label(each).count("\n") + 1 for each in allocations)
    bars, maps = 0.6 + max(0.42, 0.2 * label_lines) * len(allocations), 1.5 + 2.5 * lines
    figure = new_figure(10, bars + maps)
    top, bottom = stacked(figure, bars, maps)
    _removed_bars(top.subplots(), counts, allocations)
    rows = most(np.max([each.per_client for each in allocations], axis=0))
    norm = heat_norm(*(each.n[rows] for each in allocations))
    panels = bottom.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    for place, axes in enumerate(panels.flat):
        if place >= len(allocations):
            axes.set_visible(False)
            continue
        image = heat_map(axes, allocations[place].n[rows], norm, numbers=False)
        axes.set_title(_label(allocations[place]), fontsize=9)
        if place + columns >= len(allocations):  # nothing below it
            name_classes(axes, counts, room=12)
            axes.tick_params(axis="x", labelbottom=True)
        if place % columns == 0:
            _name_clients(axes, counts, rows, room=10)
    bottom.suptitle("Synthetic samples of each client and class" + _selection(rows, counts, "synthetic"))
    heat_bar(bottom, image, list(panels.flat))
    return figure


def heat_norm(*tables: IntArray) -> Any:
    """One logarithmic colour scale for all these counts, starting at one sample."""
    return LogNorm(1, max(10, *(int(table.max()) for table in tables)))


def heat_map(axes: Any, table: IntArray, norm: Any, numbers: bool = True) -> Any:
    """Draw counts in colour, and zeros in white; write the numbers into a small table."""
    image = axes.imshow(np.ma.masked_equal(table, 0), HEAT, norm, aspect="auto", interpolation="nearest")
    axes.spines[:].set_visible(True)
    if numbers and table.shape[0] <= 25 and table.shape[1] <= 10:
        short = EngFormatter(sep="", places=0)
        for row, column in np.argwhere(table):
            count = int(table[row, column])
            text = short(count) if count > 9999 else str(count)
            ink = "white" if norm(count) > 0.4 else INK
            axes.text(column, row, text, ha="center", va="center", fontsize=7.5, color=ink)
    return image


def heat_bar(figure: Any, image: Any, panels: Sequence[Any]) -> None:
    """Draw the colour scale below these panels."""
    bar = figure.colorbar(image, ax=panels, location="bottom", aspect=40, pad=0.02, format=EngFormatter(sep=""))
    bar.set_label("samples (white: none)")


def _scale_counts(axes: Any, shown: IntArray) -> None:
    """Number a horizontal axis of counts; on a logarithmic scale if they span more than a decade."""
    least, largest = int(shown[shown > 0].min(initial=shown.max())), int(shown.max())
    foot = 0.0
    if largest > 10 * least:
        axes.set_xscale("log")
        # A logarithmic axis has no zero: start low enough that the shortest bar is visible.
        foot = 0.5 * 10 ** np.floor(np.log10(least))
    _number_from(axes, foot, largest)


def _number_from(axes: Any, foot: float, largest: int) -> None:
    """Let a horizontal axis of counts start at `foot` and end a little beyond the largest."""
    axes.set_xlim(foot, 1.05 * max(10, largest))  # with less than ten, ticks would be fractions of a sample
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(axis="x", **GRID)


def name_classes(axes: Any, counts: LabelCounts, room: int = 20) -> None:
    """Write class names along the lower edge, at most `room` of them."""
    names = list(counts.class_names)
    upright = max(map(len, names)) > 2 or len(names) > 10
    _name(axes.xaxis, names, room)
    axes.tick_params(axis="x", rotation=90 if upright else 0, labelsize=9)
    axes.set_xlabel("class")


def most(weights: IntArray, limit: int = MOST_CLIENTS) -> IntArray:
    """Rows of the clients to show, in order: all, or if they are too many, those with the most weight."""
    return np.sort(np.argsort(-weights, kind="stable")[:limit])


def round_ticks(curves: Iterable[Sequence[int]]) -> dict[str, int]:
    """How Plotly should number the axis of these rounds: if they are few, each one; it would also number halves."""
    last = max((rounds[-1] for rounds in curves if rounds), default=0)
    return {"dtick": 1} if last <= FEW_ROUNDS else {}


def percent_axis(axis: Any) -> None:
    """Number an axis of shares in percent."""
    axis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _removed_bars(axes: Any, counts: LabelCounts, allocations: Sequence[Allocation]) -> None:
    removed = [scores.imbalance_removed(counts, each) for each in allocations]
    places = np.arange(len(allocations))
    axes.barh(places, removed, 0.65, color=BLUE)
    for place, share, each in zip(places, removed, allocations, strict=True):
        text = f"{share:.1%} with {each.total:,} samples"
        axes.annotate(text, (max(share, 0), place), (6, 0), textcoords="offset points", va="center", fontsize=10)
    axes.set(title="Imbalance removed", xlim=(min(0.0, *removed), 1.4 * max(0.1, *removed)), xticks=[])
    axes.set_yticks(places, [_label(each) for each in allocations])
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.spines["bottom"].set_visible(False)


def _selection(rows: IntArray, counts: LabelCounts, kind: str) -> str:
    if rows.size == counts.num_clients:
        return ""
    return f"\nshown: the {rows.size:,} of {counts.num_clients:,} clients with most {kind} samples"


def _label(allocation: Allocation) -> str:
    """The policy on one line if it is short, else wrapped before its arguments."""
    spec = allocation.policy or "plan"
    if len(spec) <= 18:
        return spec
    name, bracket, arguments = spec.partition("(")
    return "\n".join([name, *textwrap.wrap(bracket + arguments, 26)])


def _name_clients(axes: Any, counts: LabelCounts, rows: IntArray, room: int = 30) -> None:
    _name(axes.yaxis, [counts.client_name(row) for row in rows], room)
    axes.set_ylabel("client")


def _name(axis: Any, names: Sequence[str], room: int) -> None:
    """Write every name, or every second, fifth, tenth and so on, so that there are at most `room`."""
    steps = (digit * 10**power for power in range(7) for digit in (1, 2, 5))
    step = next(step for step in steps if len(names) <= step * room)
    places = range(0, len(names), step)
    axis.set_ticks(places, labels=[_shortened(names[place]) for place in places])


def _shortened(name: str) -> str:
    shown = printable(name[:LONGEST_NAME])  # a character that cannot be shown takes several
    fits = max(len(name), len(shown)) <= LONGEST_NAME
    return shown if fits else f"{shown[: LONGEST_NAME - 1]}…"


def _height(clients: int) -> float:
    return float(np.clip(2.6 + 0.2 * clients, 4.2, 8.5))
