"""Figures of runs: accuracy by policy, budget, imbalance removed and round, the gains over FedEAS, and their files.

A method that was not run is shown as an empty place with a note.
"""

import logging
import statistics
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

import fedeas
from fedeas import Allocation, FedEAS, InputError
from fedeas.runs import Measured
from reproduction.answers import STEPS, USES, clean, complete, mean_of_experiments
from reproduction.artefacts import allocation_sheet, convergence_sheet, references_sheet, sweep_sheet
from reproduction.figures import style
from reproduction.figures.counts import COUNT_FIGURES
from reproduction.findings import Findings, all_findings
from reproduction.methods import FEDAVG, FEDEAS, FULL_BALANCE, POLICIES, UNIFORM, Method, with_total
from reproduction.published import EXAMPLE, Setting, published, setting
from reproduction.reproduction import Reproduction, Tell, made_folder
from reproduction.results import Results, accuracy
from reproduction.studies import HEADLINE, PROTOCOLS, plan_of, study
from reproduction.tables import NOT_REACHED, NOT_RUN, Cell, Entry, comma_separated, latex, markdown

log = logging.getLogger(__name__)
WRITERS = {"md": markdown, "csv": comma_separated, "tex": latex}
PAPER: dict[str, Any] = {"linestyle": "--", "linewidth": 1.4, "alpha": 0.6}  # how the paper's lines differ from ours
HOLLOW: dict[str, Any] = {"facecolor": "white", "linewidth": 1.6}  # the paper's bars
LEVEL = "accuracy, %, mean of {}"
BELOW: dict[str, Any] = {"loc": "outside lower center", "ncols": 3}
CLEAN: dict[str, Any] = {"marker": "o", "markersize": 8}
REPLAYED: dict[str, Any] = {"marker": "s", "markersize": 6, "alpha": 0.55}
KINDS = {"ours ± deviation, clean protocol": CLEAN, "ours, the paper's protocol": REPLAYED, "the paper": style.DIAMOND}
APART = 0.22  # distance between the markers of one policy, relative to the distance between policies
COLUMNS = 2  # panels beside each other
LETTERS = 70  # of a title across the whole width


class Bar(NamedTuple):
    """A method's accuracy in percent: ours with its spread (None if it was not run), and the paper's, if any."""

    name: str
    ours: float | None
    spread: float | None = None
    paper: float | None = None


class Sweep(NamedTuple):
    """A policy's accuracy at each of these totals."""

    name: str
    totals: Sequence[int]
    bars: Sequence[Bar]


@style.styled
def allocation_figure(bars: Sequence[Bar], title: str, window: str) -> Figure:
    """Fig. 1(b): accuracy of each policy at equal budget; ours as solid bars, the paper's as hollow bars."""
    figure, axes = style.panel(title, min(style.WIDTH, 2.0 + 1.5 * len(bars)), 4.6)
    printed = any(bar.paper is not None for bar in bars)
    looks, width = style.looks_by_name(bar.name for bar in bars), 0.38 if printed else 0.6
    whiskers = {"capsize": 4, "error_kw": {"ecolor": style.INK, "elinewidth": 1.2}}
    above: dict[str, Any] = {"xytext": (0, 3), "ha": "center", **style.POINTS}
    for number, bar in enumerate(bars):
        colour, place = looks[bar.name].colour, number - width / 2 if printed else number
        if bar.ours is None:
            axes.annotate(NOT_RUN, (place, 0), (0, 6), rotation=90, ha="center", color=style.GREY, **style.POINTS)
        else:
            axes.bar(place, bar.ours, 0.94 * width, color=colour, yerr=bar.spread, **whiskers)
            axes.annotate(f"{bar.ours:.2f}", (place, bar.ours + (bar.spread or 0)), **above)
        if bar.paper is not None:
            axes.bar(number + width / 2, bar.paper, 0.94 * width, edgecolor=colour, **HOLLOW)
            axes.annotate(f"{bar.paper:.2f}", (number + width / 2, bar.paper), **above)
    axes.set_xticks(range(len(bars)), [textwrap.fill(bar.name, 16) for bar in bars])
    axes.tick_params(axis="x", length=0, labelsize=11)
    tops = [max((bar.ours or 0) + (bar.spread or 0), bar.paper or 0) for bar in bars]
    axes.set(ylabel=LEVEL.format(window), xlim=(-0.6, max(len(bars), 1) - 0.4), ylim=(0, 1.12 * max([10, *tops])))
    axes.grid(axis="y", **style.GRID)
    if not bars:
        style.say_not_run(axes)
    if printed:
        keys = [Patch(color=style.GREY, label="ours"), Patch(edgecolor=style.GREY, label="the paper", **HOLLOW)]
        figure.legend(handles=keys, loc="outside lower center", ncols=2)
    return figure


