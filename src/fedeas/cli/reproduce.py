"""``fedeas reproduce``: reproduce the paper's tables, figures and numbers, and compare ours with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown

from fedeas.cli.display import claim_record, claims_markdown, claims_tables, estimate_table, filled_table
from fedeas.cli.fitting import output
from fedeas.cli.progress import announce
from fedeas.cli.runs import Folder, progress, say_how_long
from fedeas.core.files import make_folder
from reproduction.answers import answers_markdown
from reproduction.artefacts import ARTEFACTS, EXPERIMENTS, artefacts
from reproduction.claims import Status, count_claims
from reproduction.contrasts import contrasts_markdown
from reproduction.economies import economies_markdown
from reproduction.findings import all_findings, findings_markdown, findings_of, protocols_compared
from reproduction.headline import headline
from reproduction.ledger import View, ledger, ledger_markdown, ledger_remarks
from reproduction.profiles import Precision
from reproduction.recommendation import advice_markdown
from reproduction.reproduction import RESULTS, RUNS, Places, Reproduction
from reproduction.reproduction import reproduce as make
from reproduction.results import Results
from reproduction.robustness import robustness_markdown
from reproduction.run_queue import stays_here
from reproduction.studies import Protocol, study
from reproduction.tables import markdown
from reproduction.tried_page import tried_markdown

if TYPE_CHECKING:
    from fedeas.federation.forecast import Forecast

reproduce = typer.Typer(no_args_is_help=True, help="Reproduce the paper's tables, figures and numbers.")

OUT = Path("reproduced")
NOT_MEASURED = "Where minutes were not measured, as on a CPU, the command says how long it will take when it starts."


KeptResults = Annotated[Path, typer.Option("--results", help="Folder of kept results, read in addition to the runs.")]
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print as Markdown.")]


@reproduce.command("counts")
def reproduce_counts(
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
    as_markdown: AsMarkdown = False,
    slow: Annotated[
        bool, typer.Option("--slow", help="Also redraw the partition that takes 10,826 draws (a minute).")
    ] = False,
) -> None:
    """Recompute every number of the paper that follows from label counts, and compare."""
    claims = count_claims(slow)
    wrong = sum(claim.status is Status.WRONG for claim in claims)
    if as_json:
        print(json.dumps([claim_record(claim) for claim in claims], indent=1))
    elif as_markdown:
        print(claims_markdown(claims))
    else:
        console = output()
        for table in claims_tables(claims):
            console.print(table)
        tally = {status: sum(claim.status is status for claim in claims) for status in Status}
        console.print(", ".join(f"{count} {status}" for status, count in tally.items()))
    if wrong:
        raise typer.Exit(1)


@reproduce.command("summary")
def reproduce_summary(
    as_markdown: AsMarkdown = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the summary figure.")] = None,
    results: KeptResults = RESULTS,
    folder: Folder = RUNS,
) -> None:
    """Print the main result in short: policies at equal budget, clean protocol; --out also writes a figure."""
    found = _scan(folder, results)
    said = headline(View("clean", found))
    quoted = "\n".join(f"> {line}".rstrip() for line in said.splitlines())
    print(quoted) if as_markdown else output().print(said, highlight=False)
    if out is not None:
        from fedeas.views.figures import save_all
        from reproduction.figures.gallery import overview

        make_folder(out)
        save_all([("results-overview", overview(found))], out)


@reproduce.command("ledger")
def reproduce_ledger(as_markdown: AsMarkdown = False, results: KeptResults = RESULTS, folder: Folder = RUNS) -> None:
    """Show where our results agree with the paper, and where they do not."""
    found = _scan(folder, results)
    lines = ledger(found)
    _print(ledger_markdown(lines, ledger_remarks(lines, found)), as_markdown)


@reproduce.command("findings")
def reproduce_findings(
    profile: Annotated[str, typer.Option(help="full, digits, fashion, fashion-generated or cifar100.")] = "digits",
    protocol: Annotated[Protocol, typer.Option(help="How training and test data are split.")] = "clean",
    as_markdown: AsMarkdown = False,
    results: KeptResults = RESULTS,
    folder: Folder = RUNS,
) -> None:
    """Compare every method of `beyond` with FedEAS, with all comparisons in mind."""
    runs = _scan(folder, results)
    found = findings_of(study(profile, protocol), runs)
    _print(findings_markdown(*found), as_markdown)
    if not any(each.compared for each in found):
        for other in protocols_compared(profile, runs):
            _say(f"under protocol {other} methods have been compared: add --protocol {other}")


@reproduce.command("tried")
def reproduce_tried(as_markdown: AsMarkdown = False, results: KeptResults = RESULTS, folder: Folder = RUNS) -> None:
    """Show what was tried and is no longer a part of FedEAS, with its results."""
    _print(tried_markdown(_scan(folder, results)), as_markdown)


@reproduce.command("advice")
def reproduce_advice(as_markdown: AsMarkdown = False, results: KeptResults = RESULTS, folder: Folder = RUNS) -> None:
    """Show which policies the experiments of `beyond` recommend, each one and all together."""
    _print(advice_markdown(all_findings(_scan(folder, results))), as_markdown)


@reproduce.command("contrasts")
def reproduce_contrasts(as_markdown: AsMarkdown = False, results: KeptResults = RESULTS, folder: Folder = RUNS) -> None:
    """Show what one choice adds to a method in the experiments beyond the paper."""
    _print(contrasts_markdown(all_findings(_scan(folder, results))), as_markdown)


@reproduce.command("economies")
def reproduce_economies(as_markdown: AsMarkdown = False, results: KeptResults = RESULTS, folder: Folder = RUNS) -> None:
    """Show what images of each client's own and one pool for all cost, and what they gain."""
    _print(economies_markdown(_scan(folder, results)), as_markdown)


