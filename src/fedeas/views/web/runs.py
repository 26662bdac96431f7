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
from fedeas.runs.progress import RunState
from fedeas.runs.store import LOCK, ROUNDS, RunStore, read_run

FOLDER_VARIABLE = "FEDEAS_PLANNER_RUNS"  # tells the page, which Streamlit starts, the folder of runs
MOST_RUNS = 200
FILES = ("config.json", ROUNDS, "summary.json")


class Stamp(NamedTuple):
    """Tells whether the files of a run directory are the same as before."""

    changed: int
    """When its last round ended or, before the first, when it started."""
    files: tuple[tuple[int, int], ...]
    """When each file was last written, and its length; zeros for a missing file."""

    @classmethod
    def of(cls, path: Path) -> Stamp:
        """The stamp of this run directory."""
        files = []
        for name in FILES:
            try:
                about = (path / name).stat()
                files.append((about.st_mtime_ns, about.st_size))
            except OSError:  # not there yet, or removed since the folder was listed
                files.append((0, 0))
        (config, _), (rounds, _), _ = files
        return cls(rounds or config, tuple(files))


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

    @property
    def any_under_way(self) -> bool:
        """Whether any run is in progress, so that the list should be refreshed."""
        return any(run.under_way for run in self.runs)


def listed(folder: Path) -> Listing:
    """The run directories below the folder; one that cannot be read has the reason as its state."""
    folders = [config.parent for config in RunStore(folder).root.glob("*/config.json")]
    found = sorted(((Stamp.of(path), path) for path in folders), key=itemgetter(0), reverse=True)
    runs = []
    for stamp, path in found[:MOST_RUNS]:
        run = _read(path, stamp)
        if run.config is not None and not run.finished:  # it is in progress if a process holds its lock
            under_way = is_held(path / LOCK)
            state = RunState.RUNNING if under_way else RunState.STOPPED
            run = run._replace(state=f"{state}: {run.state}", under_way=under_way)
        runs.append(run)
    return Listing(runs, len(found[MOST_RUNS:]))


@lru_cache(maxsize=2 * MOST_RUNS)
def _read(path: Path, stamp: Stamp) -> ListedRun:
    changed = datetime.fromtimestamp(stamp.changed / 1e9)
    try:
        run = read_run(path)
        config, done, summary = run.config, run.rounds(), run.summary() if run.finished else None
        curve = AccuracyCurve.of(done)
        return ListedRun(
            path.name,
            config.policy,
            config.algorithm,
            f"{len(done):,} of {config.rounds.total:,} rounds" if summary is None else "finished",
            config.seed,
            accuracy=None if summary is None else float(summary["accuracy"]),
            window="" if summary is None else str(RoundRange(*summary["window"])),
            latest=curve.accuracy[-1] if curve.rounds else None,
            changed=changed,
            curve=curve,
            seen=run.seen,
            finished=summary is not None,
            config=config,
        )
    except Exception as error:  # a damaged file may raise anything; the others are shown all the same
        reason = " ".join(str(error).removeprefix(f"{path}: ").split()) or type(error).__name__
        return ListedRun(path.name, "", "", f"cannot be read: {reason}", changed=changed)


def drawn_methods(runs: Sequence[ListedRun]) -> list[ListedMethod]:
    """The runs that have a curve, by method."""
    drawn = [(run, run.config) for run in runs if run.config is not None and run.curve.rounds]
    methods = []
    for name, group in grouped(drawn, itemgetter(1)).items():
        finished, unfinished = ([run for run, _ in group if run.finished is done] for done in (True, False))
        methods.append(ListedMethod(name, group[0][0].policy.partition("(")[0], finished, unfinished))
    return methods