@style.styled
def budget_figure(sweeps: Sequence[Sweep], fedavg: Bar, full_balance: Bar, title: str, window: str) -> Figure:
    """Fig. 5(a): accuracy as the total grows, between FedAvg and Full-Balance; the paper's are pale and dashed."""
    figure, axes = style.panel(title, style.WIDTH, 4.6)
    bars = [*chain.from_iterable(sweep.bars for sweep in sweeps), fedavg, full_balance]
    looks = style.looks_by_name([*(sweep.name for sweep in sweeps), fedavg.name, full_balance.name])
    right = 1.05 * max([1, *(total for sweep in sweeps for total in sweep.totals)])
    axes.set(xlabel="synthetic samples in all", ylabel=LEVEL.format(window), xlim=(0, right))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(**style.GRID)
    keys, ends = list[Line2D](), list[style.End]()
    for name, totals, own in sweeps:
        look, missing = looks[name], sum(bar.ours is None for bar in own)
        # A line is interrupted where a number is missing.
        ours, spread, paper = np.array([bar[1:] for bar in own], dtype=float).T
        if not np.isnan(paper).all():
            axes.plot(totals, paper, marker="o", markerfacecolor="white", color=look.colour, **PAPER)
        if not np.isnan(ours).all():
            axes.errorbar(totals, ours, np.nan_to_num(spread), fmt="o-", color=look.colour, capsize=3, elinewidth=1.2)
        run = f": {len(own) - missing} of {len(own)} run" if missing < len(own) else f": {NOT_RUN}"
        keys.append(style.mark(name + run * bool(missing), look.colour, linestyle=look.dash))
    for bar in (fedavg, full_balance):
        look = looks[bar.name]
        if bar.ours is None:
            keys.append(style.mark(f"{bar.name}: {NOT_RUN}", look.colour, linestyle=look.dash))
        for level, source, line in ((bar.ours, "", {"linewidth": 1.6}), (bar.paper, " (paper)", PAPER)):
            if level is not None:
                axes.axhline(level, color=look.colour, **line)
                ends.append(style.End(f"{bar.name} {level:.2f}{source}", look, (right, level)))
    axes.margins(y=0.12)
    style.name_ends(axes, ends)
    printed = any(bar.paper is not None for bar in bars)
    if all(bar.ours is None for bar in bars):
        style.say_not_run(axes, bare=not printed)
    keys += [style.mark("the paper", style.GREY, **PAPER)] if printed else []
    figure.legend(handles=keys, **BELOW)
    return figure


@style.styled
def removal_figure(removals: Sequence[tuple[float, Bar]], title: str, window: str) -> Figure:
    """Accuracy over the imbalance removed, in percent: dots are ours, named beside the panel; diamonds the paper's."""
    figure, axes = style.panel(title, style.WIDTH, 4.6)
    looks, ends = style.looks_by_name(bar.name for _, bar in removals), list[style.End]()
    for removed, bar in removals:
        look = looks[bar.name]
        if bar.paper is not None:
            axes.plot(removed, bar.paper, color=look.colour, **style.DIAMOND)
        if bar.ours is not None:
            axes.errorbar(removed, bar.ours, bar.spread, fmt="o", color=look.colour, capsize=3, markersize=7)
            ends.append(style.End(f"{bar.name} {bar.ours:.2f}", look, (removed, bar.ours)))
    axes.set(xlabel="label imbalance removed, %", ylabel=LEVEL.format(window))
    axes.grid(**style.GRID)
    axes.margins(x=0.06, y=0.12)
    style.name_ends(axes, ends, width=0.8)
    printed = any(bar.paper is not None for _, bar in removals)
    if not ends:
        style.say_not_run(axes, bare=not printed)
    missing = [bar.name for _, bar in removals if bar.ours is None]
    ours = "ours, ± deviation over seeds" if any(bar.spread is not None for _, bar in removals) else "ours"
    keys = [style.mark(ours, style.GREY, marker="o")] if ends else []
    keys += [style.mark("the paper", style.GREY, **style.DIAMOND)] if printed else []
    keys += [style.mark(f"{NOT_RUN}: {', '.join(missing)}", style.GREY)] if ends and missing else []
    if keys:
        figure.legend(handles=keys, **BELOW)
    return figure


