"""The run directories of a folder as the page lists them, including unreadable ones.

A page refreshes every few seconds, so a directory is read again only when its files have changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from fedeas.config.run import RunConfig
from fedeas.core.locks import is_held
from fedeas.runs.accuracy_curves import AccuracyCurve, RoundRange
from fedeas.runs.methods import grouped
from fedeas.runs.progress import RunState
from fedeas.runs.store import LOCK, PACKED_ROUNDS, ROUNDS, Run, RunStore, read_run

FOLDER_VARIABLE = "FEDEAS_PLANNER_RUNS"  # tells the page, which Streamlit starts, the folder of runs
MOST_RUNS = 200
FILES = ("config.json", ROUNDS, "summary.json", PACKED_ROUNDS)

Stamp = tuple[tuple[int, int], ...]
"""When each file of a run directory was last written, and its length; zeros for a missing file."""


class ListedRun(NamedTuple):
    """One run directory: its config, if it can be read, its progress, and its accuracy over the rounds so far.

    `accuracy` is the mean over the rounds of the `window`, once the run is finished; `latest` is the last evaluation.
    """

    name: str
    policy: str
    algorithm: str
    state: str
    seed: int | None = None
    accuracy: float | None = None
    window: str = ""
    latest: float | None = None
    seen: str = ""
    changed: datetime | None = None
    curve: AccuracyCurve = AccuracyCurve((), ())
    finished: bool = False
    under_way: bool = False
    config: RunConfig | None = None


class ListedMethod(NamedTuple):
    """Runs with a curve that differ only in their seed; no two methods have the same name."""

    name: str
    policy: str
    finished: list[ListedRun]
    unfinished: list[ListedRun]


class Listing(NamedTuple):
    """Run directories, the latest first, and how many more there are."""

    runs: list[ListedRun]
    left_out: int


def listed(folder: Path) -> Listing:
    """The run directories below the folder; one that cannot be read has the reason as its state."""
    folders = [config.parent for config in RunStore(folder).root.glob("*/config.json")]
    stamps = {path: tuple(_change(path / name) for name in FILES) for path in folders}
    found = sorted(stamps, key=lambda path: _changed(stamps[path]), reverse=True)
    runs = []
    for path in found[:MOST_RUNS]:
        run = _try_to_read(path, stamps[path])
        if run.config is not None and not run.finished:  # it is in progress if a process holds its lock
            under_way = is_held(path / LOCK)
            state = RunState.RUNNING if under_way else RunState.STOPPED
            run = run._replace(state=f"{state}: {run.state}", under_way=under_way)
        runs.append(run)
    return Listing(runs, len(found[MOST_RUNS:]))


def drawn_methods(runs: Sequence[ListedRun]) -> list[ListedMethod]:
    """The runs that have a curve, by method."""
    drawn = [(run, run.config) for run in runs if run.config is not None and run.curve.rounds]
    groups = {name: [run for run, _ in group] for name, group in grouped(drawn, itemgetter(1)).items()}
    return [
        ListedMethod(
            name,
            group[0].policy.partition("(")[0],
            [run for run in group if run.finished],
            [run for run in group if not run.finished],
        )
        for name, group in groups.items()
    ]


def any_under_way(found: Iterable[ListedRun]) -> bool:
    """Whether any run is in progress, so that the list should be refreshed."""
    return any(run.under_way for run in found)


def _change(path: Path) -> tuple[int, int]:
    """Time and size of a file."""
    try:
        about = path.stat()
    except OSError:  # not there yet, or removed since the folder was listed
        return 0, 0
    return about.st_mtime_ns, about.st_size


def _changed(stamp: Stamp) -> int:
    """When its last round ended or, before the first, when it started."""
    (config, _), (rounds, _), _, (packed, _) = stamp
    return rounds or packed or config


@lru_cache(maxsize=2 * MOST_RUNS)
def _try_to_read(path: Path, stamp: Stamp) -> ListedRun:
    try:
        found = _read(read_run(path))
    except Exception as error:  # a damaged file may raise anything; the others are shown all the same
        reason = " ".join(str(error).removeprefix(f"{path}: ").split())
        found = ListedRun(path.name, "", "", f"cannot be read: {reason or type(error).__name__}")
    return found._replace(changed=datetime.fromtimestamp(_changed(stamp) / 1e9))


def _read(run: Run) -> ListedRun:
    done, finished, config = run.rounds(), run.finished, run.config
    curve = AccuracyCurve.of(done)
    state = "finished" if finished else f"{len(done):,} of {config.rounds.total:,} rounds"
    latest = curve.accuracy[-1] if curve.rounds else None
    listed = ListedRun(
        run.path.name, config.policy, config.algorithm, state, config.seed, latest=latest, curve=curve, config=config,
        seen=run.seen,
    )  # fmt: skip
    if not finished:
        return listed
    summary = run.summary()
    return listed._replace(
        accuracy=float(summary["accuracy"]), window=str(RoundRange(*summary["window"])), finished=True
    )
