"""Run ``python -m reproduction beyond`` with several processes, and pack the results into one Parquet file.

    python benchmarks/beyond.py --processes 16
    python benchmarks/beyond.py --profile fashion --device cuda --processes 8 --data-root DIR
    python benchmarks/beyond.py --profile full --device cuda --processes 4 --data-root DIR --only '*-k20-*' '*'
    python benchmarks/beyond.py --profile full --merge RUNS more.parquet

The third line makes the runs whose labels match a pattern, in the order of the patterns. The last line only adds runs
that were made elsewhere, from folders of run directories or from Parquet files.

Seeds come one after the other, for all methods, so that an experiment that is stopped early still has paired seeds.
The same command continues: runs in the Parquet file are not repeated and stay in it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from many_runs import make_runs, on_device, selected

from fedeas.config import RunConfig
from fedeas.core.files import make_folder
from reproduction.artefacts import artefacts
from reproduction.pack import add, finished_runs
from reproduction.results import Results
from reproduction.studies import PROFILES, PROTOCOLS, beyond_study, with_seeds

RESULTS = Path(__file__).parents[1] / "reproduction" / "results" / "beyond"
NAMES = {"full": "cifar10"}
"""Names of packed files that are not their profile's."""


def configs(
    profile: str, seeds: int, protocols: Sequence[str] = (), root: str | None = None, device: str = "cpu"
) -> list[RunConfig]:
    """All runs: by protocol (by default those that the profile has), then by seed."""
    (beyond,) = artefacts("beyond")
    protocols = protocols or (("clean",) if PROFILES[profile].held_out else PROTOCOLS)
    found = [
        run
        for protocol in PROTOCOLS
        if protocol in protocols
        for seed in range(seeds)
        for config in beyond.configs(beyond_study(profile, protocol))
        for run in with_seeds(config, seeds)[seed : seed + 1]
    ]
    return [on_device(config, device, root) for config in found]


def missing(wanted: Sequence[RunConfig], packed: Path, *folders: Path) -> list[RunConfig]:
    """The runs that are neither in the packed file nor in these folders."""
    there = Results([*folders, *([packed] if packed.exists() else [])])
    return [config for config in wanted if not there.has(config)]


def pack_more(profile: str, places: Sequence[Path], packed: Path) -> None:
    """Add the profile's finished runs in these folders and packed files, without their rounds."""
    found, methods = finished_runs(*places), methods_of(profile)
    ours = [run for run in found if run.method in methods]
    print(f"{add(ours, packed, with_rounds=False)}; {len(found) - len(ours)} of other experiments left out")


def methods_of(profile: str) -> set[str]:
    """The fingerprints of the profile's methods, the same for all seeds."""
    return {config.fingerprint for config in configs(profile, seeds=1)}


def main() -> None:
    """Make the runs that are missing, or take those that are given, and pack all finished ones."""
    asked = parser()
    given = asked.parse_args()
    packed = given.results / f"{NAMES.get(given.profile, given.profile)}.parquet"
    if not given.merge and PROFILES[given.profile].precision == "bf16" and given.device == "cpu":
        asked.error(f"profile {given.profile} needs a GPU: use --device cuda, or --merge runs that were made on one")
    if not given.merge:
        end, seeds = time.time() + 60 * given.minutes, given.seeds or PROFILES[given.profile].planned_seeds
        wanted = selected(configs(given.profile, seeds, given.protocol, given.data_root, given.device), given.only)
        make_folder(given.runs)
        make_runs(missing(wanted, packed, RESULTS.parent), given.runs, end, given.processes)
    pack_more(given.profile, given.merge or [given.runs], packed)


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--profile", default="digits", choices=list(PROFILES))
    asked.add_argument("--seeds", type=int, help="by default as many as the profile plans")
    asked.add_argument("--protocol", nargs="*", default=())
    asked.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN", help="labels of runs, most urgent first")
    asked.add_argument("--device", default="cpu", help="cpu, with one core for each run, or cuda")
    asked.add_argument("--processes", type=int, default=1)
    asked.add_argument("--minutes", type=float, default=600)
    asked.add_argument("--runs", type=Path, default=Path("runs"))
    asked.add_argument("--data-root")
    asked.add_argument("--results", type=Path, default=RESULTS)
    asked.add_argument("--merge", type=Path, nargs="+", metavar="PLACE", help="folders of runs or Parquet files to add")
    return asked


if __name__ == "__main__":
    main()