class Spot(NamedTuple):
    """The accuracy of a policy at a budget, in percent: ours and the paper's."""

    budget: str
    policy: str
    clean: Measured | None = None
    replayed: Measured | None = None
    paper: float | None = None


@style.styled
def overview_figure(panels: Mapping[str, Sequence[Spot]], window: str) -> Figure:
    """One panel for each setting; budgets grow from left to right, and policies of one budget are side by side."""
    figure = style.new_figure(style.WIDTH, 1.1 + 3.1 * len(panels))
    places = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    known = {title: [spot for spot in spots if spot[2:] != (None,) * 3] for title, spots in panels.items()}
    every = [spot for spots in known.values() for spot in spots]
    looks = style.looks_by_name(spot.policy for spot in every)
    for axes, (title, spots) in zip(places, known.items(), strict=True):
        # Policies are at whole numbers, with one empty place between two budgets.
        place, ticks = 0, dict[float, str]()
        for budget, group in groupby(spots, key=lambda spot: spot.budget):
            first = place + 1
            if ticks:
                axes.axvline(place, color=style.PALE, linewidth=0.8)
            for spot in group:
                place, colour = place + 1, looks[spot.policy].colour
                whiskers = {"capsize": 3, "elinewidth": 1.2, "linestyle": "", "color": colour}
                for offset, ours, kind in ((-APART, spot.clean, CLEAN), (0, spot.replayed, REPLAYED)):
                    if ours is not None:
                        axes.errorbar(place + offset, ours.mean, ours.spread, **whiskers, **kind)
                if spot.paper is not None:
                    axes.plot(place + APART, spot.paper, color=colour, **style.DIAMOND)
            ticks[(first + place) / 2] = budget
            place += 1
        axes.set_xticks(list(ticks), list(ticks.values()))
        axes.tick_params(axis="x", length=0)
        axes.set(title=title, ylabel=f"accuracy, %,\nmean of {window}", xlim=(0, max(place, 1)))
        axes.set_xlabel("budget: FedEAS's β, and synthetic images on the paper's partition")
        axes.margins(y=0.12)
        axes.grid(axis="y", **style.GRID)
    drawn = [any(each is not None for each in kind) for kind in zip(*(spot[2:] for spot in every), strict=True)]
    kinds = [style.mark(name, style.INK, **KINDS[name]) for name, there in zip(KINDS, drawn, strict=False) if there]
    names = [style.mark(name, look.colour, marker="o") for name, look in looks.items()]
    figure.legend(handles=kinds, loc="outside upper left", ncols=3)
    figure.legend(handles=names, loc="outside lower center", ncols=4)
    return figure


SHADES, MARKERS = (style.BLUE, style.VERMILLION, style.GREEN, style.PURPLE, style.ORANGE, style.SKY), "osD^vP"
POINTS, MEAN = (-0.38, 0.08), 0.24  # where in its row the first and the last experiment are drawn, and the mean
GAINS = "Gain over FedEAS with at most as many images, clean protocol"
GAIN = "points of accuracy, mean over the budgets of an experiment"
REAL = "open marks: real images instead of generated ones"


