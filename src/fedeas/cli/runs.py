"""``fedeas run``, ``runs``, ``report`` and ``demo``: federated training and its results."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

import fedeas.runs
from fedeas.cli.display import run_record, runs_tables, states_table
from fedeas.cli.fitting import output
from fedeas.cli.progress import announce, duration, live_bar
from fedeas.config import RunConfig, load_config
from fedeas.core.deadline import Deadline
from fedeas.core.errors import FedEASError, InputError, StoppedError
from fedeas.core.extras import extra_for
from fedeas.core.foreign_text import printable
from fedeas.core.inputs import is_there
from fedeas.runs.progress import seconds_left
from fedeas.runs.store import PACKED_RUNS, Record, Run, RunStore, read_run, sound_runs
from fedeas.runs.tracking.base import Follower, Tracker, parse_tracker

if TYPE_CHECKING:
    from fedeas.federation.forecast import Forecast

Folder = Annotated[Path, typer.Option("--runs", help="Folder of run directories.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print as JSON.")]
Reference = Annotated[
    str | None, typer.Option(help="Label or name of the method that the others are compared with.", show_default=False)
]
NONE_CAN_BE_SHOWN = "none of these runs can be shown; the reasons are above"
RUNS = Path("runs")
SECONDS_PER_LINE = 60.0  # within a round, without a terminal
SECONDS_TO_END = 5.0  # for an interrupted simulation
Trackers = Sequence[Callable[[], Tracker]]


def run(
    config: Annotated[
        Path | None,
        typer.Argument(help="TOML file, or a name such as digits; without one, the defaults.", show_default=False),
    ] = None,
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, such as train.lr=0.05.")] = None,
    data_root: Annotated[Path | None, typer.Option(help="Folder with the datasets' Parquet files.")] = None,
    engine: Annotated[str | None, typer.Option(help="fast, local, lanes, fused or flower, as engine.name.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds, starting with the config's.")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the resolved config and stop.")] = False,
    track: Annotated[
        list[str] | None,
        typer.Option(help="Also log to tensorboard, mlflow or wandb; NAME:PLACE says where. May be repeated."),
    ] = None,
    bank: Annotated[Path | None, typer.Option(help="Folder of synthetic images; RUNS/.bank by default.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0.1, help="Pause then; the same command resumes.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no rounds, only the result.")] = False,
    as_json: AsJson = False,
    folder: Folder = RUNS,
) -> None:
    """Train a federation; a finished run is only shown, an interrupted one is resumed."""
    from fedeas.federation.model_choice import for_this_machine

    named = [] if engine is None else [f"engine.name={engine}"]
    store = RunStore(folder)
    given = read_config(config, [*(overrides or []), *named], None if data_root is None else str(data_root))
    chosen = for_this_machine(given, store)
    if dry_run:
        _print_resolved(chosen)
        return
    trackers = [parse_tracker(each) for each in track or ()]
    configs = [chosen.model_copy(update={"seed": chosen.seed + i}) for i in range(seeds)]
    pause = None if minutes is None else Deadline(minutes)
    done = []
    for each in configs:
        done.append(_execute(each, store, trackers, bank, pause, quiet or as_json, _note_on_model(given, chosen)))
        if not done[-1].finished:
            break
    if as_json:
        _print_records(done)
    else:
        output().print(runs_tables(done))


def runs(folder: Folder = RUNS, reference: Reference = None, as_json: AsJson = False) -> None:
    """List the runs of a folder, or of a Parquet file, with their state; compare those that are finished."""
    store = RunStore(folder)
    is_packed = folder.suffix == PACKED_RUNS
    if not is_packed and not store.folders():
        raise InputError(f"{folder}: no run directories; make one with `fedeas run`")
    found = [*fedeas.runs.read_runs(folder)] if is_packed else store.all()
    if not found:
        raise InputError(NONE_CAN_BE_SHOWN)
    if as_json:
        _print_records(found)
    else:
        output().print(states_table(found), runs_tables([run for run in found if run.finished], reference))


def _print_records(runs: Sequence[Run]) -> None:
    print(json.dumps([run_record(run) for run in runs], indent=1))


def report(
    directories: Annotated[list[Path], typer.Argument(help="Run directories, or Parquet files of runs.")],
    out: Annotated[Path, typer.Option(help="The HTML file.")] = Path("report.html"),
    reference: Reference = None,
) -> None:
    """Write one self-contained HTML page about some runs."""
    from fedeas.views.report import write_report
    from fedeas.views.report.methods import read_snapshot

    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{out}: a report is an HTML page; use a name that ends in .html")
    found = [run for place in directories if place.suffix == PACKED_RUNS for run in fedeas.runs.read_runs(place)]
    folders = [place for place in directories if place.suffix != PACKED_RUNS]
    found += map(read_run, folders) if len(directories) == 1 else sound_runs(folders, read_snapshot)
    if not found:
        raise InputError(NONE_CAN_BE_SHOWN)
    write_report(found, out, reference=reference)
    print(out)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the runs and the report.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each policy.")] = 5,
) -> None:
    """Compare five policies on scikit-learn's digits over five seeds."""
    from fedeas.cli.demo import REFERENCE, conclude, run_demo
    from fedeas.views.report import write_report

    console = output()
    finished = run_demo(RunStore(out / "runs"), seeds, console, lambda left: announce(left, "left for the other runs"))
    write_report(finished, out / "report.html", "FedEAS on digits")
    console.print(runs_tables(finished, REFERENCE))
    console.print(conclude(finished), markup=False, highlight=False)
    print(f"report: {out / 'report.html'}")


