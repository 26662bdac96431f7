"""Finished runs of several folders, from run directories and packed files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedeas.core.errors import InputError
from fedeas.core.files import PathLike
from fedeas.core.log import log
from fedeas.runs.packed import ENDING, unpack
from fedeas.runs.store import Run, sound_runs

NUMBERS = ("accuracy", "final", "peak", "total")
NEEDED = {*NUMBERS, "window", "steps", "samples", "rounds_to_threshold", "gamma_hat", "images", "seconds"}


def read_runs(*folders: PathLike) -> Iterator[Run]:
    """The finished runs in these folders and their subfolders: run directories, and files of many packed runs.

    A run that is damaged or of another version is left out with a warning. A folder that is given twice is read once.
    """
    for folder in {Path(folder).resolve(): Path(folder) for folder in folders}.values():
        for path in sorted([*folder.glob(f"*{ENDING}"), *folder.glob(f"[!.]*/*{ENDING}")]):
            try:
                yield from unpack(path)
            except InputError as error:
                log.warning("left out: %s", error)
        found = sorted([*folder.glob("*/summary.json"), *folder.glob("[!.]*/*/summary.json")])
        yield from sound_runs([path.parent for path in found], _check_summary)


def _check_summary(run: Run) -> None:
    path, summary = run.path / "summary.json", run.summary()
    if missing := NEEDED - summary.keys():
        raise InputError(f"{path} lacks {', '.join(sorted(missing))}")
    if odd := [name for name in NUMBERS if not isinstance(summary[name], int | float)]:
        raise InputError(f"{path} has no number for {', '.join(odd)}")