@style.styled
def gains_figure(experiments: Sequence[Findings]) -> Figure:
    """A row for each method that gives images to clients: a point for each clean experiment, and their mean."""
    found = [each for each in clean(experiments) if each.compared]
    rows = [name for name in USES if any(complete(each, name) for each in found)]
    figure, axes = style.panel(GAINS, style.WIDTH, 1.6 + 0.42 * max(len(rows), 2))
    if not rows:
        style.say_not_run(axes)
        return figure
    looks = dict(zip(dict.fromkeys(each.dataset for each in found), zip(SHADES, MARKERS, strict=True), strict=False))
    for height, name in enumerate(rows):
        shown = [(each, whole.difference) for each in found if (whole := complete(each, name))]
        for (each, difference), offset in zip(shown, np.linspace(*POINTS, len(shown)), strict=True):
            colour, marker = looks[each.dataset]
            fill = "white" if each.places_real_images else colour
            axes.plot(difference.mean, height + offset, marker, color=colour, markerfacecolor=fill, markersize=5)
        mean = mean_of_experiments(found, name)
        if mean is not None and mean.interval is not None:
            low, high = mean.interval
            ends = [[mean.mean - low], [high - mean.mean]]
            axes.errorbar(mean.mean, height + MEAN, xerr=ends, fmt="|", markersize=10, capsize=3, color=style.INK)
        axes.axhline(height + 0.5, **style.GRID)
    axes.axvline(0, color=style.INK, linewidth=0.8)
    axes.set_yticks(range(len(rows)), [name.replace(STEPS, ",\nequal steps") for name in rows])
    axes.tick_params(axis="y", length=0)
    real = [REAL] if any(each.places_real_images for each in found) else []
    axes.set(xlabel="\n".join([GAIN, *real]), ylim=(len(rows) - 0.5, -0.5))
    axes.grid(axis="x", **style.GRID)
    keys = [style.mark(dataset, colour, marker=marker) for dataset, (colour, marker) in looks.items()]
    keys.append(style.mark("mean, 95 %", style.INK, linestyle="-", marker="|", markersize=10))
    figure.legend(handles=keys, loc="outside lower center", ncols=len(looks) + 1)
    return figure


class Line(NamedTuple):
    """A method's accuracy by round for each seed (none if it was not run), and the paper's round at the threshold."""

    name: str
    curves: Sequence[Mapping[int, float]]
    paper_round: int | None = None


def _draw_mean(axes: Any, line: Line, look: style.Look) -> dict[int, float]:
    """Draw and return the mean over a method's seeds, and draw the band from the worst to the best of them.

    Only rounds that most seeds have are drawn: with fewer, the mean would jump.
    """
    count = Counter(chain.from_iterable(line.curves))
    seeds = max(count.values(), default=0)
    rounds = sorted(number for number in count if count[number] == seeds)
    values = [[curve[number] for curve in line.curves if number in curve] for number in rounds]
    low, middle, high = ([float(of(each)) for each in values] for of in (min, statistics.mean, max))
    if seeds > 1:
        axes.fill_between(rounds, low, high, color=look.colour, alpha=0.15, linewidth=0)
    if rounds:
        alone = "o" if len(rounds) == 1 else None  # a line of one point would be invisible
        axes.plot(rounds, middle, linestyle=look.dash, color=look.colour, linewidth=1.5, marker=alone)
    return dict(zip(rounds, middle, strict=True))


