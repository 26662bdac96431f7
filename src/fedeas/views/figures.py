"""Figures of partitions and plans, and the colours, looks and drawing functions that all figures share."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec
from warnings import catch_warnings, simplefilter

import numpy as np
from matplotlib import colormaps, style
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.text import Text
from matplotlib.ticker import EngFormatter

from fedeas.core.arrays import FloatArray, IntArray
from fedeas.core.errors import InputError
from fedeas.core.files import PathLike, written_whole
from fedeas.core.foreign_text import printable
from fedeas.core.log import log
from fedeas.planning import scores
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies import POLICIES, FullBalance

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
_, SKY, _, BLUE, VERMILLION, PURPLE, GREY = PALETTE.values()
INK = "#222222"

# The colours that belong to a policy in all figures.
USUAL = {name: PALETTE[policy.colour] for name, policy in POLICIES.items() if policy.colour}
SPARE = (PURPLE, SKY, INK)  # not used by any policy
DASHES = ("solid", "dashed", "dotted")  # also the names in CSS, for the legend of a page

HEAT = "viridis_r"  # dark means many; white, which it does not contain, means none
DPI = 160
MOST_CLIENTS = 200
LONGEST_NAME = 16  # characters of a client's or class's name at an axis

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

# Fonts of Linux, macOS and Windows for characters that matplotlib's own font lacks, such as Japanese ones. Colour fonts
# such as Apple Color Emoji are left out: matplotlib cannot draw them.
FALLBACKS = (
    "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans CJK KR", "Noto Sans JP", "Noto Sans SC", "Noto Sans KR",
    "Source Han Sans", "IPAexGothic", "IPAGothic", "TakaoGothic", "Droid Sans Fallback", "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei", "Hiragino Sans", "Hiragino Sans GB", "Apple SD Gothic Neo", "Arial Unicode MS",
    "Yu Gothic", "Meiryo", "MS Gothic", "Microsoft YaHei", "SimHei", "Malgun Gothic",
    "Noto Emoji", "Segoe UI Emoji", "Segoe UI Symbol", "Symbola",
)  # fmt: skip

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
PAGE = Screen("var(--ink)", "var(--line)", "var(--paper)")  # of the report, whose style sheet has the colours


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


def shades(number: int) -> FloatArray:
    """So many colours from dark to bright, as shares of red, green and blue."""
    return np.asarray(colormaps["viridis"](np.linspace(0, 1, number)))[:, :3]


def checked_ending(path: PathLike) -> str:
    """The ending of a figure's file; refuse one that cannot be drawn."""
    ending = Path(path).suffix.lower()
    if ending not in (".png", ".svg"):
        raise InputError(f"{path}: figures are written as PNG or SVG; use a name that ends in .png or .svg")
    return ending


def save(figure: Figure, path: PathLike) -> None:
    """Write the figure as PNG or SVG, by the file's ending; the same figure gives the same bytes."""
    is_svg = checked_ending(path) == ".svg"
    installed = {font.name for font in fontManager.ttflist}
    # An SVG holds text, which is drawn with the fonts of whoever looks at it.
    fonts = ["sans-serif", *(name for name in FALLBACKS if name in installed and not is_svg)]
    for text in figure.findobj(Text):
        text.set_fontfamily(fonts)
    # Ticks are created only now, so the style is needed again.
    own = {**STYLE, "font.family": fonts}
    with style.context(["default", own]), written_whole(path) as part, catch_warnings(record=True) as caught:
        simplefilter("always")
        figure.savefig(part, dpi=DPI, metadata={"Date": None} if is_svg else None)
    for message in () if is_svg else dict.fromkeys(str(each.message) for each in caught):
        remedy = "; use .svg, or install a font" if message.startswith("Glyph") else ""
        log.warning("%s: %s%s", path, message, remedy)


@styled
def plan_figure(counts: LabelCounts, allocation: Allocation) -> Figure:
    """Real and synthetic samples as heat maps of clients x classes, beside each client's demand and its plan."""
    demand = FullBalance().allocate(counts)
    rows = most(allocation.per_client)
    share = scores.imbalance_removed(counts, allocation)
    does = f"{allocation.policy or 'plan'}: {allocation.total:,} synthetic samples remove {share:.1%} of the imbalance"
    title = f"{textwrap.fill(does, 90)}\n(Full-Balance generates {demand.total:,})"
    figure = _new_figure(10, rows, title + _selection(rows, counts, "synthetic"))
    *maps, bars = figure.subplots(1, 3, sharey=True, width_ratios=(1, 1, 0.9))
    _heat_maps(figure, [maps], counts, rows, [("Real samples", counts.n), ("Synthetic samples", allocation.n)])
    wanted, planned, places = demand.per_client[rows], allocation.per_client[rows], np.arange(rows.size)
    line, wide, narrow = (0.0, 1.0, 1.0) if rows.size > 60 else (0.8, 0.84, 0.5)
    hatched = {"color": "white", "edgecolor": GREY, "linewidth": line, "hatch": "/////"}
    bars.barh(places, wanted, wide, label="Full-Balance demand", **hatched)
    bars.barh(places, planned, narrow, color=BLUE, label="this plan")
    shown = np.concatenate([wanted, planned])
    least, foot = int(shown[shown > 0].min(initial=shown.max())), 0.0
    if shown.max() > 10 * least:
        bars.set_xscale("log")
        # A logarithmic axis has no zero: start low enough that the shortest bar is visible.
        foot = 0.5 * 10 ** np.floor(np.log10(least))
    _number_counts(bars, foot, int(shown.max()))
    bars.set_xlabel("synthetic samples of the client")
    bars.legend(loc="lower left", bbox_to_anchor=(-0.02, 0.99), borderaxespad=0.2)
    return figure


