"""Reproduce tables and figures of the paper: make the runs that are missing, then fill and write the tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from fedeas.config import RunConfig
from fedeas.core.deadline import Deadline
from fedeas.core.errors import InputError
from fedeas.core.files import PathLike, make_folder, written_whole
from fedeas.core.log import log
from fedeas.core.sentences import listed
from fedeas.runs.store import Record, Run, RunStore
from reproduction.artefacts import Artefact, artefacts
from reproduction.estimate import Estimate, estimate, forecast_of_all
from reproduction.profiles import Precision
from reproduction.results import Results, keep
from reproduction.run_queue import RunOutcome, carry_out, describe_outcome, split_by_data
from reproduction.studies import Protocol, Study, study
from reproduction.tables import Filled, comma_separated, latex, markdown
from reproduction.workbook import Workbook

if TYPE_CHECKING:
    from fedeas.federation.forecast import Forecast

OnRound = Callable[[Record], None]
OnStart = Callable[["Forecast"], None]
Watch = Callable[[RunConfig], AbstractContextManager[OnRound]]

RUNS, RESULTS = Path("runs"), Path("results")
TIMED = "wall-clock"  # the artefact whose runs must not share images
WRITERS = {"md": markdown, "csv": comma_separated, "tex": latex}


@dataclass(frozen=True)
class Places:
    """Folders of a reproduction.

    Attributes:
        runs: run directories, finished or not.
        results: kept results, read in addition to the runs.
        data: the datasets' Parquet files.
        bank: synthetic images; by default one bank in `runs` that all runs share.
        keeps: whether finished runs are copied into `results`.
    """

    runs: Path = RUNS
    results: Path = RESULTS
    data: Path | None = None
    bank: Path | None = None
    keeps: bool = False

    def scan(self) -> Results:
        """Read the runs that are finished now."""
        return Results([self.runs, self.results])

    def with_data_folder(self, config: RunConfig) -> RunConfig:
        """The run with the folder of its data."""
        root = None if self.data is None else str(self.data)
        return config.model_copy(update={"data": config.data.model_copy(update={"root": root})})

    def bank_of(self, config: RunConfig, timed: bool) -> Path | None:
        """The run's bank; a run that is timed has its own, so that it generates all its images."""
        return self.runs / ".banks" / config.directory if timed and self.bank is None else self.bank

    def prepare(self, out: Path | None) -> None:
        """Create the output folders, before any training."""
        if self.runs.exists() and not self.runs.is_dir():
            raise InputError(f"{self.runs}: not a folder; runs need one")
        for folder in filter(None, (out, self.results if self.keeps else None)):
            make_folder(folder)


HERE = Places()


@dataclass(frozen=True)
class Reproduction:
    """Artefacts of a study with the runs that fill them, and the outcomes of the runs that were started."""

    book: Workbook
    artefacts: Sequence[Artefact]
    configs: Sequence[RunConfig]
    outcomes: Sequence[RunOutcome] = ()

    @property
    def study(self) -> Study:
        """The study that is reproduced."""
        return self.book.study

    @property
    def tables(self) -> list[Filled]:
        """The tables, filled from the finished runs."""
        return self.book.tables(self.artefacts)

    @property
    def missing(self) -> list[RunConfig]:
        """The runs that are not finished."""
        return self.book.missing(self.configs)

    @property
    def is_fruitless(self) -> bool:
        """Whether runs were started and all of them failed."""
        return bool(self.outcomes) and all(outcome.run is None for outcome in self.outcomes)

    def estimates(self, seeds: int) -> list[tuple[str, int, Estimate]]:
        """For each artefact its number of runs and the cost of the missing ones; for several also the sum."""
        groups = [(each.name, [each]) for each in self.artefacts]
        groups += [("all, each run counted once", list(self.artefacts))] if len(groups) > 1 else []
        needed = [(name, self.book.configs(group, seeds)) for name, group in groups]
        return [(name, len(configs), estimate(self.book.missing(configs))) for name, configs in needed]

    def write(self, folder: PathLike, tell: Callable[[str], None] = log.info) -> None:
        """Write the tables as Markdown, CSV and LaTeX, and the figures as PNG and SVG; `tell` is told of long work."""
        from fedeas.views.figures import save_all
        from reproduction.figures.gallery import figures

        out = Path(folder)
        make_folder(out)
        for artefact in self.artefacts:
            _write_tables(artefact.name, self.book.tables([artefact]), self.study, out)
            save_all(figures(artefact.name, self.book), out)
            if artefact.name == "samples":
                tell("drawing samples of the generator; on a CPU this takes minutes")
                _save_samples(self.study, out / "samples.png")


