"""Run every benchmark and render docs/performance.md from what they measured; `rounds` needs the extra `flower`,
`planner` the extra `web`.

Those named `gpu_` need a GPU, those named `flower_` start processes of their own, and `storage` needs other libraries.
They are started by hand, and the page shows what they measured last.
"""

from __future__ import annotations

import json
from typing import Any

import algorithms
import allocate
import planner
import rounds
import samplers
import search
import start
import stream
from measure import RESULTS

TITLE = """# Performance

Rendered by `make bench` from `benchmarks/results/`; each table was measured in one run on the machine named under it.
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


def main() -> None:
    for benchmark in (start, allocate, search, stream, algorithms, samplers, planner, rounds):
        benchmark.main()
    (RESULTS.parent.parent / "docs" / "performance.md").write_text(page())


if __name__ == "__main__":
    main()
