"""Run ``fedeas reproduce beyond`` with several processes, and pack the results into one small file.

    python benchmarks/beyond.py --processes 16
    python benchmarks/beyond.py --profile fashion --processes 16 --data-root DIR

Seeds come one after the other, for all methods, so that an experiment that is stopped early still has paired seeds.
Started again, it goes on: runs in the packed file are not repeated and stay in it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from fedeas.config import RunConfig
from fedeas.core.deadline import Deadline
from fedeas.core.files import make_folder
from fedeas.paper.artefacts import artefacts
from fedeas.paper.results import Results
from fedeas.paper.studies import PROFILES, PROTOCOLS, study, with_seeds
from fedeas.runs.packed import ENDING, pack, unpack
from fedeas.runs.store import Run, RunStore

RESULTS = Path(__file__).parents[1] / "results" / "beyond"


def configs(profile: str, seeds: int, protocols: Sequence[str] = (), root: str | None = None) -> list[RunConfig]:
    """All runs: by protocol (by default those that the profile has), then by seed."""
    (beyond,) = artefacts("beyond")
    protocols = protocols or (("clean",) if PROFILES[profile].held_out else PROTOCOLS)
    found = [
        run
        for protocol in PROTOCOLS
        if protocol in protocols
        for seed in range(seeds)
        for config in beyond.configs(study(profile, protocol))
        for run in with_seeds(config, seeds)[seed : seed + 1]
    ]
    return [on_one_core(config, root) for config in found]


def on_one_core(config: RunConfig, root: str | None) -> RunConfig:
    """The run on one core, since others run beside it, with data from `root`; so small a model needs no GPU."""
    engine = config.engine.model_copy(update={"device": "cpu", "threads": 1, "processes": 1})
    return config.model_copy(update={"engine": engine, "data": config.data.model_copy(update={"root": root})})


def make_runs(wanted: Sequence[RunConfig], runs: Path, end: float, processes: int) -> None:
    """Make these runs, several at a time, until time is up; one that fails does not stop the others."""
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        working = [pool.submit(work, config, runs, end) for config in wanted]
        for number, done in enumerate(as_completed(working), 1):
            if (error := done.exception()) is not None:
                print(f"failed: {error}", flush=True)
            elif done.result():
                print(f"{number} of {len(wanted)}", flush=True)


def work(config: RunConfig, runs: Path, end: float) -> bool:
    """Make one run, unless time is up; whether it is finished."""
    from fedeas.federation.run import execute

    minutes = (end - time.time()) / 60
    return minutes > 0 and execute(config, RunStore(runs), pause=Deadline(minutes)).finished


def packed_runs(packed: Path) -> list[Run]:
    """The runs of a packed file, which need not exist."""
    return unpack(packed) if packed.exists() else []


def missing(wanted: Sequence[RunConfig], packed: Path) -> list[RunConfig]:
    """The runs that are not in the packed file."""
    there = Results([])
    for run in packed_runs(packed):
        there.add(run)
    return [config for config in wanted if not there.has(config)]


def pack_more(profile: str, runs: Path, packed: Path) -> None:
    """Add the finished runs of this profile to the packed file."""
    found = {run.config.fingerprint: run for run in (*packed_runs(packed), *finished_runs(profile, runs))}
    make_folder(packed.parent)
    pack(found.values(), packed)


def finished_runs(profile: str, runs: Path) -> Iterator[Run]:
    """The profile's runs, with any seed, among the finished runs in a folder."""
    methods = {config.fingerprint for config in configs(profile, seeds=1)}
    return (run for run in RunStore(runs).all() if run.finished and run.config.unpinned.method in methods)


def main() -> None:
    """Make the runs that are missing, then pack all finished ones."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--profile", default="digits")
    asked.add_argument("--seeds", type=int, help="by default as many as the profile plans")
    asked.add_argument("--protocol", nargs="*", default=())
    asked.add_argument("--processes", type=int, default=1)
    asked.add_argument("--minutes", type=float, default=600)
    asked.add_argument("--runs", type=Path, default=Path("runs"))
    asked.add_argument("--data-root")
    asked.add_argument("--results", type=Path, default=RESULTS)
    given = asked.parse_args()
    end, packed = time.time() + 60 * given.minutes, given.results / f"{given.profile}{ENDING}"
    seeds = given.seeds or PROFILES[given.profile].planned_seeds
    wanted = configs(given.profile, seeds, given.protocol, given.data_root)
    make_runs(missing(wanted, packed), given.runs, end, given.processes)
    pack_more(given.profile, given.runs, packed)


if __name__ == "__main__":
    main()
