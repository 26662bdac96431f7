"""The run directories of a folder as the page lists them, including unreadable ones.

A page refreshes every few seconds, so a directory is read again only when its files have changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from fedeas.config.run import RunConfig
from fedeas.core.locks import is_held
from fedeas.runs.accuracy_curves import AccuracyCurve, RoundRange
from fedeas.runs.methods import grouped
from fedeas.runs.store import LOCK, ROUNDS, RunState, RunStore, read_run

MOST_RUNS = 200
FILES = ("config.json", ROUNDS, "summary.json")

Stamps = tuple[tuple[int, int], ...]
"""When each of the `FILES` of a run directory was last written, and its length; zeros for a missing file."""


class ListedRun(NamedTuple):
    """One run directory: its config, if it can be read, its progress, and its accuracy over the rounds so far.

    `accuracy` is the mean over the rounds of the `window`, once the run is finished; `latest` is the last evaluation.
    """

    name: str
    policy: str = ""
    algorithm: str = ""
    state: str = ""
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

    @property
    def any_under_way(self) -> bool:
        """Whether any run is in progress, so that the list should be refreshed."""
        return any(run.under_way for run in self.runs)


def listed(folder: Path) -> Listing:
    """The run directories below the folder; one that cannot be read has the reason as its state."""
    folders = [config.parent for config in RunStore(folder).root.glob("*/config.json")]
    found = sorted(((*_stamps(path), path) for path in folders), reverse=True)
    runs = []
    for changed, stamps, path in found[:MOST_RUNS]:
        run = _read(path, changed, stamps)
        if run.config is not None and not run.finished:  # it is in progress if a process holds its lock
            under_way = is_held(path / LOCK)
            state = RunState.RUNNING if under_way else RunState.STOPPED
            run = run._replace(state=f"{state}: {run.state}", under_way=under_way)
        runs.append(run)
    return Listing(runs, len(found[MOST_RUNS:]))


def _stamps(path: Path) -> tuple[int, Stamps]:
    """When the last round of a run ended or, before the first, when it started; and the stamps of its files."""
    files = []
    for name in FILES:
        try:
            about = (path / name).stat()
            files.append((about.st_mtime_ns, about.st_size))
        except OSError:  # not there yet, or removed since the folder was listed
            files.append((0, 0))
    (config, _), (rounds, _), _ = files
    return rounds or config, tuple(files)


@lru_cache(maxsize=2 * MOST_RUNS)
def _read(path: Path, changed: int, stamps: Stamps) -> ListedRun:
    """The run in a directory whose files have these stamps."""
    found = ListedRun(path.name, changed=datetime.fromtimestamp(changed / 1e9))
    try:
        run = read_run(path)
        config, done = run.config, run.rounds()
        curve = AccuracyCurve.of(done)
        found = found._replace(
            policy=config.policy, algorithm=config.algorithm, seed=config.seed, config=config, seen=run.seen,
            curve=curve, latest=curve.accuracy[-1] if curve.rounds else None,
            state=f"{len(done):,} of {config.rounds.total:,} rounds",
        )  # fmt: skip
        if run.finished:
            summary = run.summary()
            accuracy, window = float(summary["accuracy"]), str(RoundRange(*summary["window"]))
            found = found._replace(state="finished", finished=True, accuracy=accuracy, window=window)
        return found
    except Exception as error:  # a damaged file may raise anything; the others are shown all the same
        reason = " ".join(str(error).removeprefix(f"{path}: ").split()) or type(error).__name__
        return ListedRun(path.name, state=f"cannot be read: {reason}", changed=found.changed)


def drawn_methods(runs: Sequence[ListedRun]) -> list[ListedMethod]:
    """The runs that have a curve, by method."""
    drawn = [(run, run.config) for run in runs if run.config is not None and run.curve.rounds]
    methods = []
    for name, group in grouped(drawn, itemgetter(1)).items():
        finished, unfinished = ([run for run, _ in group if run.finished is done] for done in (True, False))
        methods.append(ListedMethod(name, group[0][0].policy.partition("(")[0], finished, unfinished))
    return methods
