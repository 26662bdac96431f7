"""Many finished runs in one small file: config, summary, environment and generator of each, without its rounds."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from fedeas.config import RunConfig
from fedeas.core.files import written_whole
from fedeas.core.records import Record, damaged, line_of, read_lines, unreadable
from fedeas.runs.store import REMEDY, Run, UsedGenerator, unzipped_lines

ENDING = ".runs.gz"
KEYS = {"config", "summary", "environment", "generator"}


@dataclass(frozen=True)
class PackedRun(Run):
    """A finished run from a packed file; its rounds were not kept."""

    content: Record = field(default_factory=dict, repr=False, compare=False)

    @property
    def finished(self) -> bool:
        """Only finished runs are packed."""
        return True

    def summary(self) -> Record:
        """The measures."""
        return dict(self.content["summary"])

    def environment(self) -> Record:
        """Versions, device and threads of the latest start."""
        return dict(self.content["environment"])

    def generator(self) -> UsedGenerator | None:
        """The generator; None if nothing was generated."""
        used = self.content["generator"]
        return None if used is None else UsedGenerator(*used)


def pack(runs: Iterable[Run], path: Path) -> None:
    """Write finished runs, in the order of their folders' names; the same runs give the same bytes."""
    lines = [line_of(_content(run)).encode() for run in sorted(runs, key=lambda run: run.path.name)]
    with written_whole(path) as part:
        part.write_bytes(gzip.compress(b"".join(line + b"\n" for line in lines), mtime=0))


def unpack(path: Path) -> list[Run]:
    """The runs of a packed file; a file that has not changed is read only once."""
    try:
        state = path.stat()
    except OSError as error:
        raise unreadable(path, error) from None
    return list(_unpacked(path, state.st_mtime_ns, state.st_size, state.st_ino))


@lru_cache(maxsize=8)
def _unpacked(path: Path, *state: int) -> tuple[Run, ...]:
    records = read_lines(path, unzipped_lines(path), REMEDY)
    return tuple(_run(path, number, record) for number, record in enumerate(records, 1))


def _run(path: Path, number: int, record: Record) -> Run:
    try:
        if missing := KEYS - record.keys():
            raise ValueError(f"{', '.join(sorted(missing))} is missing")
        config = RunConfig.model_validate(record["config"])
    except ValueError as error:
        raise damaged(path, f"line {number}: {str(error).splitlines()[0]}", REMEDY) from None
    return PackedRun(path / config.directory, config, record)


def _content(run: Run) -> Record:
    config = run.config.model_dump(mode="json")
    config["data"]["root"] = None
    used = run.generator()
    return {
        "config": config,
        "summary": run.summary(),
        "environment": run.environment(),
        "generator": None if used is None else list(used),
    }
