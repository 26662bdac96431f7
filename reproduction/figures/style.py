"""What all figures share: style, colours, looks of methods, places of names, and the note for missing runs."""

import textwrap
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec

from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from reproduction.tables import NOT_RUN

# Okabe and Ito's colours, which colour-blind people can distinguish.
ORANGE, SKY, GREEN, BLUE = "#e69f00", "#56b4e9", "#009e73", "#0072b2"
VERMILLION, PURPLE, GREY = "#d55e00", "#cc79a7", "#7f7f7f"
INK, PALE = "#222222", "#d9d9d9"
USUAL = {  # the colours that belong to a policy in all figures; the library's figures use the same
    "no-generation": GREY, "full-balance": VERMILLION, "uniform": ORANGE, "missing-only": GREEN, "fedeas": BLUE,
}  # fmt: skip
SPARE = (PURPLE, SKY, INK)
DPI = 160
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
    "text.parse_math": False,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "svg.fonttype": "none",
    "svg.hashsalt": "fedeas",
}

P = ParamSpec("P")

WIDTH = 7.5  # inches of a wide figure: at a width of 600 pixels, ten-point letters are eleven pixels high
HALO = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.0}  # keeps text on lines legible
DIAMOND: dict[str, Any] = {"marker": "D", "linestyle": "", "markerfacecolor": "white", "markeredgewidth": 1.6}


class Look(NamedTuple):
    """How a method is drawn."""

    colour: str
    dash: str = "solid"


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Decorate a drawing function: it uses our style and does not change the caller's settings."""

    @wraps(draw)
    def in_style(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with style.context(["default", STYLE]):
            return draw(*args, **kwargs)

    return in_style


def save_all(figures: Iterable[tuple[str, Figure]], folder: Path) -> None:
    """Write figures by these names in every format; the same figure gives the same bytes."""
    for name, figure in figures:
        for ending in FORMATS:
            with style.context(["default", STYLE]):  # ticks are created only now, so the style is needed again
                undated = {"Date": None} if ending == "svg" else None
                figure.savefig(folder / f"{name}.{ending}", dpi=DPI, metadata=undated)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches that makes room for its labels."""
    return Figure(figsize=(width, height), layout="constrained")


def percent_axis(axis: Any) -> None:
    """Number an axis of shares in percent."""
    axis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def panel(title: str, width: float, height: float) -> tuple[Figure, Any]:
    """A figure of this size in inches with one panel; its title is wrapped to fit."""
    figure = new_figure(width, height)
    axes = figure.subplots()
    axes.set_title("\n".join(textwrap.fill(line, int(11 * width)) for line in title.splitlines()))
    return figure, axes


def looks_by_name(names: Iterable[str]) -> dict[str, Look]:
    """A look for each name; a policy's colour is used for that policy only, in every figure."""
    chosen = dict[str, Look]()
    spare = [Look(colour, dash) for dash in ("solid", "dashed", "dotted") for colour in SPARE]
    for name in names:
        policy = name.partition("(")[0].strip().lower()
        usual = USUAL.get("no-generation" if policy == "fedavg" else policy)  # FedAvg alone generates nothing
        if name not in chosen:  # the first of the least used looks
            chosen[name] = min([*([Look(usual)] if usual else []), *spare], key=list(chosen.values()).count)
    return chosen


def mark(name: str, colour: str, **look: Any) -> Line2D:
    """A marker in a legend, or a line if `look` has a line style."""
    return Line2D([], [], color=colour, label=name, **{"linestyle": "", **look})


def say_not_run(axes: Any, bare: bool = True) -> None:
    """Write "not run" in the middle of the panel; if the panel is `bare`, remove the numbers on its axes."""
    place = {"transform": axes.transAxes, "ha": "center", "va": "center"}
    axes.text(0.5, 0.5, NOT_RUN, fontsize=14, color=GREY, bbox=HALO, **place)
    if bare:
        axes.tick_params(length=0, labelbottom=False, labelleft=False)
        axes.grid(False)
