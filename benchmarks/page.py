"""Docs page of what was measured: one table for each file of results."""

from __future__ import annotations

import json
from typing import Any

from measure import RESULTS

TITLE = """# Performance

Rendered by `make bench` from `benchmarks/results/`; each table was measured on the machine named under it. A table was
measured in one run, except those of whole federated runs: each of their rows was measured by itself, some with earlier
versions.
"""


def table(rows: list[dict[str, object]]) -> list[str]:
    def cell(value: object) -> str:
        return f"{value:,}" if isinstance(value, int) else str(value)

    head = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["| " + " | ".join(head) + " |", "|" + "---:|" * len(head)]
    return lines + ["| " + " | ".join(cell(row.get(name, "")) for name in head) + " |" for row in rows]


def section(name: str, document: dict[str, Any]) -> list[str]:
    where = document["machine"]
    gpu = f"{where['gpu']} (torch {where['torch']}), " if "gpu" in where else ""
    host = "".join(f"{where[name]}, " for name in ("processor", "system") if name in where)
    machine = f"{gpu}{host}Python {where['python']}, numpy {where['numpy']}"
    return [
        f"## {document['question']}",
        "",
        *table(document["rows"]),
        "",
        f"`benchmarks/{document.get('script', name.partition('-')[0] + '.py')}` on {machine}.",
        "",
    ]


def page() -> str:
    parts = [section(path.stem, json.loads(path.read_text())) for path in sorted(RESULTS.glob("*.json"))]
    return "\n".join([TITLE, *(line for part in parts for line in part)])