@reproduce.command("robustness")
def reproduce_robustness(
    as_markdown: AsMarkdown = False, results: KeptResults = RESULTS, folder: Folder = RUNS
) -> None:
    """Show how far the gains of `beyond` carry: elsewhere, without one dataset, at small and large budgets."""
    _print(robustness_markdown(all_findings(_scan(folder, results))), as_markdown)


@reproduce.command("answers")
def reproduce_answers(
    as_markdown: AsMarkdown = False,
    out: Annotated[Path | None, typer.Option(help="Folder for a figure of the gains over FedEAS.")] = None,
    results: KeptResults = RESULTS,
    folder: Folder = RUNS,
) -> None:
    """Answer what `beyond` asks, from all its experiments: are images needed, and an allocation for each client?"""
    found = all_findings(_scan(folder, results))
    _print(answers_markdown(found), as_markdown)
    if out is not None:
        from fedeas.views.figures import save_all
        from reproduction.figures.gains import gains_figure

        make_folder(out)
        save_all([("beyond-gains", gains_figure(found))], out)


def _scan(folder: Path, results: Path) -> Results:
    """The finished runs; says so if there is no folder of kept results."""
    _check_results(results)
    return Places(folder, results).scan()


def _check_results(folder: Path) -> None:
    if not folder.is_dir():
        _say(f"{folder}: no such folder, so no kept results are shown; give the repository's with --results FOLDER")


def _print(text: str, as_markdown: bool) -> None:
    print(text) if as_markdown else output().print(Markdown(text))