def reproduce(
    name: str,
    *,
    profile: str = "full",
    protocol: Protocol = "paper",
    start: str | None = None,
    precision: Precision | None = None,
    partitions: bool = False,
    seeds: int = 1,
    only: str | None = None,
    train: bool = True,
    minutes: float | None = None,
    places: Places = HERE,
    out: PathLike | None = None,
    watch: Watch = lambda config: nullcontext(lambda record: None),
    tell: Callable[[str], None] = log.info,
    on_start: OnStart | None = None,
) -> Reproduction:
    """Make the missing runs of an artefact (``table1``, ``fig4``, ... or ``all``) and fill its tables.

    Args:
        name: the artefact.
        profile: ``full``, ``digits`` or ``smoke``.
        protocol: how data are split into training and test parts.
        start: initial weights and stem, by default the profile's.
        precision: precision of the training, by default the profile's.
        partitions: whether each seed has its own partition.
        seeds: how many seeds of each run.
        only: which runs to make, as a pattern of labels such as ``*k20*pool*``; by default all.
        train: whether to make missing runs; otherwise the tables show the finished ones.
        minutes: when to pause; the same call resumes.
        places: folders of runs, results, data and images.
        out: folder for tables and figures, if they should be written.
        watch: called with each run; the context that it returns is called with each round.
        tell: called with a line of text about each run that has ended, and before work that takes long.
        on_start: called with the time that the runs will take, before the first one trains.

    >>> found = reproduce("references", profile="smoke", train=False)
    >>> [table.title for table in found.tables]
    ['Policies at equal budget, digits, K=12, alpha=0.1 (smoke profile)']
    """
    chosen, wanted = study(profile, protocol, start, precision, partitions), artefacts(name)
    book = Workbook(chosen, places.scan(), only or "*")
    configs, outcomes, folder = book.configs(wanted, seeds), list[RunOutcome](), None if out is None else Path(out)
    if only is not None and not configs:
        raise InputError(_no_run_matches(only, name, Workbook(chosen, book.results).configs(wanted, 1)))
    if train:
        able, outcomes = split_by_data([places.with_data_folder(config) for config in book.missing(configs)], tell)
        places.prepare(folder)
        outcomes += Training(places, name == TIMED, watch, tell, on_start).of(able, book.results, minutes)
        keep_all(configs, book.results, places)
    done = Reproduction(book, wanted, configs, outcomes)
    if folder is not None and not done.is_fruitless:
        done.write(folder, tell)
    return done


@dataclass(frozen=True)
class Training:
    """How runs are made: where, whether each generates all its images, and who is notified."""

    places: Places
    timed: bool
    watch: Watch
    tell: Callable[[str], None]
    on_start: OnStart | None = None

    def of(self, configs: Sequence[RunConfig], results: Results, minutes: float | None) -> list[RunOutcome]:
        """Make these runs one after the other; add finished ones to the results and keep them at once."""
        deadline, outcomes = None if minutes is None else Deadline(minutes), list[RunOutcome]()
        ahead = self._forecast_of(configs)
        for outcome in carry_out(configs, lambda config: self._run(config, deadline, ahead), deadline):
            outcomes.append(outcome)
            self.tell(f"{len(outcomes)} of {len(configs)}  {describe_outcome(outcome)}")
            if outcome.run is not None and outcome.run.finished:
                results.add(outcome.run)
                keep_all([outcome.config], results, self.places)
        return outcomes

    def _forecast_of(self, configs: Sequence[RunConfig]) -> OnStart:
        """Passes the forecast of the first run on, as that of all runs; later ones are not passed on."""
        untold = [configs]

        def once(first: Forecast) -> None:
            if untold and self.on_start is not None:
                self.on_start(forecast_of_all(first, untold.pop()))

        return once

    def _run(self, config: RunConfig, deadline: Deadline | None, ahead: OnStart) -> Run:
        from fedeas.fast import backend_for
        from fedeas.federation.run import execute

        store, bank = RunStore(self.places.runs), self.places.bank_of(config, self.timed)
        with self.watch(config) as on_round:
            return execute(config, store, on_round, bank, pause=deadline, on_start=ahead, backend_for=backend_for)


def keep_all(configs: Sequence[RunConfig], found: Results, places: Places) -> None:
    """Copy finished runs, also earlier ones, to the kept results, if `places.keeps`."""
    kept = places.results.resolve()
    for copies in [found.copies(config) for config in configs] if places.keeps else ():
        if copies and not any(kept in run.path.resolve().parents for run in copies):
            keep(copies[0], places.results)


def _no_run_matches(only: str, name: str, configs: Sequence[RunConfig]) -> str:
    """The error for a pattern that matches no run; it shows the labels that are most similar."""
    if not configs:
        return f"{name} needs no runs, so there are none to choose from"
    labels = dict.fromkeys(config.label for config in configs)
    similar = get_close_matches(only.replace("*", ""), labels, cutoff=0)
    known = f"labels look like {listed(similar)}, and * stands for any text"
    return f"no run of {name} has a label that matches {only!r}; {known}"


def _write_tables(name: str, tables: Sequence[Filled], chosen: Study, out: Path) -> None:
    noted = [replace(table, note=f"{table.note} {chosen.says}".strip()) for table in tables]
    for ending, render in WRITERS.items() if noted else ():
        with written_whole(out / f"{name}.{ending}") as part:
            part.write_text(render(*noted))


def _save_samples(chosen: Study, path: Path) -> None:
    """Write a grid of samples of the profile's diffusion model."""
    from fedeas.generators.diffusion.sampling import DiffusionGenerator
    from fedeas.generators.diffusion.weights import Weights
    from fedeas.generators.quality.grid import sample_grid

    weights = Weights.load("digits" if chosen.profile.dataset else "cifar10")
    sample_grid(DiffusionGenerator(weights), weights.class_names, path)
