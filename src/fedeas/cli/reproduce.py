"""``fedeas reproduce``: the paper's tables, figures and numbers beside our own."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedeas.cli.runs import RUNS, Folder, progress
from fedeas.config import RunConfig
from fedeas.courses import Window
from fedeas.deadline import Deadline
from fedeas.display import claim_record, claims_markdown, claims_tables, estimate_table, filled_table
from fedeas.errors import FedEASError, InputError
from fedeas.files import written_whole
from fedeas.paper.artefacts import ARTEFACTS, Artefact, artefacts
from fedeas.paper.claims import Status, count_claims
from fedeas.paper.estimate import estimate, measured_on
from fedeas.paper.execution import Outcome, carry_out, stays_here
from fedeas.paper.results import Results, keep
from fedeas.paper.studies import Study, study, with_seeds
from fedeas.paper.tables import comma_separated, fill, latex, markdown
from fedeas.store import Run, RunStore

reproduce = typer.Typer(no_args_is_help=True, help="The paper's tables, figures and numbers beside our own.")

RESULTS, OUT = Path("results"), Path("reproduced")
TIMED = "wall-clock"  # the artefact whose runs must not find each other's images


class ProtocolName(StrEnum):
    """Who tests on what."""

    PAPER = "paper"
    CLEAN = "clean"


class PrecisionName(StrEnum):
    """How exactly the training is computed."""

    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"


@reproduce.command("counts")
def reproduce_counts(
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print as Markdown.")] = False,
    slow: Annotated[
        bool, typer.Option("--slow", help="Also draw the partition of 10,826 draws anew (a minute).")
    ] = False,
) -> None:
    """Every number of the paper that follows from label counts, ours beside the paper's."""
    claims = count_claims(slow)
    wrong = sum(claim.status is Status.WRONG for claim in claims)
    if as_json:
        print(json.dumps([claim_record(claim) for claim in claims], indent=1))
    elif as_markdown:
        print(claims_markdown(claims))
    else:
        console = Console()
        for table in claims_tables(claims):
            console.print(table)
        tally = {status: sum(claim.status is status for claim in claims) for status in Status}
        console.print(", ".join(f"{count} {status}" for status, count in tally.items()))
    if wrong:
        raise typer.Exit(1)


@dataclass(frozen=True)
class Places:
    """Folders of a reproduction."""

    runs: Path
    results: Path
    out: Path
    data: Path | None
    bank: Path | None
    timed: bool = False
    """Whether each run is to generate all its images: it has a bank of its own then."""

    def bank_of(self, config: RunConfig) -> Path | None:
        """Where the images of a run are kept; None is the bank that all runs of the folder share."""
        return self.runs / ".banks" / config.directory if self.timed and self.bank is None else self.bank

    def found(self) -> Results:
        """What is finished by now."""
        return Results([self.runs, self.results])

    def placed(self, config: RunConfig) -> RunConfig:
        """The run with the folder of its data."""
        root = None if self.data is None else str(self.data)
        return config.model_copy(update={"data": config.data.model_copy(update={"root": root})})

    def make(self, keeping: bool) -> None:
        """Make the folders that will be written to, before anything has been trained."""
        if self.runs.exists() and not self.runs.is_dir():
            raise InputError(f"{self.runs}: not a folder; runs need one")
        for folder in (self.out, self.results) if keeping else (self.out,):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InputError(f"{folder}: the folder cannot be created ({error.strerror})") from None


