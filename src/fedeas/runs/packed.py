"""Finished runs of several folders, and in one Parquet file, which many tools can read: a row for each run.

Config, summary and environment are JSON texts; the rounds, if they are packed, are a list of structs. The other columns
repeat what tables look runs up by, so that a config is read only when it is shown.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import compute, parquet

from fedeas.config.run import RunConfig, recorded_config
from fedeas.config.sections import ContentConfig
from fedeas.core.arrays import bytes_of_parquet
from fedeas.core.errors import InputError, log, reason_of
from fedeas.core.files import PathLike, written_whole
from fedeas.core.records import (
    READ_AGAIN,
    Record,
    check_unpacked,
    damaged,
    matching,
    parsed,
    read_bytes,
    read_record,
)
from fedeas.runs.store import PACKED_RUNS, RUN, Run, UsedGenerator, check_measures, complete, sound_runs

LEVEL = 22
"""The most thorough compression of zstd."""

TEXT, WHOLE, NUMBER = pa.string(), pa.int64(), pa.float64()
COLUMNS = pa.schema({
    "fingerprint": TEXT, "method": TEXT, "label": TEXT, "seed": WHOLE, "dataset": TEXT, "protocol": TEXT,
    "clients": WHOLE, "alpha": NUMBER, "policy": TEXT, "generator": TEXT, "algorithm": TEXT, "start": TEXT,
    "accuracy": NUMBER, "config": TEXT, "summary": TEXT, "environment": TEXT,
    "content": pa.struct(dict.fromkeys(ContentConfig.model_fields, TEXT)),
    "used_generator": pa.struct(dict.fromkeys(UsedGenerator._fields, TEXT)),
})  # fmt: skip
"""All columns but the rounds."""

LONGEST_TEXT = 2**20  # characters of one config, summary or environment
FREE, PER_BYTE = 2**27, 30
"""Bytes that the runs of a file may take in memory, or else bytes for each byte of the file."""
MOST_OF_A_RUN = 2**25  # bytes of its rounds; as Python objects they take many times more

Column = Callable[[], pa.ChunkedArray]
"""Reads the column of rounds; null where none were packed."""


class PackedRun(Run):
    """A finished run in a Parquet file: one row of a table."""

    table: pa.Table
    number: int
    rounds_column: Column

    def __init__(self, path: Path, table: pa.Table, number: int, key: Record, rounds_column: Column) -> None:
        place = path / f"{key.pop('label')}-{key['fingerprint'][:8]}"
        vars(self).update(key, path=place, table=table, number=number, rounds_column=rounds_column)

    @cached_property
    def row(self) -> Record:
        """All columns but the rounds."""
        return dict(self.table.slice(self.number, 1).to_pylist()[0])

    @cached_property
    def config(self) -> RunConfig:
        """The config, perhaps of an earlier version."""
        content = self._record("config")
        try:
            return recorded_config(content or {})
        except ValueError as error:
            raise damaged(self.path, f"config: {reason_of(error)}", READ_AGAIN) from None

    @property
    def content(self) -> ContentConfig:
        """Digests of data, weights and code."""
        return ContentConfig.model_construct(**self.row["content"])

    is_outdated = False  # its row says what it used, which need not be here
    finished = True
    is_kept = True
    unverified = ""  # the columns of a row belong together

    @property
    def has_rounds(self) -> bool:
        """Whether the file has its rounds."""
        return bool(self.rounds_column()[self.number].is_valid)

    def _record(self, name: str) -> Record | None:
        content = self.row[{"env": "environment", "generator": "used_generator"}.get(name, name)]
        if not isinstance(content, str):
            return content if name == "generator" else parsed(self.path, b"", READ_AGAIN, f"{name}: ")
        if len(content) > LONGEST_TEXT:
            raise damaged(self.path, f"{name}: {len(content):,} characters", READ_AGAIN)
        return parsed(self.path, content.encode(), READ_AGAIN, f"{name}: ")

    def summary(self) -> Record:
        """The measures; refused if they cannot be right."""
        found = super().summary()
        if found.get("fingerprint", self.fingerprint) != self.fingerprint:
            raise damaged(self.path, "its summary is that of another run", READ_AGAIN)
        check_measures(self.path, found)
        return found

    def rounds(self) -> list[Record]:
        """The records of its rounds."""
        if not self.has_rounds:
            raise InputError(f"{self.path}: its rounds were not packed; make the run again to have them")
        cell = self.rounds_column()[self.number]
        check_unpacked(self.path.parent, _unpacked(cell.values), MOST_OF_A_RUN, 0)
        found = _known(cell.as_py())
        return complete(self.path.parent, found, self.summary().get("rounds", 0))


def read_runs(*places: PathLike) -> Iterator[Run]:
    """The finished runs in Parquet files, and in folders and their subfolders: run directories, and Parquet files.

    In a folder, a run that is damaged is left out with a warning. A place that is given twice is read once. A row of a
    Parquet file is checked when it is used.
    """
    for place in {Path(place).resolve(): Path(place) for place in places}.values():
        if place.suffix == PACKED_RUNS:
            yield from unpack(place)
            continue
        for path in sorted([*matching(place, f"*{PACKED_RUNS}"), *matching(place, f"[!.]*/*{PACKED_RUNS}")]):
            try:
                yield from unpack(path)
            except InputError as error:
                log.warning("left out: %s", error)
        found = sorted([*matching(place, "*/summary.json"), *matching(place, "[!.]*/*/summary.json")])
        yield from sound_runs([path.parent for path in found])


def pack_runs(runs: Iterable[Run], path: Path, with_rounds: bool = True) -> None:
    """Write finished runs, in the order of their names; the same runs give the same bytes."""
    chosen = sorted(runs, key=lambda run: run.path.name)
    table = pa.Table.from_pylist([_row(run) for run in chosen], COLUMNS)
    rounds = [run.rounds() if with_rounds and run.has_rounds else None for run in chosen]
    if any(rounds):
        table = table.append_column("rounds", pa.array(rounds))
    with written_whole(path) as part:
        parquet.write_table(
            table, part, compression="zstd", compression_level=LEVEL, write_page_checksum=True, write_statistics=False
        )


def unpack(path: Path) -> list[Run]:
    """The runs in a Parquet file. The first run whose rounds are asked for reads the rounds of all."""
    content = pa.BufferReader(read_bytes(path))

    def read(columns: list[str]) -> pa.Table:
        try:
            about = parquet.read_metadata(content)
            check_unpacked(path, bytes_of_parquet(about), FREE, PER_BYTE)
            leaves = [about.schema.column(number) for number in range(about.num_columns)]
            texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]  # one text may be there often
            found = parquet.ParquetFile(content, page_checksum_verification=True, read_dictionary=texts).read(columns)
            size = sum(_unpacked(chunk) for column in found.columns for chunk in column.chunks)
            check_unpacked(path, size, FREE, PER_BYTE)
            if missing := set(COLUMNS.names).intersection(columns) - {*found.column_names}:
                raise ValueError(f"{', '.join(sorted(missing))} is missing")
            return found
        except InputError:
            raise
        except (OSError, ValueError, pa.ArrowException) as error:
            raise damaged(path, error, READ_AGAIN) from None

    table = read(COLUMNS.names)

    @cache
    def rounds() -> pa.ChunkedArray:
        found = read(["rounds"])
        return found["rounds"] if found.column_names else pa.chunked_array([pa.nulls(len(table))])

    keys = table.select(["fingerprint", "method", "label", "seed"]).to_pylist()
    return [PackedRun(path, table, number, key, rounds) for number, key in enumerate(keys)]


def _row(run: Run) -> Record:
    if isinstance(run, PackedRun):
        return run.row
    config, summary, used = run.config, run.summary(), run.generator()
    written = read_record(run.path / "config.json")  # as it is: an earlier version may have other keys
    written["data"]["root"] = None
    written.pop(RUN, None)
    return {
        "fingerprint": config.fingerprint, "method": run.method, "label": config.label, "seed": config.seed,
        "dataset": config.data.dataset, "protocol": config.data.protocol, "clients": config.partition.clients,
        "alpha": config.partition.alpha, "policy": config.policy, "generator": config.generator,
        "algorithm": config.algorithm, "start": config.model.weights, "accuracy": summary["accuracy"],
        "config": json.dumps(written), "summary": json.dumps(summary), "environment": json.dumps(run.environment()),
        "content": config.content.model_dump(), "used_generator": None if used is None else used._asdict(),
    }  # fmt: skip


def _unpacked(array: pa.Array) -> int:
    """The bytes of all values of an array, a repeated text counted each time."""
    if pa.types.is_dictionary(array.type):
        return int(compute.sum(compute.binary_length(array.dictionary).take(array.indices)).as_py() or 0)
    if pa.types.is_struct(array.type):
        return sum(map(_unpacked, array.flatten()))
    return _unpacked(array.flatten()) if pa.types.is_list(array.type) else int(array.nbytes)


def _known(value: Any) -> Any:
    """A record without the fields that it did not have: in a column of structs they are null."""
    if isinstance(value, dict):
        return {key: _known(each) for key, each in value.items() if each is not None}
    return [_known(each) for each in value] if isinstance(value, list) else value
