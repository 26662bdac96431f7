"""Figures of runs: accuracy by policy, budget, imbalance removed and round, the gains over FedEAS, and their files.

A method that was not run is shown as an empty place with a note.
"""

import logging
import statistics
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

import fedeas
from fedeas import Allocation, InputError
from reproduction.answers import STEPS, USES, clean, complete, mean_of_experiments
from reproduction.artefacts import allocation_sheet, convergence_sheet, measures_sheet, references_sheet, sweep_sheet
from reproduction.figures import style
from reproduction.figures.counts import COUNT_FIGURES
from reproduction.findings import Findings
from reproduction.published import published
from reproduction.reproduction import Reproduction, Tell, made_folder
from reproduction.results import Results
from reproduction.tables import NOT_REACHED, NOT_RUN, Cell, Entry, Sheet, comma_separated, markdown

log = logging.getLogger(__name__)
WRITERS = {"md": markdown, "csv": comma_separated}
BELOW: dict[str, Any] = {"loc": "outside lower center", "ncols": 3}
COLUMNS = 2  # panels of curves beside each other
LETTERS = 70  # of a title across the whole width
PAPER: dict[str, Any] = {"linestyle": "--", "linewidth": 1.2, "alpha": 0.6}  # how the paper's lines differ from ours


class Mark(NamedTuple):
    """A method's accuracy in percent: ours (None if it was not run) and the paper's, if any."""

    name: str
    place: float | None  # on the horizontal axis; None for a level that holds everywhere
    ours: float | None = None
    spread: float | None = None
    paper: float | None = None


@style.styled
def levels_figure(panels: Mapping[str, Sequence[Mark]], xlabel: str, window: str, names: Sequence[str] = ()) -> Figure:
    """Accuracy by place: ours as dots with deviations, the paper's as diamonds; dots of one method are joined.

    If `names` are given, they stand at the places 0, 1, ...
    """
    figure = style.new_figure(style.WIDTH, 1.2 + 3.4 * len(panels))
    every = [mark for marks in panels.values() for mark in marks]
    looks, shift = style.looks_by_name(mark.name for mark in every), 0.15 * bool(names)
    for axes, (title, marks) in zip(figure.subplots(len(panels), squeeze=False).flat, panels.items(), strict=True):
        for name in dict.fromkeys(mark.name for mark in marks):
            own, colour = [mark for mark in marks if mark.name == name], looks[name].colour
            # A line is interrupted where a number is missing.
            places, ours, spread, paper = np.array([mark[1:] for mark in own], dtype=float).T
            if np.isnan(places).any():
                axes.axhline(ours[0], color=colour, linewidth=1.6)
                axes.axhline(paper[0], color=colour, **PAPER)
                continue
            if not np.isnan(ours).all():
                axes.errorbar(places - shift, ours, np.nan_to_num(spread), fmt="o-", color=colour, capsize=3)
            if not np.isnan(paper).all():
                axes.plot(places + shift, paper, color=colour, **{**style.DIAMOND, **PAPER})
        axes.set(title=textwrap.fill(title, LETTERS), xlabel=xlabel, ylabel=f"accuracy, %,\nmean of {window}")
        axes.margins(x=0.06, y=0.12)
        axes.grid(**style.GRID)
        if names:
            axes.set_xticks(range(len(names)), [textwrap.fill(name, 16) for name in names])
        else:
            axes.xaxis.set_major_formatter("{x:,.0f}")
        if all(mark.ours is None for mark in marks):
            style.say_not_run(axes, bare=all(mark.paper is None for mark in marks))
    keys = list[Line2D]()
    for name, look in looks.items():
        run = [mark.ours is not None for mark in every if mark.name == name]
        missing = f": {sum(run)} of {len(run)} run" if any(run) else f": {NOT_RUN}"
        keys.append(style.mark(name + missing * (not all(run)), look.colour, marker="o"))
    if any(mark.paper is not None for mark in every):
        keys.append(style.mark("the paper", style.GREY, **style.DIAMOND))
    figure.legend(handles=keys, **BELOW)
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


