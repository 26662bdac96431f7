"""Read plans that `write_allocation` wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedeas.core.errors import InputError
from fedeas.core.files import PathLike
from fedeas.core.records import checked_file, damaged, read_bytes
from fedeas.planning.counts import Allocation
from fedeas.planning.tables.formats import format_of
from fedeas.planning.tables.reading import read_columns

REMEDY = "write it with `fedeas plan --out` or with `Plan.save`"


def read_allocation(path: PathLike) -> Allocation:
    """Read a plan from CSV, Parquet or JSON, with its names; JSON and Parquet also name the policy."""
    suffix = format_of(path, ".csv", ".parquet", ".json")
    checked_file(path)
    if suffix == ".json":
        return _from_json(Path(path))
    columns = read_columns(path, names_column="client")
    clients = columns.pop("client", None)
    if clients is None or not columns:
        raise InputError(f"{path}: no plan, which has a column client and one for each class; {REMEDY}")
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    policy = ""
    if suffix == ".parquet":
        from pyarrow import parquet

        policy = ((parquet.read_schema(path).metadata or {}).get(b"fedeas.policy") or b"").decode()
    return _allocation(path, rows, policy, clients, list(columns))


def _from_json(path: Path) -> Allocation:
    try:
        content = json.loads(read_bytes(path))
        rows = [entry["n"] for entry in content["clients"]]
        names = [entry["client"] for entry in content["clients"]]
        policy, classes = str(content["policy"]), list(content["classes"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise damaged(path, f"no plan: {type(error).__name__} {error}", REMEDY) from None
    return _allocation(path, rows, policy, names, classes)


def _allocation(path: PathLike, rows: list[Any], policy: str, clients: list[Any], classes: list[Any]) -> Allocation:
    try:
        return Allocation(rows, policy, clients, classes)
    except InputError as error:
        raise InputError(f"{path}: {error}; {REMEDY}") from None
