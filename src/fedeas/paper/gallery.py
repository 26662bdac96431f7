"""The figures of each artefact, from label counts and from what finished runs gave."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from matplotlib.figure import Figure

from fedeas import plots
from fedeas.courses import Course
from fedeas.errors import InputError
from fedeas.paper.amounts import Bar, Removal, Sweep, allocation_figure, budget_figure, removal_figure
from fedeas.paper.artefacts import allocation_sheet, convergence_sheet, references_sheet, sweep_sheet, window_of
from fedeas.paper.cells import Cell
from fedeas.paper.curves import Line, convergence_figure, course_figure
from fedeas.paper.figures import COUNT_FIGURES
from fedeas.paper.published import published
from fedeas.paper.results import Results
from fedeas.paper.tables import Entry
from fedeas.paper.workbook import Workbook
from fedeas.store import Run

log = logging.getLogger("fedeas")

Draw = Callable[[Workbook], Figure]


def accuracy_at_one_total(book: Workbook) -> Figure:
    """Fig. 1(b)."""
    table = book.table(allocation_sheet)
    bars = [_bar(name, row[0]) for name, row in table.rows.items()]
    return allocation_figure(
        bars, book.study.named(f"Accuracy at one total, {table.columns[0]}"), window_of(book.study)
    )


def convergence(book: Workbook) -> Figure:
    """Fig. 4."""
    sheet, panels = convergence_sheet(book.study), dict[str, list[Line]]()
    for place, title in enumerate(sheet.columns):
        panels[book.study.named(title)] = [_line(name, row[place], book.results) for name, row in sheet.rows.items()]
    return convergence_figure(panels, float(published().convergence.threshold) / 100)


def accuracy_over_budgets(book: Workbook) -> Figure:
    """Fig. 5(a)."""
    table = book.table(sweep_sheet)
    rows = table.rows
    betas = [row for name, row in rows.items() if name.startswith("FedEAS")]
    totals = [int(row[0].ours.mean) for row in betas if row[0] is not None and row[0].ours is not None]
    sweeps = [_sweep(name, totals, [row[place] for row in betas]) for name, place in (("FedEAS", 1), ("Uniform", 4))]
    fedavg, full = (_bar(name, rows[name][1]) for name in ("FedAvg", "Full-Balance"))
    return budget_figure(sweeps, fedavg, full, table.title, window_of(book.study))


def courses_at_one_total(book: Workbook) -> Figure:
    """Accuracy over rounds of all policies that share a total, beyond the paper."""
    sheet = references_sheet(book.study)
    lines = [_line(name, row[1], book.results, paper=False) for name, row in sheet.rows.items()]
    return course_figure(lines, sheet.title)


def accuracy_over_removal(book: Workbook) -> Figure:
    """Whether accuracy follows the label imbalance that a policy removes, beyond the paper."""
    table = book.table(references_sheet)
    removals = [
        Removal(removed.ours.mean, _bar(name, reached))
        for name, (removed, reached, *_) in table.rows.items()
        if removed is not None and removed.ours is not None
    ]
    return removal_figure(removals, table.title, window_of(book.study))


RUN_FIGURES: dict[str, dict[str, Draw]] = {
    "fig1": {"fig1b-accuracy": accuracy_at_one_total},
    "fig4": {"fig4-convergence": convergence},
    "fig5": {"fig5a-budgets": accuracy_over_budgets},
    "references": {"references-courses": courses_at_one_total, "references-imbalance": accuracy_over_removal},
}


def figures(artefact: str, book: Workbook) -> Iterator[tuple[str, Figure]]:
    """The figures of an artefact by file name; those from label counts are the paper's whatever the study."""
    short = {"fig1": "fig1a", "fig2": "fig2", "fig3": "fig3", "fig5": "fig5b", "closed-form": "supp-closed-form"}
    for name, draw_counts in COUNT_FIGURES.items():
        if artefact in short and name.startswith(short[artefact]):
            yield name, draw_counts()
    for name, draw in RUN_FIGURES.get(artefact, {}).items():
        yield name, draw(book)


def save_figures(artefact: str, book: Workbook, folder: Path) -> list[Path]:
    """Write them as PNG and as SVG."""
    return plots.save_all(figures(artefact, book), folder)


def _bar(name: str, entry: Entry | None) -> Bar:
    if entry is None:
        return Bar(name, None)
    paper = None if entry.paper is None else float(entry.paper)
    if entry.ours is None:
        return Bar(name, None, None, paper)
    return Bar(name, entry.ours.mean, entry.ours.spread, paper)


def _sweep(name: str, totals: list[int], entries: list[Entry | None]) -> Sweep:
    bars = [_bar(name, entry) for entry in entries]
    return Sweep(name, totals, [bar.ours for bar in bars], [bar.spread for bar in bars], [bar.paper for bar in bars])


def _line(name: str, cell: Cell | None, results: Results, paper: bool = True) -> Line:
    if cell is None:
        return Line(name, [])
    (config,) = cell.configs
    printed = int(cell.paper) if paper and cell.paper is not None else None
    return Line(name, list(_courses(results.seeds(config).values())), printed)


def _courses(runs: Iterable[Run]) -> Iterator[Course]:
    """Of those that can be read."""
    for run in runs:
        try:
            yield run.course()
        except InputError as error:
            log.warning("left out of the figures: %s", error)