@style.styled
def convergence_figure(panels: Mapping[str, Sequence[Line]], threshold: float) -> Figure:
    """Fig. 4: accuracy over rounds in each setting, and the first round at which each mean is at the threshold."""
    shown = dict(panels) or {"": ()}
    columns = min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    figure = style.new_figure(style.WIDTH, rows * (3.4 + 0.22 * max(map(len, shown.values()))))  # with room for legends
    figure.set_layout_engine("constrained", wspace=0.06, hspace=0.06)
    grid = figure.subplots(rows, columns, sharey=True, squeeze=False)
    for axes in grid[:, 0]:
        axes.set_ylabel("accuracy on the test set")
    for axes in grid.flat[len(shown) :]:
        axes.set_visible(False)
    every = [line for lines in shown.values() for line in lines]
    looks = style.looks_by_name(line.name for line in every)
    for axes, (title, lines) in zip(grid.flat, shown.items(), strict=False):
        run = any(chain.from_iterable(line.curves for line in lines))
        drawn = lines if run else every
        last = max([0, *(number for line in drawn for number in chain(*line.curves, [line.paper_round or 0]))])
        _number_axes(axes, every, threshold, last)
        axes.set_title(textwrap.fill(title, LETTERS // columns))
        _convergence_panel(axes, lines, threshold, looks)
        if not run:
            style.say_not_run(axes, bare=not last)
    return figure


def _convergence_panel(axes: Any, lines: Sequence[Line], threshold: float, looks: Mapping[str, style.Look]) -> None:
    axes.axhline(threshold, color=style.INK, linestyle="--", linewidth=1)
    right = {"xycoords": ("axes fraction", "data"), "va": "center"}  # where no curve overlaps the number
    axes.annotate(f"{100 * threshold:g}%", (1, threshold), (4, 0), **right, **style.POINTS)
    keys, reached = list[Line2D](), list[tuple[int, str]]()
    for line in lines:
        look = looks[line.name]
        mean = _draw_mean(axes, line, look)
        first = next((number for number, value in mean.items() if value >= threshold), None)
        reached += [] if first is None else [(first, look.colour)]
        ours = NOT_RUN if not mean else NOT_REACHED if first is None else f"round {first}"
        paper = "" if line.paper_round is None else f" (paper: {line.paper_round})"
        keys.append(style.mark(f"{line.name}: {ours}{paper}", look.colour, linestyle=look.dash))
    for step, (number, colour) in enumerate(sorted(reached)):  # lines may be close, so labels have different heights
        axes.axvline(number, color=colour, linestyle=":", linewidth=1.6)
        side, offset = ("right", -5) if number > 0.8 * axes.get_xlim()[1] else ("left", 5)
        text: dict[str, Any] = {"ha": side, "color": colour, "weight": "bold", "bbox": style.HALO}
        place = {"xy": (number, 0), "xytext": (offset, 6 + 15 * step), "xycoords": ("data", "axes fraction")}
        axes.annotate(f"round {number}", **place, **text, **style.POINTS)
    printed = [line for line in lines if line.paper_round is not None]
    for line in printed:
        axes.plot(line.paper_round, threshold, color=looks[line.name].colour, zorder=4, **style.DIAMOND)
    keys += [style.mark("the paper's round", style.GREY, **style.DIAMOND)] if printed else []
    if keys:
        below = axes.transAxes + ScaledTranslation(0, -0.5, axes.figure.dpi_scale_trans)  # the axis and its name
        heading: dict[str, Any] = {"title": f"first round at {100 * threshold:g}%", "alignment": "left"}
        axes.legend(handles=keys, loc="upper left", bbox_to_anchor=(0, 0), bbox_transform=below, **heading)


@style.styled
def curves_figure(lines: Sequence[Line], title: str) -> Figure:
    """Accuracy over rounds of many methods in one wide panel, each named at the end of its line."""
    figure, axes = style.panel(title, style.WIDTH, 4.6)
    looks, ends = style.looks_by_name(line.name for line in lines), list[style.End]()
    for line in lines:
        if mean := _draw_mean(axes, line, looks[line.name]):
            ends.append(style.End(line.name, looks[line.name], [*mean.items()][-1]))
    axes.set_ylabel("accuracy on the test set")
    _number_axes(axes, lines, 0.1, int(max((end.point[0] for end in ends), default=0)))
    style.name_ends(axes, ends)
    missing = [line.name for line in lines if line.name not in [end.name for end in ends]]
    if not ends:
        style.say_not_run(axes)
    elif missing:
        axes.annotate(f"{NOT_RUN}: {', '.join(missing)}", (1, 0), (-6, 6), "axes fraction", ha="right", **style.POINTS)
    return figure


def _number_axes(axes: Any, lines: Iterable[Line], least: float, last: int) -> None:
    """Number the axes with percent, a little above the highest value, and whole rounds, a little beyond the last."""
    values = chain.from_iterable(curve.values() for line in lines for curve in line.curves)
    axes.set_ylim(0, min(1.02, 1.1 * max([least, *values])))
    axes.set(xlabel="round", xlim=(0, 1.02 * max(1, last)))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=(1, 2, 5, 10)))
    style.percent_axis(axes.yaxis)
    axes.grid(**style.GRID)