def _command(name: str) -> Callable[..., None]:
    """The command of one artefact, or of all; they have the same options."""

    def command(
        profile: Annotated[
            str, typer.Option(help="full, short (one GPU hour), digits (on a CPU) or smoke (a minute).")
        ] = "full",
        protocol: Annotated[ProtocolName, typer.Option(help="Who tests on what.")] = ProtocolName.PAPER,
        seeds: Annotated[int, typer.Option(min=1, help="Seeds of each run that is made.")] = 1,
        partitions: Annotated[
            bool, typer.Option("--partitions", help="Draw a partition of its own for each seed.")
        ] = False,
        start: Annotated[
            str | None, typer.Option(help="scratch, cifar100 (3x3 stem) or cifar100-imagenet-stem; else the profile's.")
        ] = None,
        precision: Annotated[PrecisionName | None, typer.Option(help="Of the training; bf16 needs a GPU.")] = None,
        only_estimate: Annotated[bool, typer.Option("--estimate", help="Say what it takes, and stop.")] = False,
        only_show: Annotated[bool, typer.Option("--show", help="Show what there is, and run nothing.")] = False,
        minutes: Annotated[float | None, typer.Option(min=0.1, help="Pause in time; the same command goes on.")] = None,
        data_root: Annotated[Path | None, typer.Option(help="Folder with the datasets' Parquet files.")] = None,
        out: Annotated[Path | None, typer.Option(help="Folder for tables and figures; reproduced by default.")] = None,
        as_markdown: Annotated[bool, typer.Option("--markdown", help="Print tables as Markdown.")] = False,
        results: Annotated[Path, typer.Option(help="Folder of kept results, read beside the runs.")] = RESULTS,
        keep_results: Annotated[bool, typer.Option("--keep", help="Copy finished runs into that folder.")] = False,
        bank: Annotated[Path | None, typer.Option(help="Folder of synthetic images; RUNS/.bank by default.")] = None,
        folder: Folder = RUNS,
    ) -> None:
        chosen = study(profile, protocol.value, start, None if precision is None else precision.value, partitions)
        wanted, where = artefacts(name), Places(folder, results, out or OUT, data_root, bank, name == TIMED)
        if only_estimate:
            _print_estimate(wanted, chosen, seeds, where.found())
            return
        if only_show:
            _show(wanted, chosen, where.found(), as_markdown)
            if out is not None:
                _write(wanted, chosen, where)
            return
        outcomes = _run(_missing(wanted, chosen, seeds, where.found()), where, minutes, keep_results)
        if keep_results:
            _keep(_configs(wanted, chosen, seeds), where)
        if not outcomes or any(outcome.run is not None for outcome in outcomes):  # else nothing has come of it
            _show(wanted, chosen, where.found(), as_markdown)
            _write(wanted, chosen, where)
        _say_what_is_missing(_missing(wanted, chosen, seeds, where.found()), outcomes)

    command.__doc__ = "Everything." if name == "all" else _sentence(artefacts(name)[0].title)
    return command


def _sentence(title: str) -> str:
    return f"{title[0].upper()}{title[1:]}."


for _name in ("all", *(artefact.name for artefact in ARTEFACTS)):
    reproduce.command(_name)(_command(_name))


def _configs(wanted: Sequence[Artefact], chosen: Study, seeds: int) -> list[RunConfig]:
    """The runs of these artefacts, each once."""
    needed = [run for artefact in wanted for config in artefact.configs(chosen) for run in with_seeds(config, seeds)]
    return list({config.fingerprint: config for config in needed}.values())


def _missing(wanted: Sequence[Artefact], chosen: Study, seeds: int, found: Results) -> list[RunConfig]:
    return [config for config in _configs(wanted, chosen, seeds) if not found.has(config)]


def _print_estimate(wanted: Sequence[Artefact], chosen: Study, seeds: int, found: Results) -> None:
    rows = []
    for artefact in wanted:
        needed, missing = _configs([artefact], chosen, seeds), _missing([artefact], chosen, seeds, found)
        rows.append((artefact.name, len(needed), estimate(missing)))
    if len(wanted) > 1:
        together = _configs(wanted, chosen, seeds), _missing(wanted, chosen, seeds, found)
        rows.append(("together, each run once", len(together[0]), estimate(together[1])))
    Console().print(estimate_table(rows, chosen.says, measured_on()))


def _run(configs: Sequence[RunConfig], where: Places, minutes: float | None, keeping: bool) -> list[Outcome]:
    from fedeas.run import execute

    able, done = _able([where.placed(config) for config in configs])
    where.make(keeping)
    deadline, console = None if minutes is None else Deadline(minutes), Console(stderr=True, highlight=False)

    def one(config: RunConfig) -> Run:
        with progress(config) as show:
            return execute(config, RunStore(where.runs), show, where.bank_of(config), pause=deadline)

    for number, outcome in enumerate(carry_out(able, one, deadline), 1):
        done.append(outcome)
        console.print(f"{number} of {len(able)}  {_said(outcome)}", soft_wrap=True, markup=False)
        if keeping and outcome.run is not None and outcome.run.finished:
            keep(outcome.run, where.results)
    return done


