"""Inputs for fuzzing, drawn by a seed: valid ones, odd ones made of odd pieces, and damaged ones of the corpus."""

from __future__ import annotations

import io
from decimal import Decimal
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
from fuzz.targets import SEPARATOR
from pyarrow import parquet

CORPUS = Path(__file__).parent / "corpus"

PIECES = [
    "0", "1", "-1", "12", "2.5", "1e3", "1e308", "1e999", "-0", "nan", "inf", "9" * 30, "9" * 5000, "0x10",
    "1_000", "1_", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "", " ", "\t",
    "true", "null", "None", "a", "client", "label", "Client", "client_id", "x", "[/]", "[red]x[/red]",
    "\u001b[31m", "=HYPERLINK(1)", "'=1", "<b>", "\u202e", "\u00e9", "\u65e5\u672c", "\ud7ff", "'", "\"",
    "\"\"", "\\", ";", ",", "\r", "\n", "\u0000", "\u0085", "{}", "[[", "]]", "(", ")", "fedeas", "uniform",
    "budget", "beta", "=", "greedy", "optimal", "missing-only", "cost-aware", "price", "fill", "all", "by-size",
    "full-balance", "no-generation", "gamma", "entropy", "gaussian", "diffusion", "weights", "shared", "of",
    "python:os:system", "__import__('os').system('touch owned')", "$(touch owned)", "; touch owned", "../owned",
    "/dev/zero", "custom", "call", "../../../etc/passwd", "x" * 300, "2020-01-01", "12:30", "1;2", "\ufeff",
]  # fmt: skip
OPTIONS = {
    "plan": [
        "--policy", "--beta", "--total", "--auto", "--minutes", "--images-per-second", "--max-share", "--min-removed",
        "--classes", "--compare", "--out", "--plot", "--example",
    ],
    "partition": ["--scheme", "--clients", "--alpha", "--per-client", "--min-size", "--cap",
                  "--seed"],
    "command": ["plan", "runs", "report", "bank", "ls", "generator", "info", "--runs", "--bank", "--out",
                "--version", "--help"],
}  # fmt: skip
VALUES = [
    "fedeas(beta=3)", "uniform", "greedy", "optimal", "iid", "shards", "paper", "dirichlet", "counts.csv", "plan.csv",
    "plan.parquet", "plan.svg", "0.5", "100", "20", "0.1", "7",
]  # fmt: skip
KEYS = [
    "seed", "label", "policy", "generator", "algorithm", "data.dataset", "data.root", "partition.clients",
    "partition.alpha", "partition.scheme", "model.name", "model.weights", "train.lr", "train.epochs", "rounds.total",
    "engine.device", "engine.threads", "content.data", "nothing.at.all", "train",
]  # fmt: skip


def make(target: str, random: Random) -> bytes:
    """An input for this target."""
    kept = sorted((CORPUS / target).glob("*")) if (CORPUS / target).is_dir() else []
    if kept and random.random() < 0.1:
        return damaged(random.choice(kept).read_bytes(), random)
    kind, _, form = target.rpartition("-")
    if form in ("csv", "parquet", "npy", "npz") and kind:
        content = {"csv": _csv, "parquet": _parquet, "npy": _npy, "npz": _npz}[form](random)
    else:
        content = {"spec": _spec, "override": _overrides, "config": _toml, "run-folder": _json}.get(
            target, lambda random: _arguments(random, target)
        )(random)
    return content if random.random() < 0.5 else damaged(content, random)


def damaged(content: bytes, random: Random) -> bytes:
    """The same with some of it changed, cut out, doubled or put in."""
    data = bytearray(content)
    for _ in range(random.choice([1, 1, 2, 5])):
        place, other = (random.randrange(len(data) + 1) for _ in range(2))
        start, stop = sorted((place, other))
        way = random.randrange(5)
        if way == 0 and data:
            data[min(place, len(data) - 1)] = random.randrange(256)
        elif way == 1:
            del data[start : min(stop, start + 40)]
        elif way == 2:
            data[place:place] = data[start : min(stop, start + 200)]
        elif way == 3:
            data[place:place] = _piece(random).encode("utf-8", "replace")
        else:
            del data[stop:]
    return bytes(data)


def _piece(random: Random) -> str:
    return random.choice(PIECES)


def _cell(random: Random) -> str:
    return str(random.choice([0, 0, 1, 3, 90, 10**6])) if random.random() < 0.9 else _piece(random)


def _csv(random: Random) -> bytes:
    separator = random.choice([",", ",", ",", ";", "\t"])
    columns, rows = random.choice([1, 2, 3, 5, 200]), random.choice([0, 1, 2, 5, 300])
    if random.random() < 0.3:
        lines = [["client", "label"]] + [[_cell(random), _cell(random)] for _ in range(rows)]
    else:
        names = [_piece(random) if random.random() < 0.2 else f"c{column}" for column in range(columns)]
        lines = [["client", *names]] + [
            [f"k{row}" if random.random() < 0.95 else _piece(random), *(_cell(random) for _ in names)]
            for row in range(rows)
        ]
    text = random.choice(["\n", "\r\n"]).join(separator.join(line) for line in lines)
    return text.encode(random.choice(["utf-8", "utf-8", "utf-8-sig", "latin-1", "utf-16"]), "replace")


