"""How far runs are: running, stopped or finished, and the time left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fedeas.core.deadline import lasting_seconds
from fedeas.core.locks import is_held
from fedeas.core.records import Record
from fedeas.runs.store import LOCK, MARKS, Run


class RunState(StrEnum):
    """What a run is doing."""

    RUNNING = "running"
    STOPPED = "stopped"
    FINISHED = "finished"


@dataclass(frozen=True)
class RunProgress:
    """State of a run, its rounds so far, when it last wrote something, and the seconds left if that can be said."""

    state: RunState
    rounds: int
    total: int
    changed: datetime
    seconds_left: float | None


def progress_of(run: Run) -> RunProgress:
    """How far this run is. It is running if a process holds its lock."""
    records = run.rounds()
    state = RunState.FINISHED if run.finished else RunState.RUNNING if is_held(run.path / LOCK) else RunState.STOPPED
    left = 0.0 if run.finished else seconds_left(records, run.config.rounds.total)
    files = [file for name in MARKS if (file := run.path / name).exists()] or [run.path.parent]  # of packed runs
    changed = datetime.fromtimestamp(max(file.stat().st_mtime for file in files))
    return RunProgress(state, len(records), run.config.rounds.total, changed, left)


def seconds_left(records: Sequence[Record], total: int) -> float | None:
    """Time for the rounds that are left at the mean pace so far, without images and compilation; None without a round.

    >>> seconds_left([{"round": 1, "seconds": {"train": 2.0, "generate": 60.0, "prepare": 60.0}}], total=4)
    6.0
    """
    if not records:
        return None
    paces = [lasting_seconds(record) for record in records]
    return float(sum(paces) / len(paces) * (total - records[-1]["round"]))
