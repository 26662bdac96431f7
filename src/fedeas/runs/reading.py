"""Finished runs of several folders, from run directories and Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedeas.core.errors import InputError
from fedeas.core.files import PathLike
from fedeas.core.log import log
from fedeas.runs.packed import unpack
from fedeas.runs.store import PACKED_RUNS, Run, sound_runs

NUMBERS = ("accuracy", "final", "peak", "total")
NEEDED = {*NUMBERS, "window", "steps", "samples", "rounds_to_threshold", "gamma_hat", "images", "seconds"}


def read_runs(*places: PathLike) -> Iterator[Run]:
    """The finished runs in Parquet files, and in folders and their subfolders: run directories, and Parquet files.

    In a folder, a run that is damaged is left out with a warning. A place that is given twice is read once.
    """
    for place in {Path(place).resolve(): Path(place) for place in places}.values():
        if place.suffix == PACKED_RUNS:
            yield from unpack(place)
            continue
        for path in sorted([*place.glob(f"*{PACKED_RUNS}"), *place.glob(f"[!.]*/*{PACKED_RUNS}")]):
            try:
                yield from unpack(path)
            except InputError as error:
                log.warning("left out: %s", error)
        found = sorted([*place.glob("*/summary.json"), *place.glob("[!.]*/*/summary.json")])
        yield from sound_runs([path.parent for path in found], _check_summary)


def _check_summary(run: Run) -> None:
    path, summary = run.path / "summary.json", run.summary()
    if missing := NEEDED - summary.keys():
        raise InputError(f"{path} lacks {', '.join(sorted(missing))}")
    if odd := [name for name in NUMBERS if not isinstance(summary[name], int | float)]:
        raise InputError(f"{path} has no number for {', '.join(odd)}")