def _column(random: Random, rows: int) -> pa.Array:
    numbers = np.array([random.choice([0, 1, 5, 90]) for _ in range(rows)], dtype=np.int64)
    makers = [
        lambda: pa.array(numbers),
        lambda: pa.array(numbers, pa.uint8()),
        lambda: pa.array(numbers / random.choice([1, 2]), pa.float32()),
        lambda: pa.array([random.choice([None, float("nan"), 1.0]) for _ in range(rows)], pa.float64()),
        lambda: pa.array([_piece(random).replace("\ud7ff", "") for _ in range(rows)], pa.string()),
        lambda: pa.array([[1]] * rows, pa.list_(pa.int64())),
        lambda: pa.array([{"a": 1}] * rows, pa.struct({"a": pa.int64()})),
        lambda: pa.array(numbers * 10**9, pa.timestamp("ns")),
        lambda: pa.array([b"\xff"] * rows, pa.binary()),
        lambda: pa.array([True] * rows, pa.bool_()),
        lambda: pa.nulls(rows),
        lambda: pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), pa.array(["x" * 5000])),
        lambda: pa.array([Decimal(number) for number in numbers.tolist()], pa.decimal128(10, 2)),
    ]
    return random.choice([*makers[:3] * 6, *makers])()


def _parquet(random: Random) -> bytes:
    rows = random.choice([0, 1, 2, 5, 300, 100_000])
    names = random.choice([["client", "label"], ["client", "a", "b"], ["a", "b", "c"], ["client", "client", "a"]])
    kinds = [pa.array([f"k{row}" for row in range(rows)]) if name == "client" else None for name in names]
    columns = [
        kind if kind is not None and random.random() < 0.8 else _column(random, rows if rows < 1000 else 1000)
        for kind in kinds
    ]
    shortest = min(map(len, columns))
    table = pa.Table.from_arrays([column.slice(0, shortest) for column in columns], names=names)
    out = io.BytesIO()
    parquet.write_table(table, out, compression=random.choice(["snappy", "zstd", "none"]))
    return out.getvalue()


def _array(random: Random) -> np.ndarray:
    kinds = ["i8", "u1", "f4", "f8", "c16", "M8[s]", "m8[s]", "U3", "S2", "?", "i4,i4", "O", "u8", "f2", ">i4"]
    shape = random.choice([(2, 2), (3,), (), (0, 2), (2, 0), (1, 1000), (500, 3), (2, 2, 2)])
    if (kind := random.choice(kinds)) == "O":
        return np.full(shape, "__import__('os').system('touch owned')", dtype=object)
    values = np.arange(int(np.prod(shape, dtype=int))) % random.choice([2, 7, 10**9])
    return values.astype(kind).reshape(shape) if kind != "i4,i4" else np.zeros(shape, kind)


def _npy(random: Random) -> bytes:
    out = io.BytesIO()
    np.save(out, _array(random), allow_pickle=True)
    return out.getvalue()


def _npz(random: Random) -> bytes:
    names = random.choice(
        [
            ["labels", "indices", "sizes", "test_indices", "test_sizes", "num_classes", "recipe"],
            ["images", "labels", "test_images", "test_labels", "classes"],
        ]
    )
    out = io.BytesIO()
    kept = names if random.random() < 0.8 else random.sample(names, len(names) - 1)
    arrays = {name: _array(random) for name in kept}
    if random.random() < 0.5:
        arrays |= {
            name: value
            for name, value in {
                "labels": np.array([0, 1, 0, 1]), "indices": np.array([0, 1, 2, 3]), "sizes": np.array([2, 2]),
                "test_indices": np.array([], int), "test_sizes": np.array([0, 0]), "num_classes": np.array(2),
                "recipe": np.array("{}"),
            }.items()
            if name in kept and random.random() < 0.8
        }  # fmt: skip
    random.choice([np.savez, np.savez_compressed])(out, allow_pickle=True, **arrays)
    return out.getvalue()


def _spec(random: Random) -> bytes:
    name = random.choice(["fedeas", "uniform", "greedy", "no-generation", "fedprox", "gaussian", "shared"])
    keys = ["beta", "budget", "fill", "mu", "of", _piece(random)]
    given = [(random.choice(keys), random.choice([_piece(random), "3"])) for _ in range(random.choice([0, 1, 1, 2]))]
    fields = ",".join(f"{key}={value}" for key, value in given)
    return f"{name}({fields})".encode("utf-8", "replace")


def _overrides(random: Random) -> bytes:
    parts = [f"{random.choice([*KEYS, _piece(random)])}={_piece(random)}" for _ in range(random.choice([1, 1, 3]))]
    return SEPARATOR.join(parts).encode("utf-8", "replace")


def _toml(random: Random) -> bytes:
    lines = [f"{random.choice(KEYS)} = {_piece(random)}" for _ in range(random.choice([1, 3]))]
    lines += [f'{random.choice(KEYS)} = "{_piece(random)}"', random.choice(["", "[train]", "a = " + "[" * 3000])]
    random.shuffle(lines)
    return "\n".join(lines).encode("utf-8", "replace")


def _json(random: Random) -> bytes:
    value = random.choice(["[" * 3000, "9" * 5000, '{"round": 1}', "null", "{}", '{"seed": "x"}', _piece(random)])
    return value.encode("utf-8", "replace")


def _arguments(random: Random, command: str) -> bytes:
    parts: list[str] = []
    for _ in range(random.choice([0, 1, 1, 2, 3])):
        parts.append(random.choice(OPTIONS.get(command, OPTIONS["command"])))
        if random.random() < 0.8:
            parts.append(random.choice([*VALUES, _piece(random)]))
    return SEPARATOR.join(parts).encode("utf-8", "replace")