def accuracy_at_equal_budget(book: Reproduction) -> Figure:
    """Fig. 1(b)."""
    table = book.table(allocation_sheet(book.study))
    bars = [_bar(name, row[0]) for name, row in table.rows.items()]
    title = book.study.named(f"Accuracy at equal budget, {table.columns[0]}")
    return allocation_figure(bars, title, book.study.window)


def convergence(book: Reproduction) -> Figure:
    """Fig. 4, in the settings that were run; in both settings if none was run."""
    sheet, panels = convergence_sheet(book.study), dict[str, list[Line]]()
    for place, title in enumerate(sheet.columns):
        panels[book.study.named(title)] = [_line(name, row[place], book.results) for name, row in sheet.rows.items()]
    run = {title: lines for title, lines in panels.items() if any(line.curves for line in lines)}
    return convergence_figure(run or panels, float(published().convergence.threshold) / 100)


def accuracy_over_budgets(book: Reproduction) -> Figure:
    """Fig. 5(a)."""
    table = book.table(sweep_sheet(book.study))
    betas = [row for name, row in table.rows.items() if name.startswith("FedEAS")]
    totals = [int(row[0].ours.mean) for row in betas if row[0] is not None and row[0].ours is not None]
    places = {"FedEAS": 1, "Uniform": 4}
    sweeps = [Sweep(name, totals, [_bar(name, row[place]) for row in betas]) for name, place in places.items()]
    fedavg, full = (_bar(name, table.rows[name][1]) for name in ("FedAvg", "Full-Balance"))
    return budget_figure(sweeps, fedavg, full, table.title, book.study.window)


def curves_at_equal_budget(book: Reproduction) -> Figure:
    """Accuracy over rounds of all policies that share a total, beyond the paper."""
    sheet = references_sheet(book.study)
    lines = [_line(name, row[1], book.results)._replace(paper_round=None) for name, row in sheet.rows.items()]
    return curves_figure(lines, sheet.title)


def accuracy_over_removal(book: Reproduction) -> Figure:
    """Whether accuracy follows the label imbalance that a policy removes, beyond the paper."""
    table, removals = book.table(references_sheet(book.study)), list[tuple[float, Bar]]()
    for name, (removed, reached, *_) in table.rows.items():
        removals += [(removed.ours.mean, _bar(name, reached))] if removed is not None and removed.ours else []
    return removal_figure(removals, table.title, book.study.window)


def overview(results: Results) -> Figure:
    """Accuracy over budget and policy, under both protocols: the main settings that were run, or the first of them."""
    panels = {where.title: list(_spots(where, results)) for where in (setting(HEADLINE), setting(EXAMPLE))}
    run = {title: spots for title, spots in panels.items() if any(spot.clean or spot.replayed for spot in spots)}
    return overview_figure(run or dict([*panels.items()][:1]), study("full").window)


def _spots(where: Setting, results: Results) -> Iterator[Spot]:
    """Policies by growing budget: none, FedEAS's for each beta that the paper has in this setting, and full balance.

    The paper sweeps beta in one setting only. The number of images is for the paper's partition.
    """
    sweep, usual, budgets = published().beta_sweep, published().totals.beta, dict[Decimal, list[Method]]()
    printed = {method: published().printed(method.name, where) for method in (*POLICIES, FULL_BALANCE)}
    for beta, even, ours in zip(sweep.beta, sweep.uniform, sweep.fedeas, strict=True) if where.id == EXAMPLE else ():
        budget = FedEAS(float(beta)).spec
        budgets[beta] = [replace(UNIFORM, policy=with_total("uniform", budget)), replace(FEDEAS, policy=budget)]
        printed |= dict(zip(budgets[beta], (even, ours), strict=True))
    budgets[usual] = [method for method in POLICIES if method != FEDAVG]
    places = [(f"β = {beta}", method) for beta in sorted(budgets) for method in budgets[beta]]
    for place, method in (("none", FEDAVG), *places, ("full", FULL_BALANCE)):
        own = [study("full", protocol).config(where, method) for protocol in PROTOCOLS]
        clean, replayed = (Measured.of([*results.known([run], accuracy).values()]) for run in own)
        total, paper = plan_of(own[-1]).total, printed[method]
        label = f"{place}\n{total:,}" if total else place
        yield Spot(label, method.title, clean, replayed, None if paper is None else float(paper))


