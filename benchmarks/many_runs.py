"""Make many runs, several at a time: one small run fills neither a CPU nor a GPU.

    python benchmarks/many_runs.py table1 --protocol clean --only 'c10-k100-*' --processes 2 --data-root DIR

makes the runs of ``python -m reproduction table1`` that are not among the results, and keeps them there. The same
command resumes it. Processes share a GPU best through NVIDIA's Multi-Process Service; without it they take turns.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from fnmatch import fnmatch
from pathlib import Path

from fedeas.config import RunConfig
from fedeas.core.deadline import Deadline
from fedeas.core.files import make_folder
from fedeas.runs.store import RunStore
from reproduction.artefacts import artefacts
from reproduction.costs import estimate
from reproduction.reproduction import RESULTS, Places, Reproduction
from reproduction.studies import PROFILES, PROTOCOLS, study


def make_runs(
    wanted: Sequence[RunConfig],
    runs: Path,
    end: float,
    processes: int,
    on_finished: Callable[[RunConfig], None] = lambda config: None,
) -> None:
    """Make these runs, several at a time, until time is up; one that fails does not stop the others."""
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), end_with_parent) as pool:
        working = {pool.submit(work, config, runs, end, processes): config for config in wanted}
        for number, done in enumerate(as_completed(working), 1):
            config = working[done]
            if (error := done.exception()) is not None:
                print(f"{config.label}, seed {config.seed}, failed: {error}", flush=True)
            elif done.result():
                print(f"{number} of {len(wanted)}  {config.label}, seed {config.seed}", flush=True)
                on_finished(config)


def end_with_parent() -> None:
    """Let this process end as soon as the one that started it is killed: it would go on, and keep its GPU memory."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def work(config: RunConfig, runs: Path, end: float, processes: int = 1) -> bool:
    """Make one run, unless time is up or would be before its end; whether it is finished."""
    from fedeas.fast import backend_for
    from fedeas.federation.run import execute

    minutes = (end - time.time()) / 60
    needed = processes * (estimate([config]).minutes or 0.0)  # the others slow it down
    pause = Deadline(minutes)
    return minutes > needed and execute(config, RunStore(runs), pause=pause, backend_for=backend_for).finished


def on_device(config: RunConfig, device: str, root: str | None) -> RunConfig:
    """The run on one core of a CPU, since others run beside it, or on a GPU, with data from `root`."""
    engine = config.engine.model_copy(update={"device": device, "threads": 1, "processes": 1})
    return config.model_copy(update={"engine": engine, "data": config.data.model_copy(update={"root": root})})


def selected(configs: Sequence[RunConfig], patterns: Sequence[str]) -> list[RunConfig]:
    """The runs whose labels match, those of the first pattern first."""
    found = [config for pattern in patterns for config in configs if fnmatch(config.label, pattern)]
    return list({config.fingerprint: config for config in found}.values())


def main() -> None:
    """Make the runs that are missing, and keep those that are finished."""
    given = parser().parse_args()
    places = Places(given.runs, given.results, keeps=True)
    make_folder(given.runs)
    make_folder(given.results)
    chosen = study(given.profile, given.protocol, given.start)
    book = Reproduction(chosen, places.scan(), artefacts(given.name), given.seeds)
    configs = selected(book.configs(), given.only)
    places.keep(configs, book.results)  # an earlier start may have been killed before it kept them
    wanted = [on_device(config, given.device, given.data_root) for config in configs if not book.results.has(config)]
    print(f"{len(wanted)} runs{_time_for(wanted)}", flush=True)
    end = time.time() + 60 * given.minutes
    make_runs(wanted, given.runs, end, given.processes, lambda config: places.keep([config], places.scan()))


def _time_for(configs: Sequence[RunConfig]) -> str:
    """How long they take, if that is known."""
    minutes = estimate(configs).minutes
    return "" if minutes is None else f", about {minutes:.0f} minutes one after the other"


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("name", help="what `python -m reproduction` calls it")
    asked.add_argument("--profile", default="full", choices=list(PROFILES))
    asked.add_argument("--protocol", default="clean", choices=list(PROTOCOLS))
    asked.add_argument("--start", help="such as imagenet, whose file is then in a folder of $FEDEAS_WEIGHTS")
    asked.add_argument("--seeds", type=int, default=1)
    asked.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN", help="labels of runs, most urgent first")
    asked.add_argument("--device", default="auto")
    asked.add_argument("--processes", type=int, default=1)
    asked.add_argument("--minutes", type=float, default=600)
    asked.add_argument("--runs", type=Path, default=Path("runs"))
    asked.add_argument("--results", type=Path, default=RESULTS)
    asked.add_argument("--data-root")
    return asked


if __name__ == "__main__":
    main()
