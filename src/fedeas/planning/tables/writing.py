"""Write allocations to CSV, Parquet and JSON part by part; the file appears when all parts are written."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fedeas.core.files import PathLike, written_whole
from fedeas.core.foreign_text import for_csv
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.tables.formats import Chunk, format_of


@contextmanager
def allocation_writer(path: PathLike, policy: str) -> Iterator[_CsvWriter | _ParquetWriter | _JsonWriter]:
    """A writer for CSV, Parquet or JSON, by the file's ending; the file appears when all parts are written."""
    suffix = format_of(path, ".csv", ".parquet", ".json")
    with written_whole(path) as part:
        writer: Any = {".csv": _CsvWriter, ".parquet": _ParquetWriter, ".json": _JsonWriter}[suffix](part, policy)
        try:
            yield writer
        finally:
            writer.close()


def write_allocation(path: PathLike, counts: LabelCounts, allocation: Allocation) -> None:
    """Write an allocation as CSV, Parquet or JSON."""
    with allocation_writer(path, allocation.policy) as writer:
        writer.append(Chunk(counts, counts.clients, 0), allocation)


def write_counts(path: PathLike, counts: LabelCounts) -> None:
    """Write a wide table that `read_counts` reads back, as CSV or Parquet."""
    format_of(path, ".csv", ".parquet")
    write_allocation(path, counts, Allocation(counts.n, "label counts"))


class _ParquetWriter:
    """Rows as Parquet: a client column as the input had it and one column for each class."""

    def __init__(self, path: Path, policy: str) -> None:
        self.path, self.policy = path, policy
        self.file: Any = None

    def append(self, chunk: Chunk, allocation: Allocation) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        clients = chunk.names if isinstance(chunk.names, pa.ChunkedArray) else pa.array(_client_names(chunk))
        columns = [pa.array(column) for column in np.ascontiguousarray(allocation.n.T)]
        table = pa.table([clients, *columns], names=["client", *chunk.counts.class_names])
        if self.file is None:
            schema = table.schema.with_metadata({"fedeas.policy": self.policy})
            self.file = parquet.ParquetWriter(self.path, schema)
        self.file.write_table(table)

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


class _CsvWriter:
    """Rows as CSV, with the same columns."""

    def __init__(self, path: Path, policy: str) -> None:  # CSV cannot hold the policy's name
        self.file = path.open("w", encoding="utf-8", newline="")
        self.rows = csv.writer(self.file, lineterminator="\n")

    def append(self, chunk: Chunk, allocation: Allocation) -> None:
        if self.file.tell() == 0:
            self.rows.writerow(["client", *map(for_csv, chunk.counts.class_names)])
        names = [for_csv(name) if isinstance(name, str) else name for name in _client_names(chunk)]
        self.rows.writerows([name, *row] for name, row in zip(names, allocation.n.tolist(), strict=True))

    def close(self) -> None:
        self.file.close()


class _JsonWriter:
    """One object: the policy, the classes, a row for each client, and the total at the end."""

    def __init__(self, path: Path, policy: str) -> None:
        self.file = path.open("w", encoding="utf-8")
        self.file.write(f'{{\n"policy": {json.dumps(policy)}')
        self.total = 0
        self.started = False

    def append(self, chunk: Chunk, allocation: Allocation) -> None:
        if not self.started:
            self.file.write(f',\n"classes": {json.dumps(chunk.counts.class_names)},\n"clients": [')
        for name, row in zip(_client_names(chunk), allocation.n.tolist(), strict=True):
            line = json.dumps({"client": name, "n": row}, default=str)  # a name may be a date
            self.file.write(("," if self.started else "") + "\n" + line)
            self.started = True
        self.total += allocation.total

    def close(self) -> None:
        self.file.write(f'\n],\n"total": {self.total}\n}}\n' if self.started else "\n}\n")
        self.file.close()


def _client_names(chunk: Chunk) -> Sequence[object]:
    if chunk.names is None:
        return range(chunk.first_row, chunk.first_row + chunk.counts.num_clients)
    return chunk.names if isinstance(chunk.names, tuple) else chunk.names.to_pylist()