RUN_FIGURES: dict[str, dict[str, Callable[[Reproduction], Figure]]] = {
    "fig1": {"fig1b-accuracy": accuracy_at_equal_budget},
    "fig4": {"fig4-convergence": convergence},
    "fig5": {"fig5a-budgets": accuracy_over_budgets},
    "references": {"references-courses": curves_at_equal_budget, "references-imbalance": accuracy_over_removal},
}
PAGE_FIGURES: dict[str, tuple[str, Callable[[Results], Figure]]] = {
    "summary": ("results-overview", overview),
    "answers": ("beyond-gains", lambda results: gains_figure(all_findings(results))),
}


def figures(artefact: str, book: Reproduction) -> Iterator[tuple[str, Figure]]:
    """The figures of an artefact by file name; those from label counts do not depend on the study."""
    yield from ((name, draw()) for name, draw in COUNT_FIGURES.items() if artefact in name)
    yield from ((name, draw(book)) for name, draw in RUN_FIGURES.get(artefact, {}).items())


def write(book: Reproduction, out: Path, tell: Tell = log.info) -> None:
    """Write the tables as Markdown, CSV and LaTeX, and the figures as PNG and SVG; `tell` is told of long work."""
    made_folder(out)
    for artefact in book.artefacts:
        tables = book.tables([artefact])
        noted = [replace(table, note=f"{table.note} {book.study.says}".strip()) for table in tables]
        for ending, render in WRITERS.items() if noted else ():
            (out / f"{artefact.name}.{ending}").write_text(render(*noted))
        style.save_all(figures(artefact.name, book), out)
        if artefact.name == "samples":
            tell("drawing samples of the generator; on a CPU this takes minutes")
            save_samples("digits" if book.study.profile.dataset else "cifar10", out / "samples.png")


def save_samples(dataset: str, path: Path) -> None:
    """Draw the first client's first images of every class by the dataset's diffusion model, without a selection."""
    first = fedeas.partition({"data": {"dataset": dataset}, "partition": {"scheme": "iid"}}, images=False).counts
    made = fedeas.generate(Allocation([[10] * first.num_classes]), "diffusion", dataset=dataset)
    figure, (_, *shape) = style.new_figure(8, 8), made.images.shape
    grid = figure.subplots(first.num_classes, 10, squeeze=False)
    for axes, image in zip(grid.flat, made.images, strict=True):
        axes.imshow(image.reshape(shape).transpose(1, 2, 0), "gray")
        axes.set(xticks=[], yticks=[])
    for axes, name in zip(grid[:, 0], made.classes, strict=True):
        axes.set_ylabel(name, rotation=0, ha="right", va="center")
    figure.savefig(path, dpi=style.DPI)


def _bar(name: str, entry: Entry | None) -> Bar:
    ours, paper = (None, None) if entry is None else (entry.ours, entry.paper)
    mean, spread = (ours.mean, ours.spread) if ours else (None, None)
    return Bar(name, mean, spread, None if paper is None else float(paper))


def _line(name: str, cell: Cell | None, results: Results) -> Line:
    """A method's curves, of the runs that can be read; some were packed without their rounds."""
    if cell is None:
        return Line(name, [])
    (config,) = cell.configs
    curves = list[dict[int, float]]()
    for run in results.seeds(config).values():
        records = list[dict[str, Any]]()
        try:
            records = run.rounds() if run.has_rounds else []
        except InputError as error:
            log.warning("left out of the figures: %s", error)
        tested = (record for record in records if record.get("accuracy") is not None)
        curves += [{int(each["round"]): float(each["accuracy"]) for each in tested}] if records else []
    return Line(name, curves, None if cell.paper is None else int(cell.paper))
