"""``fedeas run``, ``pretrain``, ``runs`` and ``report``: training and its results."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import fedeas.runs
from fedeas.calls.running import run_here
from fedeas.cli.display import output, runs_tables, states_table
from fedeas.cli.options import (
    RUNS,
    AsJson,
    Config,
    DataRoot,
    Device,
    Folder,
    Minutes,
    Overrides,
    Strict,
    print_json,
    read_config,
)
from fedeas.cli.progress import progress, say_how_long
from fedeas.config.run import RunConfig
from fedeas.core.deadline import Deadline
from fedeas.core.errors import FedEASError, InputError, StoppedError, extra_for
from fedeas.core.foreign_text import printable
from fedeas.runs.store import PACKED_RUNS, Record, Run, RunStore, read_run, sound_runs
from fedeas.runs.tracking.base import Follower, Tracker, parse_tracker

if TYPE_CHECKING:
    from fedeas.federation.run import Forecast

Reference = Annotated[
    str | None, typer.Option(help="Label or name of the method that the others are compared with.", show_default=False)
]
NONE_CAN_BE_SHOWN = "none of these runs can be shown; the reasons are above"
SECONDS_TO_END = 5.0  # for an interrupted simulation
Trackers = Sequence[Callable[[], Tracker]]


def run(
    config: Config = None,
    overrides: Overrides = None,
    data_root: DataRoot = None,
    engine: Annotated[str | None, typer.Option(help="fast, local, lanes, fused or flower, as engine.name.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds, starting with the config's.")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the resolved config and stop.")] = False,
    track: Annotated[
        list[str] | None,
        typer.Option(help="Also log to tensorboard, mlflow or wandb; NAME:PLACE says where. May be repeated."),
    ] = None,
    bank: Annotated[Path | None, typer.Option(help="Folder of synthetic images; RUNS/.bank by default.")] = None,
    minutes: Minutes = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no rounds, only the result.")] = False,
    strict: Strict = False,
    as_json: AsJson = False,
    folder: Folder = RUNS,
) -> None:
    """Train a federation; the same command resumes it.

    A finished run is not trained again, only shown.
    """
    from fedeas.federation.parts import refuse_unknown_ancestors
    from fedeas.federation.run import for_this_machine

    store, named = RunStore(folder), [] if engine is None else [f"engine.name={engine}"]
    given = read_config(config, [*(overrides or []), *named], data_root)
    chosen = for_this_machine(given, store)
    if dry_run:
        _print_resolved(chosen)
        return
    if strict:
        refuse_unknown_ancestors(chosen)
    trackers = [parse_tracker(each) for each in track or ()]
    pause = None if minutes is None else Deadline(minutes)
    note = ""
    if chosen.model.name != given.model.name and given.data.dataset != "digits":  # digits have one network everywhere
        note = f"no GPU: model.name is {chosen.model.name}; set model.name=resnet18 for the larger network"
    done: list[Run] = []
    for seed in range(chosen.seed, chosen.seed + seeds):
        each = chosen.model_copy(update={"seed": seed})
        done.append(_execute(each, store, trackers, bank, pause, quiet or as_json, note))
        if not done[-1].finished:
            break
    if as_json:
        _print_records(done)
    else:
        output().print(runs_tables(done))


def pretrain(
    dataset: Annotated[
        str, typer.Argument(help="cifar100, cifar10, fashion-mnist, digits, hub:, folder:, npz:.")
    ] = "cifar100",
    out: Annotated[
        Path | None, typer.Option(help="The file; weights/DATASET-pretrained.safetensors or -imagenet-stem by default.")
    ] = None,
    stem: Annotated[
        Literal["3x3", "imagenet"], typer.Option(help="First layers of a ResNet: for small images, or as for ImageNet.")
    ] = "3x3",
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training part.")] = 30,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first weights and the order of batches.")] = 0,
    device: Device = "auto",
    data_root: DataRoot = None,
    minutes: Minutes = None,
    folder: Folder = RUNS,
) -> None:
    """Train a classifier centrally, for model.weights.

    The same command resumes an interrupted training.
    """
    from fedeas.fast import backend_for
    from fedeas.federation import pretraining

    root = None if data_root is None else str(data_root)
    config = pretraining.pretraining_config(dataset, epochs, seed, device, root, stem)
    path = out or pretraining.default_file(dataset, stem)
    there, pause = path.exists(), None if minutes is None else Deadline(minutes)
    with progress(config) as show:
        about = pretraining.pretrain(config, path, RunStore(folder), show, pause, say_how_long, backend_for)
    if about is None:
        print("paused; the same command resumes")
        return
    reached = f"test accuracy {about['accuracy']:.2%} after {about['epochs']} epochs on {about['dataset']}"
    print(f"{path}{' exists already' if there else ''}: {reached}, run {about['run'][:8]}")


def runs(folder: Folder = RUNS, reference: Reference = None, as_json: AsJson = False) -> None:
    """List runs with their state, and compare finished ones."""
    if folder.suffix != PACKED_RUNS and not RunStore(folder).folders():
        raise InputError(f"{folder}: no run directories; make one with `fedeas run`")
    found = [*fedeas.runs.read_runs(folder)] if folder.suffix == PACKED_RUNS else RunStore(folder).all()
    if not found:
        raise InputError(NONE_CAN_BE_SHOWN)
    if as_json:
        _print_records(found)
    else:
        output().print(states_table(found), runs_tables([run for run in found if run.finished], reference))


def _print_records(runs: Sequence[Run]) -> None:
    """Print where each run is, what it trains, how far it is, and the measures if it is finished."""
    records = []
    for run in runs:
        now, names = run.progress(), ("label", "policy", "generator", "algorithm", "seed")
        records.append({
            "path": str(run.path),
            **{name: getattr(run.config, name) for name in names},
            **asdict(now),
            "verified": not run.unverified,
            "changed": now.changed.isoformat(timespec="seconds"),
            "summary": run.summary() if run.finished else None,
        })  # fmt: skip
    print_json(records)


def report(
    directories: Annotated[list[Path], typer.Argument(help="Run directories, or Parquet files of runs.")],
    out: Annotated[Path, typer.Option(help="The HTML file.")] = Path("report.html"),
    reference: Reference = None,
) -> None:
    """Write one HTML page about some runs."""
    from fedeas.views.methods import read_snapshot
    from fedeas.views.report import report as write_report

    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{out}: a report is an HTML page; use a name that ends in .html")
    found = [run for place in directories if place.suffix == PACKED_RUNS for run in fedeas.runs.read_runs(place)]
    folders = [place for place in directories if place.suffix != PACKED_RUNS]
    found += map(read_run, folders) if len(directories) == 1 else sound_runs(folders, read_snapshot)
    if not found:
        raise InputError(NONE_CAN_BE_SHOWN)
    write_report(found, out, reference=reference)
    print(out)


def _print_resolved(config: RunConfig) -> None:
    """Print the config with the digests of its content and its directory; without them if data are missing."""
    from fedeas.federation.parts import pinned
    from fedeas.federation.split import load_data, split_data

    known, directory = config, None
    missing: FedEASError | None = None
    try:
        dataset = load_data(config)
    except FedEASError as error:
        missing = error
    else:
        data = split_data(config, dataset)  # raises if the config does not suit the data
        try:
            known = pinned(config, data)
            directory = known.directory
        except FedEASError as error:  # weights are missing
            missing = error
    if missing is not None:
        print(f"the content is not known: {printable(missing)}", file=sys.stderr)
    print_json({**known.model_dump(mode="json"), "directory": directory})


def _execute(
    config: RunConfig,
    store: RunStore,
    trackers: Trackers,
    bank: Path | None,
    pause: Deadline | None,
    quiet: bool,
    note: str,
) -> Run:
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
                told = {"on_client": show.on_client, "on_stage": show.on_stage}
                start = None if quiet else on_start
                run = run_here(config, store, on_round, bank, pause=pause, on_start=start, **told)
        except KeyboardInterrupt:
            when = f"after round {last:,} of {config.rounds.total:,}" if last else "before a new round was done"
            raise StoppedError(f"{config.label}: stopped {when}; the same command resumes it") from None
    if not quiet:
        note = f": was finished before{run.unverified}, only shown; remove this folder to train again"
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
        # Threads of Flower may wait forever for clients that Ray has ended: end this process after a few seconds, if it
        # has not ended by then. The server's part has stopped, and its files are whole.
        last = threading.Timer(SECONDS_TO_END, os._exit, (StoppedError.exit_code,))
        last.daemon = True
        last.start()
        raise KeyboardInterrupt from None


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
