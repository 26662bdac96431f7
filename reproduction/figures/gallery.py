"""The figures of each artefact, from label counts and from finished runs, and the files of a reproduction."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from matplotlib.figure import Figure

import fedeas
from fedeas import Allocation, FedEAS, InputError
from fedeas.runs import Measured
from reproduction.artefacts import allocation_sheet, convergence_sheet, references_sheet, sweep_sheet
from reproduction.figures import runs
from reproduction.figures.counts import COUNT_FIGURES
from reproduction.figures.style import DPI, new_figure, save_all
from reproduction.findings import all_findings
from reproduction.methods import FEDAVG, FEDEAS, FULL_BALANCE, POLICIES, UNIFORM, Method, with_total
from reproduction.published import EXAMPLE, Setting, published, setting
from reproduction.reproduction import Reproduction, Tell, made_folder
from reproduction.results import Results, accuracy
from reproduction.studies import HEADLINE, PROTOCOLS, plan_of, study
from reproduction.tables import Cell, Entry, comma_separated, latex, markdown

log = logging.getLogger(__name__)
WRITERS = {"md": markdown, "csv": comma_separated, "tex": latex}


def accuracy_at_equal_budget(book: Reproduction) -> Figure:
    """Fig. 1(b)."""
    table = book.table(allocation_sheet(book.study))
    bars = [_bar(name, row[0]) for name, row in table.rows.items()]
    title = book.study.named(f"Accuracy at equal budget, {table.columns[0]}")
    return runs.allocation_figure(bars, title, book.study.window)


def convergence(book: Reproduction) -> Figure:
    """Fig. 4, in the settings that were run; in both settings if none was run."""
    sheet, panels = convergence_sheet(book.study), dict[str, list[runs.Line]]()
    for place, title in enumerate(sheet.columns):
        panels[book.study.named(title)] = [_line(name, row[place], book.results) for name, row in sheet.rows.items()]
    run = {title: lines for title, lines in panels.items() if any(line.curves for line in lines)}
    return runs.convergence_figure(run or panels, float(published().convergence.threshold) / 100)


def accuracy_over_budgets(book: Reproduction) -> Figure:
    """Fig. 5(a)."""
    table = book.table(sweep_sheet(book.study))
    betas = [row for name, row in table.rows.items() if name.startswith("FedEAS")]
    totals = [int(row[0].ours.mean) for row in betas if row[0] is not None and row[0].ours is not None]
    places = {"FedEAS": 1, "Uniform": 4}
    sweeps = [runs.Sweep(name, totals, [_bar(name, row[place]) for row in betas]) for name, place in places.items()]
    fedavg, full = (_bar(name, table.rows[name][1]) for name in ("FedAvg", "Full-Balance"))
    return runs.budget_figure(sweeps, fedavg, full, table.title, book.study.window)


def curves_at_equal_budget(book: Reproduction) -> Figure:
    """Accuracy over rounds of all policies that share a total, beyond the paper."""
    sheet = references_sheet(book.study)
    lines = [_line(name, row[1], book.results)._replace(paper_round=None) for name, row in sheet.rows.items()]
    return runs.curves_figure(lines, sheet.title)


def accuracy_over_removal(book: Reproduction) -> Figure:
    """Whether accuracy follows the label imbalance that a policy removes, beyond the paper."""
    table, removals = book.table(references_sheet(book.study)), list[tuple[float, runs.Bar]]()
    for name, (removed, reached, *_) in table.rows.items():
        removals += [(removed.ours.mean, _bar(name, reached))] if removed is not None and removed.ours else []
    return runs.removal_figure(removals, table.title, book.study.window)


def overview(results: Results) -> Figure:
    """Accuracy over budget and policy, under both protocols: the main settings that were run, or the first of them."""
    panels = {where.title: list(_spots(where, results)) for where in (setting(HEADLINE), setting(EXAMPLE))}
    run = {title: spots for title, spots in panels.items() if any(spot.clean or spot.replayed for spot in spots)}
    return runs.overview_figure(run or dict([*panels.items()][:1]), study("full").window)


def _spots(where: Setting, results: Results) -> Iterator[runs.Spot]:
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
        yield runs.Spot(label, method.title, clean, replayed, None if paper is None else float(paper))


RUN_FIGURES: dict[str, dict[str, Callable[[Reproduction], Figure]]] = {
    "fig1": {"fig1b-accuracy": accuracy_at_equal_budget},
    "fig4": {"fig4-convergence": convergence},
    "fig5": {"fig5a-budgets": accuracy_over_budgets},
    "references": {"references-courses": curves_at_equal_budget, "references-imbalance": accuracy_over_removal},
}
PAGE_FIGURES: dict[str, tuple[str, Callable[[Results], Figure]]] = {
    "summary": ("results-overview", overview),
    "answers": ("beyond-gains", lambda results: runs.gains_figure(all_findings(results))),
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
        save_all(figures(artefact.name, book), out)
        if artefact.name == "samples":
            tell("drawing samples of the generator; on a CPU this takes minutes")
            save_samples("digits" if book.study.profile.dataset else "cifar10", out / "samples.png")


def save_samples(dataset: str, path: Path) -> None:
    """Draw the first client's first images of every class by the dataset's diffusion model, without a selection."""
    first = fedeas.partition({"data": {"dataset": dataset}, "partition": {"scheme": "iid"}}, images=False).counts
    made = fedeas.generate(Allocation([[10] * first.num_classes]), "diffusion", dataset=dataset)
    figure, (_, *shape) = new_figure(8, 8), made.images.shape
    grid = figure.subplots(first.num_classes, 10, squeeze=False)
    for axes, image in zip(grid.flat, made.images, strict=True):
        axes.imshow(image.reshape(shape).transpose(1, 2, 0), "gray")
        axes.set(xticks=[], yticks=[])
    for axes, name in zip(grid[:, 0], made.classes, strict=True):
        axes.set_ylabel(name, rotation=0, ha="right", va="center")
    figure.savefig(path, dpi=DPI)


def _bar(name: str, entry: Entry | None) -> runs.Bar:
    ours, paper = (None, None) if entry is None else (entry.ours, entry.paper)
    mean, spread = (ours.mean, ours.spread) if ours else (None, None)
    return runs.Bar(name, mean, spread, None if paper is None else float(paper))


def _line(name: str, cell: Cell | None, results: Results) -> runs.Line:
    """A method's curves, of the runs that can be read; some were packed without their rounds."""
    if cell is None:
        return runs.Line(name, [])
    (config,) = cell.configs
    curves = list[dict[int, float]]()
    for run in results.seeds(config).values():
        try:
            records = run.rounds() if run.has_rounds else []
        except InputError as error:
            log.warning("left out of the figures: %s", error)
            continue
        tested = (record for record in records if record.get("accuracy") is not None)
        curves += [{int(each["round"]): float(each["accuracy"]) for each in tested}] if records else []
    return runs.Line(name, curves, None if cell.paper is None else int(cell.paper))