def read_config(path: Path | None, overrides: list[str], data_root: str | None) -> RunConfig:
    """The config of a run. ``fedeas run train.lr=0.05`` has no file: the first argument is an override."""
    if path is not None and "=" in path.name and not is_there(path):
        overrides, path = [str(path), *overrides], None
    if data_root is not None:
        overrides = [*overrides, f"data.root={json.dumps(data_root)}"]
    return load_config(path, overrides)


def _note_on_model(given: RunConfig, chosen: RunConfig) -> str:
    """What to say of a network that was chosen for this machine; digits have the same one everywhere."""
    if chosen.model.name == given.model.name or given.data.dataset == "digits":
        return ""
    return f"no GPU: model.name is {chosen.model.name}; set model.name=resnet18 for the larger network"


def say_how_long(ahead: Forecast) -> None:
    """Say how long a run will take, if that is more than a minute."""
    images = f"; {ahead.images:,} synthetic images come on top" if ahead.images else ""
    about = "at most about" if ahead.is_bound else "about"
    announce(ahead.seconds, f"of training for {ahead.rounds:,} rounds on this machine{images}", about)


def _print_resolved(config: RunConfig) -> None:
    """Print the config with the digests of its content and its directory; without them if data are missing."""
    from fedeas.federation.identity import pinned
    from fedeas.federation.split import load_data, split_data

    known, directory = config, None
    try:
        dataset = load_data(config)
    except FedEASError as error:
        _say_unknown(error)
    else:
        data = split_data(config, dataset)  # raises if the config does not suit the data
        try:
            known = pinned(config, data)
            directory = known.directory
        except FedEASError as error:  # weights are missing
            _say_unknown(error)
    print(json.dumps({**known.model_dump(mode="json"), "directory": directory}, indent=1))


def _say_unknown(error: FedEASError) -> None:
    print(f"the content is not known: {printable(error)}", file=sys.stderr)


def _execute(
    config: RunConfig,
    store: RunStore,
    trackers: Trackers,
    bank: Path | None,
    pause: Deadline | None,
    quiet: bool,
    note: str,
) -> Run:
    from fedeas.fast import backend_for
    from fedeas.federation.run import execute

    last = 0

    def on_start(ahead: Forecast) -> None:
        if note:
            print(note, file=sys.stderr)
        say_how_long(ahead)

    with progress(config, quiet) as show, _followed(store, config, trackers) as log:

        def on_round(record: Record) -> None:
            nonlocal last
            last = record["round"]
            show(record)
            log(record)

        try:
            if config.engine.name == "flower":
                run = _simulate(config, store, on_round, pause)
            else:
                start = None if quiet else on_start
                run = execute(
                    config, store, on_round, bank, pause=pause, on_start=start, on_client=show.on_client,
                    backend_for=backend_for,
                )  # fmt: skip
        except KeyboardInterrupt:
            when = f"after round {last:,} of {config.rounds.total:,}" if last else "before a new round was done"
            raise StoppedError(f"{config.label}: stopped {when}; the same command resumes it") from None
    if not quiet:
        note = ": was finished before, only shown; remove this folder to train again"
        print(f"{run.path}{note if run.finished and not last else ''}", file=sys.stderr)
    return run