def reproduce_artefact(
    context: typer.Context,
    profile: Annotated[
        str, typer.Option(help="full; on a CPU digits, fashion, fashion-generated or cifar100; smoke.")
    ] = "full",
    protocol: Annotated[Protocol, typer.Option(help="How training and test data are split.")] = "paper",
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each run that is made.")] = 1,
    partitions: Annotated[bool, typer.Option("--partitions", help="Draw a new partition for each seed.")] = False,
    only: Annotated[str | None, typer.Option(help="Only runs whose label matches, e.g. '*k20*pool*'.")] = None,
    start: Annotated[
        str | None, typer.Option(help="scratch, cifar100 (3x3 stem) or cifar100-imagenet-stem; else the profile's.")
    ] = None,
    precision: Annotated[Precision | None, typer.Option(help="Precision of training; bf16 needs a GPU.")] = None,
    only_estimate: Annotated[bool, typer.Option("--estimate", help="Only estimate the cost; run nothing.")] = False,
    only_show: Annotated[bool, typer.Option("--show", help="Only show finished results; run nothing.")] = False,
    minutes: Annotated[float | None, typer.Option(min=0.1, help="Pause then; the same command resumes.")] = None,
    data_root: Annotated[Path | None, typer.Option(help="Folder with the datasets' Parquet files.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for tables and figures; reproduced by default.")] = None,
    as_markdown: AsMarkdown = False,
    results: KeptResults = RESULTS,
    keep_results: Annotated[bool, typer.Option("--keep", help="Copy finished runs into that folder.")] = False,
    bank: Annotated[Path | None, typer.Option(help="Folder of synthetic images; RUNS/.bank by default.")] = None,
    folder: Folder = RUNS,
) -> None:
    """Make the missing runs, then show and write the tables; the command's name is the artefact's."""
    training = not (only_estimate or only_show)
    if only_show:
        _check_results(results)
    folder_of_tables = (out or OUT) if training else None if only_estimate else out
    done = make(
        context.info_name or "all",
        profile=profile,
        protocol=protocol,
        start=start,
        precision=precision,
        partitions=partitions,
        seeds=seeds,
        only=only,
        train=training,
        minutes=minutes,
        places=Places(folder, results, data_root, bank, keep_results),
        out=folder_of_tables,
        watch=progress,
        tell=_say,
        on_start=_say_how_long,
    )
    if only_estimate:
        costs = done.estimates(seeds)
        remark = f" {NOT_MEASURED}" if any(left.minutes is None for _, _, left in costs) else ""
        output().print(estimate_table(costs, f"{done.study.says}{remark}"))
        return
    if not done.is_fruitless:
        _show(done, as_markdown)
        if folder_of_tables is not None:
            _say(f"tables and figures: {folder_of_tables}")
    if training:
        _say_what_is_missing(done)


for _name in ("all", *(artefact.name for artefact in (*ARTEFACTS, *EXPERIMENTS))):
    _title = "everything" if _name == "all" else artefacts(_name)[0].title
    reproduce.command(_name, help=f"{_title[0].upper()}{_title[1:]}.")(reproduce_artefact)


def _show(done: Reproduction, as_markdown: bool) -> None:
    """Print the tables; if there are several, those without runs share a line."""
    console, tables = output(), done.tables
    empty = [table.title for table in tables if not table.is_run] if len(tables) > 1 else []
    for table in tables:
        if table.title not in empty:
            print(markdown(table)) if as_markdown else console.print(filled_table(table))
    if empty:
        print(f"Not run: {'; '.join(empty)}.\n")
    if tables and not as_markdown:
        console.print(done.study.says)
    elif tables and not done.study.is_the_papers:  # the page around the tables describes the paper's protocol
        print(done.study.says)


def _say_how_long(ahead: Forecast) -> None:
    """Say how long the runs will take: on a GPU at most, on a CPU at least, where only training steps are counted."""
    if ahead.is_bound:
        say_how_long(ahead)
    else:
        what = f"of training for {ahead.rounds:,} rounds on this machine; tests and synthetic images come on top"
        announce(ahead.seconds, what, "at least about")


def _say(line: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(line, markup=False)


def _say_what_is_missing(done: Reproduction) -> None:
    """Print the number of missing runs, and those to resume on this machine; exit with 1 if some failed."""
    problems, left = sum(outcome.run is None for outcome in done.outcomes), len(done.missing)
    if left > problems:
        _say(f"{left - problems} runs are left; the same command continues")
    for config, run, _ in done.outcomes:
        if run is not None and not run.finished and stays_here(config):
            states = "its checkpoint holds the clients' states, gigabytes for a deep network; resume on this machine"
            _say(f"{config.label}: {states}")
    if problems:
        _say(f"{problems} runs failed, see above")
        raise typer.Exit(1)