@styled
def comparison_figure(counts: LabelCounts, allocations: Sequence[Allocation]) -> Figure:
    """Heat maps of the samples of each policy, with their number and the imbalance that they remove."""
    lines = -(-len(allocations) // 4)
    columns = -(-len(allocations) // lines)
    figure = Figure(figsize=(10, 1.5 + 2.7 * lines), layout="constrained")
    rows = most(np.max([each.per_client for each in allocations], axis=0))
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    removed = [scores.imbalance_removed(counts, each) for each in allocations]
    plans = [
        (f"{each.policy.partition('(')[0]}: {each.total:,}\n{share:.1%} removed", each.n)
        for each, share in zip(allocations, removed, strict=True)
    ]
    _heat_maps(figure, panels, counts, rows, plans, small=True)
    heading = "Synthetic samples of each client and class, and the imbalance that they remove"
    figure.suptitle(heading + _selection(rows, counts, "synthetic"))
    return figure


def most(weights: IntArray, limit: int = MOST_CLIENTS) -> IntArray:
    """Rows of the clients to show, in order: all, or if they are too many, those with the most weight."""
    return np.sort(np.argsort(-weights, kind="stable")[:limit])


def _new_figure(width: float, rows: IntArray, title: str) -> Figure:
    """An empty figure with room for this many clients and for its labels."""
    figure = Figure(figsize=(width, float(np.clip(2.6 + 0.2 * rows.size, 4.2, 8.5))), layout="constrained")
    figure.suptitle(title)
    return figure


def _heat_maps(
    figure: Any,
    panels: Sequence[Sequence[Any]],
    counts: LabelCounts,
    rows: IntArray,
    tables: Sequence[tuple[str, IntArray]],
    small: bool = False,
) -> None:
    """Heat maps in lines of panels, on one colour scale below them; zeros are white.

    Few counts are written into their cells, if the panels are not `small`.
    """
    shown = [(title, table[rows]) for title, table in tables]
    norm = LogNorm(1, max(10, *(int(table.max()) for _, table in shown)))
    writes, short = not small and rows.size <= 25 and counts.num_classes <= 10, EngFormatter(sep="", places=0)
    places, columns = [axes for line in panels for axes in line], len(panels[0])
    for place, (axes, (title, table)) in enumerate(zip(places, shown, strict=False)):
        image = axes.imshow(np.ma.masked_equal(table, 0), HEAT, norm, aspect="auto", interpolation="nearest")
        axes.spines[:].set_visible(True)
        axes.set_title(title, **({"fontsize": 9} if small else {}))
        for row, column in np.argwhere(table) if writes else ():
            count = int(table[row, column])
            text = short(count) if count > 9999 else str(count)
            ink = "white" if norm(count) > 0.4 else INK
            axes.text(column, row, text, ha="center", va="center", fontsize=7.5, color=ink)
        if place + columns >= len(shown):  # nothing below it
            names = list(counts.class_names)
            _name(axes.xaxis, names, 12 if small else 20)
            rotation = 90 if max(map(len, names)) > 2 or len(names) > 10 else 0
            axes.tick_params(axis="x", rotation=rotation, labelsize=9, labelbottom=True)
            axes.set_xlabel("class")
        if place % columns == 0:
            _name(axes.yaxis, [counts.client_name(row) for row in rows], 10 if small else 30)
            axes.set_ylabel("client")
    for axes in places[len(shown) :]:
        axes.set_visible(False)
    bar = figure.colorbar(image, ax=places, location="bottom", aspect=40, pad=0.02, format=EngFormatter(sep=""))
    bar.set_label("samples (white: none)")


def _number_counts(axes: Any, foot: float, largest: int) -> None:
    """Let a horizontal axis of counts start at `foot` and end a little beyond the largest."""
    axes.set_xlim(foot, 1.05 * max(10, largest))  # with less than ten, ticks would be fractions of a sample
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(axis="x", color="#d9d9d9", linewidth=0.6)


def _name(axis: Any, names: Sequence[str], room: int) -> None:
    """Write every name, or every second, fifth, tenth and so on, so that there are at most `room`."""
    steps = (digit * 10**power for power in range(7) for digit in (1, 2, 5))
    step = next(step for step in steps if len(names) <= step * room)
    labels = []
    for name in names[::step]:
        shown = printable(name[:LONGEST_NAME])  # a character that cannot be shown takes several
        fits = max(len(name), len(shown)) <= LONGEST_NAME
        labels.append(shown if fits else f"{shown[: LONGEST_NAME - 1]}…")
    axis.set_ticks(range(0, len(names), step), labels=labels)


def _selection(rows: IntArray, counts: LabelCounts, kind: str) -> str:
    if rows.size == counts.num_clients:
        return ""
    return f"\nshown: the {rows.size:,} of {counts.num_clients:,} clients with most {kind} samples"
