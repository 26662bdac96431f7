"""Figures of partitions and plans, and the colours, looks and drawing functions that all figures share."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from warnings import catch_warnings, simplefilter

import numpy as np
from matplotlib import colormaps, style
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.text import Text
from matplotlib.ticker import EngFormatter

from fedeas.core.arrays import FloatArray, IntArray
from fedeas.core.errors import InputError, log
from fedeas.core.files import PathLike, written_whole
from fedeas.core.foreign_text import printable
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


@style.context(["default", STYLE])
def plan_figure(counts: LabelCounts, allocation: Allocation) -> Figure:
    """Real and synthetic samples as heat maps of clients x classes, beside each client's demand and its plan.

    Both maps have one colour scale, on which zeros are white. Few counts are written into their cells.
    """
    demand, rows = FullBalance().allocate(counts), most(allocation.per_client)
    share = scores.imbalance_removed(counts, allocation)
    does = f"{allocation.policy or 'plan'}: {allocation.total:,} synthetic samples remove {share:.1%} of the imbalance"
    title = f"{textwrap.fill(does, 90)}\n(Full-Balance generates {demand.total:,})"
    if rows.size < counts.num_clients:
        title += f"\nshown: the {rows.size:,} of {counts.num_clients:,} clients with most synthetic samples"
    figure = Figure(figsize=(10, float(np.clip(2.6 + 0.2 * rows.size, 4.2, 8.5))), layout="constrained")
    figure.suptitle(title)
    *maps, bars = figure.subplots(1, 3, sharey=True, width_ratios=(1, 1, 0.9))
    tables = {"Real samples": counts.n[rows], "Synthetic samples": allocation.n[rows]}
    norm = LogNorm(1, max(10, *(int(table.max()) for table in tables.values())))
    writes, short = rows.size <= 25 and counts.num_classes <= 10, EngFormatter(sep="", places=0)
    for axes, (heading, table) in zip(maps, tables.items(), strict=True):
        image = axes.imshow(np.ma.masked_equal(table, 0), HEAT, norm, aspect="auto", interpolation="nearest")
        axes.spines[:].set_visible(True)
        axes.set_title(heading)
        for row, column in np.argwhere(table) if writes else ():
            count = int(table[row, column])
            text, ink = short(count) if count > 9999 else str(count), "white" if norm(count) > 0.4 else INK
            axes.text(column, row, text, ha="center", va="center", fontsize=7.5, color=ink)
        names = list(counts.class_names)
        _name(axes.xaxis, names, 20)
        rotation = 90 if max(map(len, names)) > 2 or len(names) > 10 else 0
        axes.tick_params(axis="x", rotation=rotation, labelsize=9)
        axes.set_xlabel("class")
    _name(maps[0].yaxis, [counts.client_name(row) for row in rows], 30)
    maps[0].set_ylabel("client")
    scale = figure.colorbar(image, ax=maps, location="bottom", aspect=40, pad=0.02, format=EngFormatter(sep=""))
    scale.set_label("samples (white: none)")
    _draw_bars(bars, demand.per_client[rows], allocation.per_client[rows])
    return figure


def most(weights: IntArray, limit: int = MOST_CLIENTS) -> IntArray:
    """Rows of the clients to show, in order: all, or if they are too many, those with the most weight."""
    return np.sort(np.argsort(-weights, kind="stable")[:limit])


def _draw_bars(axes: Any, wanted: IntArray, planned: IntArray) -> None:
    """Bars of the clients' demand, hatched, and of their plan."""
    places = np.arange(wanted.size)
    line, wide, narrow = (0.0, 1.0, 1.0) if wanted.size > 60 else (0.8, 0.84, 0.5)
    hatched = {"color": "white", "edgecolor": GREY, "linewidth": line, "hatch": "/////"}
    axes.barh(places, wanted, wide, label="Full-Balance demand", **hatched)
    axes.barh(places, planned, narrow, color=BLUE, label="this plan")
    shown = np.concatenate([wanted, planned])
    least, foot = int(shown[shown > 0].min(initial=shown.max())), 0.0
    if shown.max() > 10 * least:
        axes.set_xscale("log")
        # A logarithmic axis has no zero: start low enough that the shortest bar is visible.
        foot = 0.5 * 10 ** np.floor(np.log10(least))
    axes.set_xlim(foot, 1.05 * max(10, int(shown.max())))  # with less than ten, ticks would be fractions of a sample
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(axis="x", color="#d9d9d9", linewidth=0.6)
    axes.set_xlabel("synthetic samples of the client")
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 0.99), borderaxespad=0.2)


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
