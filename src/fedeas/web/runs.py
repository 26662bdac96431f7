"""The run directories of a folder as the page lists them, including unreadable ones.

A page refreshes every few seconds, so a directory is read again only when its files have changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from fedeas.runs.accuracy_curves import AccuracyCurve, Window
from fedeas.runs.store import Run, RunStore, read_run

FOLDER_VARIABLE = "FEDEAS_PLANNER_RUNS"  # tells the page, which Streamlit starts, the folder of runs
MOST_RUNS = 200
GIVEN_UP = 3600.0  # seconds without a round after which a run counts as interrupted

Stamp = tuple[tuple[int, int], ...]
"""When each file of a run directory was last written, and its length; zeros for a missing file."""


class ListedRun(NamedTuple):
    """One run directory: its config, its progress, and its accuracy over the rounds so far.

    `accuracy` is the mean over the rounds of the `window`, once the run is finished; `latest` is the last evaluation.
    """

    name: str
    policy: str
    algorithm: str
    state: str
    accuracy: float | None = None
    window: str = ""
    latest: float | None = None
    curve: AccuracyCurve = AccuracyCurve((), ())
    finished: bool = False
    under_way: bool = False


def listed(folder: Path, now: Callable[[], float] = time.time) -> list[ListedRun]:
    """All run directories below the folder, the latest first; one that cannot be read has the reason as its state."""
    stamps = {config.parent: _stamp(config.parent) for config in RunStore(folder).root.glob("*/config.json")}
    found = sorted(stamps, key=lambda path: _changed(stamps[path]), reverse=True)
    recent = (now() - GIVEN_UP) * 1e9
    runs = [(_try_to_read(path, stamps[path]), _changed(stamps[path])) for path in found[:MOST_RUNS]]
    return [run._replace(under_way=False) if run.under_way and changed < recent else run for run, changed in runs]


def any_under_way(found: Iterable[ListedRun]) -> bool:
    """Whether any run is in progress, so that the list should be refreshed."""
    return any(run.under_way for run in found)


def _stamp(path: Path) -> Stamp:
    return tuple(_change(path / name) for name in ("config.json", "rounds.jsonl", "summary.json"))


def _change(path: Path) -> tuple[int, int]:
    """Time and size of a file."""
    try:
        about = path.stat()
    except OSError:  # not there yet, or removed since the folder was listed
        return 0, 0
    return about.st_mtime_ns, about.st_size


def _changed(stamp: Stamp) -> int:
    """When its last round ended or, before the first, when it started."""
    (config, _), (rounds, _), _ = stamp
    return rounds or config


@lru_cache(maxsize=2 * MOST_RUNS)
def _try_to_read(path: Path, stamp: Stamp) -> ListedRun:
    try:
        return _read(read_run(path))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = str(error).removeprefix(f"{path}: ")
        return ListedRun(path.name, "", "", f"cannot be read: {reason}")


def _read(run: Run) -> ListedRun:
    done, finished, config = run.rounds(), run.finished, run.config
    curve = AccuracyCurve.of(done)
    state = "finished" if finished else f"{len(done):,} of {config.rounds.total:,} rounds"
    latest = curve.accuracy[-1] if curve.rounds else None
    listed = ListedRun(run.path.name, config.policy, config.algorithm, state, latest=latest, curve=curve)
    if not finished:
        return listed._replace(under_way=True)
    summary = run.summary()
    return listed._replace(accuracy=float(summary["accuracy"]), window=str(Window(*summary["window"])), finished=True)