@style.styled
def curves_figure(panels: Mapping[str, Sequence[Line]], threshold: float) -> Figure:
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
    highest = max([threshold, *chain.from_iterable(curve.values() for line in every for curve in line.curves)])
    for axes, (title, lines) in zip(grid.flat, shown.items(), strict=False):
        run = any(chain.from_iterable(line.curves for line in lines))
        drawn = lines if run else every
        last = max([0, *(number for line in drawn for number in chain(*line.curves, [line.paper_round or 0]))])
        axes.set(xlabel="round", xlim=(0, 1.02 * max(1, last)), ylim=(0, min(1.02, 1.1 * highest)))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=(1, 2, 5, 10)))
        style.percent_axis(axes.yaxis)
        axes.grid(**style.GRID)
        axes.set_title(textwrap.fill(title, LETTERS // columns))
        _draw_curves(axes, lines, threshold, looks)
        if not run:
            style.say_not_run(axes, bare=not last)
    return figure


def _draw_curves(axes: Any, lines: Sequence[Line], threshold: float, looks: Mapping[str, style.Look]) -> None:
    """The means over seeds with bands from the worst to the best seed, and the first rounds at the threshold."""
    axes.axhline(threshold, color=style.INK, linestyle="--", linewidth=1)
    keys = list[Line2D]()
    for line in lines:
        look, count = looks[line.name], Counter(chain.from_iterable(line.curves))
        seeds = max(count.values(), default=0)
        rounds = sorted(number for number in count if count[number] == seeds)  # with fewer seeds the mean would jump
        values = [[curve[number] for curve in line.curves if number in curve] for number in rounds]
        low, middle, high = ([float(of(each)) for each in values] for of in (min, statistics.mean, max))
        if seeds > 1:
            axes.fill_between(rounds, low, high, color=look.colour, alpha=0.15, linewidth=0)
        if rounds:
            alone = "o" if len(rounds) == 1 else None  # a line of one point would be invisible
            axes.plot(rounds, middle, linestyle=look.dash, color=look.colour, linewidth=1.5, marker=alone)
        first = next((number for number, value in zip(rounds, middle, strict=True) if value >= threshold), None)
        if first is not None:
            axes.axvline(first, color=look.colour, linestyle=":", linewidth=1.6)
        if line.paper_round is not None:
            axes.plot(line.paper_round, threshold, color=look.colour, zorder=4, **style.DIAMOND)
        ours = NOT_RUN if not rounds else NOT_REACHED if first is None else f"round {first}"
        paper = "" if line.paper_round is None else f" (paper: {line.paper_round})"
        keys.append(style.mark(f"{line.name}: {ours}{paper}", look.colour, linestyle=look.dash))
    if any(line.paper_round is not None for line in lines):
        keys.append(style.mark("the paper's round", style.GREY, **style.DIAMOND))
    if keys:
        below = axes.transAxes + ScaledTranslation(0, -0.5, axes.figure.dpi_scale_trans)  # the axis and its name
        heading: dict[str, Any] = {"title": f"first round at {100 * threshold:g}%", "alignment": "left"}
        axes.legend(handles=keys, loc="upper left", bbox_to_anchor=(0, 0), bbox_transform=below, **heading)


def accuracy_at_equal_budget(book: Reproduction) -> Figure:
    """Fig. 1(b)."""
    table = book.table(allocation_sheet(book.study))
    panels = {
        book.study.named(title): [
            _mark(name, place, row[column]) for place, (name, row) in enumerate(table.rows.items())
        ]
        for column, title in enumerate(table.columns)
    }
    return levels_figure(panels, "", book.study.window, [*table.rows])


def accuracy_over_budgets(book: Reproduction) -> Figure:
    """Fig. 5(a)."""
    table, marks = book.table(sweep_sheet(book.study)), list[Mark]()
    for name, row in table.rows.items():
        total = row[0].ours if row[0] is not None and name.startswith("FedEAS") else None
        for title, column in {"FedEAS": 1, "Uniform": 4}.items() if total else {name: 1}.items():
            marks.append(_mark(title, total.mean if total else None, row[column]))
    return levels_figure({table.title: marks}, "synthetic samples in all", book.study.window)


def accuracy_over_removal(book: Reproduction) -> Figure:
    """Whether accuracy follows the label imbalance that a policy removes, beyond the paper."""
    table = book.table(references_sheet(book.study))
    marks = [
        _mark(name, removed.ours.mean, reached)
        for name, (removed, reached, *_) in table.rows.items()
        if removed is not None and removed.ours is not None
    ]
    return levels_figure({table.title: marks}, "label imbalance removed, %", book.study.window)


def _mark(name: str, place: float | None, entry: Entry | None) -> Mark:
    ours, paper = (None, None) if entry is None else (entry.ours, entry.paper)
    mean, spread = (ours.mean, ours.spread) if ours else (None, None)
    return Mark(name, place, mean, spread, None if paper is None else float(paper))


def curves(book: Reproduction, sheet: Sheet, columns: Mapping[str, int]) -> Figure:
    """Accuracy over rounds of the runs in these columns of first rounds: those that were run, or all if none was."""
    panels = {
        title: [_line(name, row[place], book.results) for name, row in sheet.rows.items()]
        for title, place in columns.items()
    }
    run = {title: lines for title, lines in panels.items() if any(line.curves for line in lines)}
    return curves_figure(run or panels, float(published().convergence.threshold) / 100)


def convergence(book: Reproduction) -> Figure:
    """Fig. 4."""
    sheet = convergence_sheet(book.study)
    return curves(book, sheet, {book.study.named(title): place for place, title in enumerate(sheet.columns)})


def curves_at_equal_budget(book: Reproduction) -> Figure:
    """Accuracy over rounds of all policies that share a total, beyond the paper."""
    sheet = measures_sheet(book.study)
    return curves(book, sheet, {references_sheet(book.study).title: 1})


RUN_FIGURES: dict[str, dict[str, Callable[[Reproduction], Figure]]] = {
    "fig1": {"fig1b-accuracy": accuracy_at_equal_budget},
    "fig4": {"fig4-convergence": convergence},
    "fig5": {"fig5a-budgets": accuracy_over_budgets},
    "references": {"references-courses": curves_at_equal_budget, "references-imbalance": accuracy_over_removal},
}


def figures(artefact: str, book: Reproduction) -> Iterator[tuple[str, Figure]]:
    """The figures of an artefact by file name; those from label counts do not depend on the study."""
    yield from ((name, draw()) for name, draw in COUNT_FIGURES.items() if artefact in name)
    yield from ((name, draw(book)) for name, draw in RUN_FIGURES.get(artefact, {}).items())


def write(book: Reproduction, out: Path, tell: Tell = log.info) -> None:
    """Write the tables as Markdown and CSV, and the figures as PNG and SVG; `tell` is told of long work."""
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
