"""The run directories of a folder as the page lists them, broken ones included."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedeas.errors import InputError
from fedeas.store import Run, RunStore, read_run

FOLDER_VARIABLE = "FEDEAS_PLANNER_RUNS"  # how the command tells the page, which Streamlit starts, where to look
MOST_RUNS = 200


class Listed(NamedTuple):
    """One run directory: what it was asked, how far it is, and its accuracy over the rounds so far."""

    name: str
    policy: str
    algorithm: str
    state: str
    accuracy: float | None
    rounds: Sequence[int] = ()
    course: Sequence[float] = ()
    finished: bool = False


def listed(folder: Path) -> list[Listed]:
    """Every run directory below the folder, the latest first; one that cannot be read says so in its place."""
    found = sorted(RunStore(folder).root.glob("*/config.json"), key=_changed, reverse=True)
    return [_listed(config.parent) for config in found[:MOST_RUNS]]


def _changed(config: Path) -> float:
    rounds = config.with_name("rounds.jsonl")
    return (rounds if rounds.exists() else config).stat().st_mtime


def _listed(path: Path) -> Listed:
    try:
        return _read(read_run(path))
    except (InputError, OSError, json.JSONDecodeError, KeyError) as error:
        reason = str(error).removeprefix(f"{path}: ")
        return Listed(path.name, "", "", f"cannot be read: {reason}", None)


def _read(run: Run) -> Listed:
    evaluated = [record for record in run.rounds() if record.get("accuracy") is not None]
    course = [float(record["accuracy"]) for record in evaluated]
    done = len(run.rounds())
    state = "finished" if run.finished else f"{done:,} of {run.config.rounds.total:,} rounds"
    accuracy = float(run.summary()["accuracy"]) if run.finished else (course[-1] if course else None)
    rounds = [int(record["round"]) for record in evaluated]
    config = run.config
    return Listed(run.path.name, config.policy, config.algorithm, state, accuracy, rounds, course, run.finished)