def _able(configs: Sequence[RunConfig]) -> tuple[list[RunConfig], list[Outcome]]:
    """The runs whose data can be had, and an outcome for each other one; what is wrong with them all is raised."""
    from fedeas.data.sources import load_dataset
    from fedeas.run import new_model

    problems: dict[str, str] = {}
    for config in {config.data.dataset: config for config in configs}.values():
        _check_precision(config.engine.precision)
        try:
            dataset = load_dataset(config.data.dataset, config.data.root)
        except FedEASError as error:
            problems[config.data.dataset] = str(error)
        else:
            new_model(config, dataset.shape, dataset.num_classes)  # its initial weights must be there, and fit
    for name, problem in problems.items():
        number = sum(config.data.dataset == name for config in configs)
        print(f"{number} runs on {name} are left out: {problem}", file=sys.stderr)
    able = [config for config in configs if config.data.dataset not in problems]
    return able, [Outcome(c, None, problems[c.data.dataset]) for c in configs if c.data.dataset in problems]


def _check_precision(name: str) -> None:
    from fedeas.devices import chosen_device, set_precision

    try:
        set_precision(name, chosen_device("auto"))
    except InputError:
        raise InputError(
            f"precision {name} needs a GPU; without one use --profile digits or smoke, or --precision fp32, which "
            "takes days for the other profiles"
        ) from None


def _keep(configs: Sequence[RunConfig], where: Places) -> None:
    """Those, too, that were finished earlier."""
    here, kept = Results([where.runs]), Results([where.results])
    for config in configs:
        if here.has(config) and not kept.has(config):
            keep(here.seeds(config)[config.seed], where.results)


def _said(outcome: Outcome) -> str:
    name = f"{outcome.config.label}, seed {outcome.config.seed}"
    if outcome.run is None:
        return f"{name}: {outcome.problem}"
    if not outcome.run.finished:
        return f"{name}: paused after round {len(outcome.run.rounds())}"
    summary = outcome.run.summary()
    return f"{name}: accuracy {summary['accuracy']:.2%} in {Window(*summary['window'])}"


def _show(wanted: Sequence[Artefact], chosen: Study, found: Results, as_markdown: bool) -> None:
    console = Console()
    sheets = {artefact.sheet: None for artefact in wanted if artefact.sheet is not None}  # each once, in order
    for sheet in sheets:
        table = fill(sheet(chosen), found)
        print(markdown(table)) if as_markdown else console.print(filled_table(table))
    if sheets and not as_markdown:
        console.print(chosen.says)
    elif sheets and not chosen.is_the_papers:  # whose protocol the page around the tables tells
        print(chosen.says)


def _write(wanted: Sequence[Artefact], chosen: Study, where: Places) -> None:
    from fedeas.paper.gallery import save_figures

    where.make(keeping=False)
    found, out = where.found(), where.out
    for artefact in wanted:
        if artefact.sheet is not None:
            table = fill(artefact.sheet(chosen), found)
            table = replace(table, note=f"{table.note} {chosen.says}".strip())
            for ending, render in (("md", markdown), ("csv", comma_separated), ("tex", latex)):
                with written_whole(out / f"{artefact.name}.{ending}") as part:
                    part.write_text(render(table))
        save_figures(artefact.name, chosen, found, out)
        if artefact.name == "samples":
            _save_samples(chosen, out / "samples.png")
    Console(stderr=True, soft_wrap=True).print(f"tables and figures: {out}", markup=False, highlight=False)


def _save_samples(chosen: Study, path: Path) -> None:
    """The grid of the profile's diffusion model, on whatever device there is."""
    from fedeas.generators.diffusion import DiffusionGenerator, Weights
    from fedeas.generators.grid import sample_grid

    weights = Weights.load("digits" if chosen.profile.clients else "cifar10")
    sample_grid(DiffusionGenerator(weights), weights.class_names, path)


def _say_what_is_missing(missing: Sequence[RunConfig], outcomes: Sequence[Outcome]) -> None:
    """Name the runs that are left, and those to resume on this machine; exit with 1 if some could not be done."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    problems = [outcome for outcome in outcomes if outcome.run is None]
    if len(missing) > len(problems):
        console.print(f"{len(missing) - len(problems)} runs are left; the same command goes on", markup=False)
    paused = [o for o in outcomes if o.run is not None and not o.run.finished and stays_here(o.config)]
    for outcome in paused:
        console.print(
            f"{outcome.config.label}: its clients keep state, which for a deep network is gigabytes in the checkpoint; "
            "go on on this machine",
            markup=False,
        )
    if problems:
        console.print(f"{len(problems)} runs could not be done, see above", markup=False)
        raise typer.Exit(1)