def _simulate(config: RunConfig, store: RunStore, on_round: Any, pause: Deadline | None) -> Run:
    if pause is not None:
        raise InputError("--minutes does not go with engine flower, whose nodes keep their own state")
    with extra_for("engine flower", "flower"):
        from fedeas.flower.app import simulate
    try:
        return simulate(config, store, on_round)
    except (KeyboardInterrupt, SystemExit):  # Ray makes SystemExit of SIGTERM
        _end_soon()
        raise KeyboardInterrupt from None


def _end_soon() -> None:
    """End this process after a few seconds, if it has not ended by then.

    Threads of Flower may wait forever for clients that Ray has ended. The server's part has stopped, and its files are
    whole.
    """
    last = threading.Timer(SECONDS_TO_END, os._exit, (StoppedError.exit_code,))
    last.daemon = True
    last.start()


@contextmanager
def progress(config: RunConfig, quiet: bool = False) -> Iterator[Any]:
    """Show each round, and clients within long ones: a live line in a terminal, plain lines elsewhere."""
    console = Console()
    if not (quiet or console.is_terminal):
        yield PlainLines(config.label, config.seed, config.rounds.total)
        return
    with live_bar(console, disable=quiet) as bar:
        yield RoundBar(bar, f"{config.label}, seed {config.seed}", config.rounds.total)


def _new_images(record: Record) -> int:
    """How many images were made in a round; one image of a pool serves many clients."""
    return int(record.get("images", {"made": record.get("generated", 0)})["made"])


class RoundBar:
    """A live line: clients of the current round, new images so far, accuracy, a bar of rounds, and the time left."""

    def __init__(self, bar: Progress, name: str, total: int) -> None:
        self.bar, self.name = bar, name
        self.task = bar.add_task(name, total=total)
        self.round = self.images = 0
        self.accuracy = ""

    def __call__(self, record: Record) -> None:
        """A round has ended."""
        self.round = record["round"]
        self.images += _new_images(record)
        if "accuracy" in record:
            self.accuracy = f"  accuracy {record['accuracy']:.1%}"
        self._show(f"{len(record['clients'])} clients", 0.0)

    def on_client(self, done: int, of: int) -> None:
        """A client of the current round is done."""
        self._show(f"{done} of {of} clients", done / of)

    def _show(self, clients: str, share: float) -> None:
        synthetic = f"  {self.images:,} new images" if self.images else ""
        text = f"{self.name}  {clients}{synthetic}{self.accuracy}"
        self.bar.update(self.task, completed=self.round + share, description=text)


class PlainLines:
    """Print a line for each round, for log files: accuracy, loss, new images, seconds, and the time left.

    The time left is that of the remaining rounds at the mean pace so far, without the time for images. Within a round
    that takes minutes, there is a line every minute.
    """

    def __init__(self, label: str, seed: int, total: int) -> None:
        self.name, self.total = f"{label} seed {seed}", total
        self.records: list[Record] = []
        self.last = time.monotonic()

    def __call__(self, record: Record) -> None:
        """Print the line of a round."""
        spent = sum(record["seconds"].values())
        self.records.append(record)
        left = seconds_left(self.records, self.total) or 0.0
        tested = f"accuracy {record['accuracy']:.2%}, " if "accuracy" in record else ""
        images = f"{made:,} new images, " if (made := _new_images(record)) else ""
        loss = f"loss {record['train_loss']:.4f}, " if "train_loss" in record else ""
        self._print(record["round"], f"{tested}{loss}{images}{spent:.1f} s, {duration(left)} left")

    def on_client(self, done: int, of: int) -> None:
        """Print a line if the last one is a minute ago."""
        if done < of and time.monotonic() - self.last >= SECONDS_PER_LINE:
            # A resumed run does not know its round before the first one ends.
            number = self.records[-1]["round"] + 1 if self.records else None
            self._print(number, f"{done} of {of} clients")

    def _print(self, number: int | None, text: str) -> None:
        self.last = time.monotonic()
        where = f", round {number:,} of {self.total:,}" if number is not None else ""
        print(f"{printable(self.name)}{where}: {text}", flush=True)


@contextmanager
def _followed(store: RunStore, config: RunConfig, trackers: Trackers) -> Iterator[Callable[[Record], None]]:
    """Pass the rounds to the trackers, and at the end the images that the run trained on."""
    if not trackers:
        yield lambda record: None
        return
    from fedeas.federation.run import identified
    from fedeas.views.report.samples import sample_grid

    run = store.at(identified(config))
    with Follower.of(run, trackers) as follower:
        yield follower
        if run.finished and (grid := sample_grid(run)) is not None:
            follower.show("samples", grid)
