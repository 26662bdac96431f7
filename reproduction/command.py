"""``python -m reproduction``: reproduce the paper's tables, figures and numbers, and compare ours with them."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markdown import Markdown

from fedeas import FedEASError, InputError
from fedeas.config import RunConfig
from reproduction.answers import advice_markdown, answers_markdown, contrasts_markdown, robustness_markdown
from reproduction.artefacts import ARTEFACTS, EXPERIMENTS, artefacts
from reproduction.claims import Status, claims_markdown, count_claims
from reproduction.costs import economies_markdown, speeds
from reproduction.federated import federated_markdown
from reproduction.findings import all_findings, findings_markdown, findings_of
from reproduction.reproduces import headline, reproduces_markdown
from reproduction.reproduction import RESULTS, RUNS, STATEFUL, Places, Reproduction, made_folder
from reproduction.results import Results
from reproduction.studies import Precision, Protocol, Study, beyond_study, study
from reproduction.tables import markdown
from reproduction.text import listed, markdown_table
from reproduction.tried import tried_markdown

PAGES: dict[str, tuple[str, Callable[[Results, Study], str]]] = {  # texts from finished runs
    "summary": ("the main result in short: policies at equal budget", lambda runs, _: headline(runs)),
    "own-generator": (
        "the main result with a generator that the clients train, in short",
        lambda runs, _: federated_markdown(runs),
    ),
    "reproduces": ("which claims of the paper hold in our runs", lambda runs, _: reproduces_markdown(runs)),
    "findings": (
        "every method of beyond against FedEAS, under one profile and protocol",
        lambda runs, chosen: findings_markdown(*findings_of(chosen, runs)),
    ),
    "answers": ("the questions behind beyond", lambda runs, _: answers_markdown(all_findings(runs))),
    "advice": ("the policies that beyond recommends", lambda runs, _: advice_markdown(all_findings(runs))),
    "contrasts": ("what one choice adds to a method", lambda runs, _: contrasts_markdown(all_findings(runs))),
    "tried": ("what was tried and is no longer a part of FedEAS", lambda runs, _: tried_markdown(runs)),
    "robustness": ("how far the gains carry", lambda runs, _: robustness_markdown(all_findings(runs))),
    "economies": ("what images of each client's own and one pool cost", lambda runs, _: economies_markdown(runs)),
}

OTHERS = {
    "all": "all tables and figures of the paper",
    "counts": "every number of the paper that follows from label counts, computed again",
}
TITLES = {each.name: each.title for each in (*ARTEFACTS, *EXPERIMENTS)} | OTHERS | {k: v for k, (v, _) in PAGES.items()}
HELP = "Make the missing runs of an artefact, then show and write its tables.\n\n" + "\n\n".join(
    f"{name}: {title}" for name, title in TITLES.items()
)

app = typer.Typer(
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.command(help=HELP)
def command(
    name: Annotated[str, typer.Argument(metavar="ARTEFACT", help="A name from the list above.")],
    profile: Annotated[str, typer.Option(help="full; on a CPU digits, fashion(-generated), cifar100; smoke.")] = "full",
    protocol: Annotated[Protocol, typer.Option(help="How training and test data are split.")] = "paper",
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each run that is made.")] = 1,
    partitions: Annotated[bool, typer.Option("--partitions", help="Draw a new partition for each seed.")] = False,
    only: Annotated[str | None, typer.Option(help="Only runs whose label matches, e.g. '*k20*pool*'.")] = None,
    start: Annotated[
        str | None,
        typer.Option(help="scratch, cifar100 (3x3 stem), cifar100-imagenet-stem or imagenet=FILE; else the profile's."),
    ] = None,
    precision: Annotated[Precision | None, typer.Option(help="Precision of training; bf16 needs a GPU.")] = None,
    only_estimate: Annotated[bool, typer.Option("--estimate", help="Only estimate the cost; run nothing.")] = False,
    only_show: Annotated[bool, typer.Option("--show", help="Only show finished results; run nothing.")] = False,
    minutes: Annotated[float | None, typer.Option(min=0.1, help="Pause then; the same command resumes.")] = None,
    data_root: Annotated[Path | None, typer.Option(help="Folder with the datasets' Parquet files.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for tables and figures; reproduced by default.")] = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print as Markdown.")] = False,
    results: Annotated[Path, typer.Option(help="Folder of kept results, read in addition to the runs.")] = RESULTS,
    keep_results: Annotated[bool, typer.Option("--keep", help="Copy finished runs into that folder.")] = False,
    bank: Annotated[Path | None, typer.Option(help="Folder of synthetic images; RUNS/.bank by default.")] = None,
    runs: Annotated[Path, typer.Option(help="Folder of run directories.")] = RUNS,
    slow: Annotated[bool, typer.Option("--slow", help="counts: also the partition of 10,826 draws, a minute.")] = False,
) -> None:
    """Show a page, or make the missing runs of an artefact and show its tables."""
    if name not in TITLES:
        raise InputError(f"no artefact is called {name!r}; choose one of {', '.join(TITLES)}")
    if (only_show or name in PAGES) and not results.is_dir():
        say(f"{results}: no such folder, so no kept results are shown; give the repository's with --results FOLDER")
    if name == "counts":
        claims = count_claims(slow)
        _print(claims_markdown(claims), as_markdown)
        statuses = [claim.status for claim in claims]
        say(", ".join(f"{statuses.count(status)} {status}" for status in Status))
        if Status.WRONG in statuses:
            raise typer.Exit(1)
        return
    places = Places(runs, results, data_root, bank, keep_results)
    begins = _found_start(start)
    if begins is None and name in ("beyond", "findings"):
        begins = beyond_study(profile, protocol).start
    chosen = study(profile, protocol, begins, precision, partitions)
    if name in PAGES:
        _print_page(name, chosen, places.scan(), out, as_markdown)
        return
    done = Reproduction(chosen, places.scan(), artefacts(name), seeds, only or "*")
    done.check_pattern()
    if only_estimate:
        _print(estimates_markdown(done), as_markdown)
        return
    folder = out if only_show else made_folder(out or Path("reproduced"))
    if not only_show:
        done.train(places, minutes, progress, say)
    if not done.outcomes or any(outcome.run is not None for outcome in done.outcomes):
        _print_tables(done, as_markdown)
        if folder is not None:
            from reproduction.figures.runs import write

            write(done, folder, say)
            say(f"tables and figures: {folder}")
    problems, left = sum(outcome.run is None for outcome in done.outcomes), len(done.missing())
    if left > problems and not only_show:
        say(f"{left - problems} runs are left; the same command continues")
    for config, run, _ in done.outcomes:
        if run is not None and not run.finished and config.algorithm.startswith(STATEFUL):
            states = "its checkpoint holds the clients' states, gigabytes for a deep network; resume on this machine"
            say(f"{config.label}: {states}")
    if problems:
        say(f"{problems} runs failed, see above")
        raise typer.Exit(1)


def _found_start(start: str | None) -> str | None:
    """The name of a start; its file, if one is given, is then found by this name."""
    name, _, file = (start or "").partition("=")
    if file:
        path = Path(file).absolute()
        if path.name != f"{name}.safetensors" or not path.is_file():
            raise InputError(f"--start {start}: give a file that exists and is called {name}.safetensors")
        os.environ["FEDEAS_WEIGHTS"] = os.pathsep.join(
            filter(None, [str(path.parent), os.environ.get("FEDEAS_WEIGHTS")])
        )
    return name or None


def _print_page(name: str, chosen: Study, found: Results, out: Path | None, as_markdown: bool) -> None:
    """Print a text; with a folder, also draw the figure of the answers."""
    _print(PAGES[name][1](found, chosen), as_markdown)
    if out is not None and name == "answers":
        from reproduction.figures.runs import gains_figure
        from reproduction.figures.style import save_all

        save_all([("beyond-gains", gains_figure(all_findings(found)))], made_folder(out))


def _print_tables(done: Reproduction, as_markdown: bool) -> None:
    """Print the tables; if there are several, those without runs share a line."""
    tables = done.tables()
    shown = [table for table in tables if table.seeds or len(tables) == 1]
    for table in shown:
        _print(markdown(table), as_markdown)
    if len(shown) < len(tables):
        print(f"Not run: {'; '.join(table.title for table in tables if table not in shown)}.\n")
    if tables:
        print(done.study.says)


def estimates_markdown(done: Reproduction) -> str:
    """The cost of artefacts: their runs, and the images and minutes of the missing ones."""
    costs, rows = done.estimates(), list[list[str]]()
    for name, runs, left in costs:
        time = "not measured" if left.minutes is None else f"{left.minutes:,.0f}"
        rows.append([name, f"{runs:,}", f"{left.runs:,}", f"{left.images:,}", time])
    notes = [done.study.says, "Images are counted as if the bank were empty."]
    if any(left.minutes is None for _, _, left in costs):
        notes.append("Where minutes were not measured, as on a CPU, the command says its time when it starts.")
    if any(left.minutes for _, _, left in costs):
        notes.append(f"Minutes are for one {speeds()['machine']}, from speeds measured on it.")
    if untimed := sorted({name for _, _, left in costs for name in left.untimed}):
        notes.append(f"Without {listed(untimed)}, whose speed was not measured.")
    heads = ("artefact", "runs", "left to do", "images to generate", "minutes")
    return f"{markdown_table(heads, rows)}\n\n{' '.join(notes)}\n"


@contextmanager
def progress(config: RunConfig) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Show the round that a run has reached in a terminal; a log gets a line when a run has ended."""
    with Console().status(config.label) as status:
        yield lambda record: status.update(f"{config.label}: {record['round']} of {config.rounds.total} rounds")


def _print(text: str, as_markdown: bool) -> None:
    """Print Markdown as it is, or rendered for a terminal, which has no line breaks in cells and no underlines.

    A pipe or a file has room for any table, unless COLUMNS sets its width.
    """
    if as_markdown:
        print(text)
        return
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 1000
    console.print(Markdown(text.replace("<br>", "; ").replace("<u>", "*").replace("</u>", "*")))


def say(line: str) -> None:
    """Print a line beside the results."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(line, markup=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; an error that FedEAS raises on purpose is printed as one line, with its exit code."""
    try:
        app(args=arguments, prog_name="python -m reproduction")
    except FedEASError as error:
        say(f"error: {error}")
        sys.exit(error.exit_code)
