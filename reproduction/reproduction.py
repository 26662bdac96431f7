"""Reproduce tables and figures of the paper: make the runs that are missing, then fill and write the tables."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import fedeas
from fedeas import FedEASError, InputError
from fedeas.config import RunConfig
from fedeas.runs import Run, pack_runs
from reproduction.artefacts import Artefact
from reproduction.costs import Estimate, estimate, seconds_of_all, steps_of_a_round
from reproduction.results import Results
from reproduction.studies import Study, with_seeds
from reproduction.tables import Filled, Sheet, fill
from reproduction.text import listed

log = logging.getLogger(__name__)
Watch = Callable[[RunConfig], AbstractContextManager[Callable[[dict[str, Any]], None]]]
Tell = Callable[[str], None]

RUNS, RESULTS = Path("runs"), Path(__file__).parent / "results"
TIMED = "wall-clock"  # the artefact whose runs must not share images
STATEFUL = ("scaffold", "moon")  # checkpoints hold large client states, so a run should resume on the same machine
LEAST_SECONDS = 60.0  # with less time left, no further run is started, unless the one before took less than half of it


@dataclass(frozen=True)
class Places:
    """Folders of a reproduction."""

    runs: Path = RUNS  # run directories, finished or not
    results: Path = RESULTS  # kept results, read in addition to the runs
    data: Path | None = None  # the datasets' Parquet files
    bank: Path | None = None  # synthetic images; by default one bank in `runs` that all runs share
    keeps: bool = False  # whether finished runs are copied into `results`

    def scan(self) -> Results:
        """Read the runs that are finished now."""
        return Results([self.runs, self.results])

    def keep(self, configs: Sequence[RunConfig], found: Results) -> None:
        """Copy finished runs, also earlier ones, to the kept results, if `keeps`."""
        kept = self.results.resolve()
        for copies in [found.copies(config) for config in configs] if self.keeps else ():
            if copies and not any(kept in run.path.resolve().parents for run in copies):
                pack_runs(copies[:1], self.results / f"{copies[0].path.name}.parquet")


class RunOutcome(NamedTuple):
    """The result of a run: finished, paused, or failed with a problem."""

    config: RunConfig
    run: Run | None
    problem: str = ""


@dataclass
class Reproduction:
    """Artefacts of a study with the finished runs that fill them, and the outcomes of the runs that were started."""

    study: Study
    results: Results
    artefacts: Sequence[Artefact] = ()
    seeds: int = 1  # of each run
    only: str = "*"  # pattern of labels, as of file names; runs with other labels are not needed
    outcomes: list[RunOutcome] = field(default_factory=list)
    _filled: dict[str, Filled] = field(default_factory=dict)  # a table does not change once it has been requested

    def table(self, sheet: Sheet) -> Filled:
        """One table, filled."""
        if sheet.title not in self._filled:
            self._filled[sheet.title] = fill(sheet, self.results)
        return self._filled[sheet.title]

    def tables(self, artefacts: Sequence[Artefact] = ()) -> list[Filled]:
        """The filled tables of these artefacts, by default of all; a table that several share comes once."""
        sheets = {sheet.title: sheet for each in artefacts or self.artefacts for sheet in each.sheets(self.study)}
        return [self.table(sheet) for sheet in sheets.values()]

    def configs(self, artefacts: Sequence[Artefact] = ()) -> list[RunConfig]:
        """The runs that these artefacts need, by default all, each once."""
        chosen = [run for each in artefacts or self.artefacts for run in each.configs(self.study)]
        needed = [run for each in chosen if fnmatchcase(each.label, self.only) for run in with_seeds(each, self.seeds)]
        return list({config.fingerprint: config for config in needed}.values())

    def missing(self, artefacts: Sequence[Artefact] = ()) -> list[RunConfig]:
        """Those of them that are not finished."""
        return [config for config in self.configs(artefacts) if not self.results.has(config)]

    def check_pattern(self) -> None:
        """Refuse a pattern that matches no run, and show the labels that are most similar."""
        if self.only == "*" or self.configs():
            return
        labels = dict.fromkeys(config.label for config in replace(self, only="*").configs())
        if not labels:
            raise InputError(f"{listed([each.name for each in self.artefacts])} needs no runs to choose from")
        similar = listed(get_close_matches(self.only.replace("*", ""), labels, cutoff=0))
        raise InputError(f"no label matches {self.only!r}; labels look like {similar}, and * stands for any text")

    def estimates(self) -> list[tuple[str, int, Estimate]]:
        """For each artefact its number of runs and the cost of the missing ones; for several also the sum."""
        groups = [(each.name, [each]) for each in self.artefacts]
        groups += [("all, each run counted once", list(self.artefacts))] if len(groups) > 1 else []
        return [(name, len(self.configs(group)), estimate(self.missing(group))) for name, group in groups]

    def train(
        self, places: Places, minutes: float | None = None, watch: Watch | None = None, tell: Tell = log.info
    ) -> None:
        """Make the missing runs; `watch` is told of each and of its rounds, `tell` gets lines of text."""
        data = {"root": None if places.data is None else str(places.data)}
        missing = [run.model_copy(update={"data": run.data.model_copy(update=data)}) for run in self.missing()]
        configs, self.outcomes = split_by_data(missing, tell)
        if places.runs.exists() and not places.runs.is_dir():
            raise InputError(f"{places.runs}: not a folder; runs need one")
        if places.keeps:
            made_folder(places.results)
        timed = places.bank is None and TIMED in [each.name for each in self.artefacts] and len(self.artefacts) == 1

        def tell_how_long(first: Any) -> None:
            seconds = seconds_of_all(first.seconds / max(1, first.rounds) / steps_of_a_round(configs[0]), configs)
            about = "at most" if first.is_bound else "at least"  # on a CPU only training steps are counted
            if seconds >= LEAST_SECONDS:
                images = f"{estimate(configs).images:,} synthetic images come on top"
                tell(f"{about} about {seconds / 60:,.0f} minutes of training on this machine; {images}")

        def execute(config: RunConfig, left: float | None) -> Run:
            # A run that is timed has its own bank, so that it generates all its images.
            bank = places.runs / ".banks" / config.directory if timed else places.bank
            ahead = tell_how_long if config is configs[0] else None
            with watch(config) if watch else nullcontext() as on_round:
                return fedeas.run(config, runs=places.runs, bank=bank, minutes=left, on_round=on_round, on_start=ahead)

        for number, outcome in enumerate(carry_out(configs, execute, minutes), 1):
            self.outcomes.append(outcome)
            config, run, result = outcome
            if run is not None and run.finished:
                result = f"accuracy {run.summary()['accuracy']:.2%}"
                self.results.add(run)
                places.keep([config], self.results)
            elif run is not None:
                result = f"paused after round {len(run.rounds())}"
            tell(f"{number} of {len(configs)}  {config.label}, seed {config.seed}: {result}")
        places.keep(self.configs(), self.results)


def made_folder(path: Path) -> Path:
    """The folder, created if it is not there yet."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be created ({error.strerror})") from None
    return path


