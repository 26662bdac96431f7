"""Many finished runs in one small file: config, summary, environment and generator of each, and perhaps its rounds.

The file holds one table, or two if there are rounds; each is a stream of xz, whose checksum finds damage. The rounds
are unpacked when they are asked for.
"""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path

from fedeas.config import RunConfig
from fedeas.core.errors import InputError
from fedeas.core.files import make_folder, written_whole
from fedeas.core.record_tables import FAULTS, read_table, write_table
from fedeas.core.records import READ_AGAIN, Record, damaged, line_of, read_bytes, unreadable, write_record
from fedeas.runs.store import PACKED_ROUNDS, Run, UsedGenerator

ENDING = ".runs.xz"
KEYS = {"config", "summary", "environment", "generator", "rounds"}
FOR_TEXT = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "pb": 0}]


@dataclass(frozen=True)
class PackedRounds:
    """The rounds of all runs of a packed file, one run after the other, still compressed."""

    path: Path
    compressed: bytes = field(repr=False)

    @cached_property
    def records(self) -> list[Record]:
        """The records of all rounds."""
        found, rest = _read_stream(self.path, self.compressed)
        if rest:
            raise damaged(self.path, "it goes on after its rounds", READ_AGAIN)
        return found


@dataclass(frozen=True)
class PackedRun(Run):
    """A finished run from a packed file; if its rounds were packed, too, they start at row `start` of the file's."""

    content: Record = field(default_factory=dict, repr=False, compare=False)
    packed_rounds: PackedRounds | None = field(default=None, repr=False, compare=False)
    start: int = field(default=0, repr=False, compare=False)

    @property
    def finished(self) -> bool:
        """Only finished runs are packed."""
        return True

    @property
    def is_kept(self) -> bool:
        """Neither plan nor checkpoint is packed."""
        return True

    @property
    def has_rounds(self) -> bool:
        """Whether its rounds were packed, too."""
        return self.packed_rounds is not None

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

    def rounds(self) -> list[Record]:
        """The records of its rounds."""
        if self.packed_rounds is None:
            raise InputError(f"{self.path}: its rounds were not packed; make the run again to have them")
        count = self.content["rounds"]
        found = [dict(record) for record in self.packed_rounds.records[self.start : self.start + count]]
        self._check_order(self.packed_rounds.path, found, count)
        return found


def pack(runs: Iterable[Run], path: Path, with_rounds: bool = True) -> None:
    """Write finished runs, in the order of their names; the same runs give the same bytes."""
    chosen = sorted(runs, key=lambda run: run.config.directory)
    rounds = [run.rounds() if with_rounds and run.has_rounds else None for run in chosen]
    tables = [[_content(run, kept) for run, kept in zip(chosen, rounds, strict=True)]]
    if any(rounds):
        tables.append([record for kept in rounds for record in kept or ()])
    with written_whole(path) as part:
        part.write_bytes(b"".join(lzma.compress(write_table(table), filters=FOR_TEXT) for table in tables))


def unpack(path: Path) -> list[Run]:
    """The runs of a packed file; a file that has not changed is read only once."""
    try:
        state = path.stat()
    except OSError as error:
        raise unreadable(path, error) from None
    return list(_unpacked(path, state.st_mtime_ns, state.st_size, state.st_ino))


def write_folder(run: Run, folder: Path) -> None:
    """Write a packed run as a run directory below `folder`, without plan and checkpoint."""
    lines = [line_of(record).encode() for record in run.rounds()]
    place, used = folder / run.config.directory, run.generator()
    make_folder(place)
    write_record(place / "config.json", run.config.model_dump(mode="json"))
    write_record(place / "env.json", run.environment())
    if used is not None:
        write_record(place / "generator.json", used._asdict())
    with written_whole(place / PACKED_ROUNDS) as part:
        part.write_bytes(gzip.compress(b"".join(line + b"\n" for line in lines), mtime=0))
    write_record(place / "summary.json", run.summary())


@lru_cache(maxsize=16)
def _unpacked(path: Path, *state: int) -> tuple[Run, ...]:
    contents, rest = _read_stream(path, read_bytes(path))
    configs = [_checked_config(path, number, content) for number, content in enumerate(contents, 1)]
    starts = accumulate((content["rounds"] or 0 for content in contents), initial=0)
    rounds = PackedRounds(path, rest)
    return tuple(
        PackedRun(path / config.directory, config, content, None if content["rounds"] is None else rounds, start)
        for config, content, start in zip(configs, contents, starts, strict=False)  # the last start is the end
    )


def _read_stream(path: Path, content: bytes) -> tuple[list[Record], bytes]:
    """The records in the first stream of a file, and what comes after it."""
    stream = lzma.LZMADecompressor(lzma.FORMAT_XZ)
    try:
        text = stream.decompress(content)
        if not stream.eof:
            raise ValueError("it ends too early")
        return read_table(text), stream.unused_data
    except (*FAULTS, lzma.LZMAError) as error:
        raise damaged(path, error, READ_AGAIN) from None


def _checked_config(path: Path, number: int, content: Record) -> RunConfig:
    try:
        if missing := KEYS - content.keys():
            raise ValueError(f"{', '.join(sorted(missing))} is missing")
        if not isinstance(content["rounds"], int | None):
            raise ValueError("its rounds are not counted")
        return RunConfig.model_validate(content["config"])
    except ValueError as error:
        raise damaged(path, f"run {number}: {str(error).splitlines()[0]}", READ_AGAIN) from None


def _content(run: Run, rounds: list[Record] | None) -> Record:
    config = run.config.model_dump(mode="json")
    config["data"]["root"] = None
    used = run.generator()
    return {
        "config": config,
        "summary": run.summary(),
        "environment": run.environment(),
        "generator": None if used is None else list(used),
        "rounds": None if rounds is None else len(rounds),
    }