def split_by_data(configs: Sequence[RunConfig], tell: Tell) -> tuple[list[RunConfig], list[RunOutcome]]:
    """The runs whose data exist, and an outcome for each other run; raise an error that concerns all runs."""
    import torch

    problems: dict[str, str] = {}
    for config in {config.data.dataset: config for config in configs}.values():
        if config.engine.precision != "fp32" and not torch.cuda.is_available():
            raise InputError(
                f"precision {config.engine.precision} needs a GPU; without one, --show shows what has been run, and a "
                "CPU can run --profile digits or smoke, or --precision fp32, which takes days"
            )
        try:
            fedeas.partition(config)
        except FedEASError as error:
            problems[config.data.dataset] = str(error)
    for name, problem in problems.items():
        tell(f"{sum(config.data.dataset == name for config in configs)} runs on {name} are left out: {problem}")
    able = [config for config in configs if config.data.dataset not in problems]
    return able, [RunOutcome(c, None, problems[c.data.dataset]) for c in configs if c.data.dataset in problems]


def carry_out(
    configs: Iterable[RunConfig],
    execute: Callable[[RunConfig, float | None], Run],
    minutes: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[RunOutcome]:
    """Make each run in turn, until one pauses or time is up; `execute` gets the minutes that are left.

    A run that fails does not stop the others; but if the first is refused, its error probably concerns all.
    """
    needed, start = 0.0, clock()
    for number, config in enumerate(configs):
        left = None if minutes is None else 60 * minutes - (clock() - start)
        if left is not None and left < needed:
            return
        run = None
        try:
            run = execute(config, None if left is None else left / 60)
            if run.finished:
                run.summary()  # raises if it is damaged
        except FedEASError as error:
            if number == 0 and run is None and isinstance(error, InputError):
                raise
            yield RunOutcome(config, None, str(error))
            continue
        yield RunOutcome(config, run)
        if not run.finished:
            return
        if minutes is not None and left is not None:
            needed = min(LEAST_SECONDS, 2 * (left - (60 * minutes - (clock() - start))))
