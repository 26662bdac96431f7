"""Docs page of what was measured: one table for each file of results, in groups."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from measure import RESULTS

TITLE = """# Performance

This page shows how fast FedEAS is and how much memory it needs. `make bench` renders it from `benchmarks/results/`;
each table was measured on the machine named under it. A table was measured in one run of its script, except those of
whole federated runs: each of their rows was measured by itself, some with earlier versions.
"""


class Group(NamedTuple):
    """Tables that belong together."""

    title: str
    about: str
    names: tuple[str, ...]
    """Files of results, in the order of the page."""

    @property
    def anchor(self) -> str:
        """Where links to the group's heading lead.

        >>> Group("Runs on a CPU", "", ()).anchor
        'runs-on-a-cpu'
        """
        return re.sub(r"[^\w -]", "", self.title).lower().replace(" ", "-")


GROUPS = (
    Group(
        "Planning",
        "How long a plan takes, from a small table to millions of clients, and how much memory.",
        ("start", "allocate", "search", "stream", "load-capped", "load-fleet"),
    ),
    Group(
        "The planner page",
        "How soon the page in the browser shows a change.",
        ("planner", "planner-browser", "load-sessions"),
    ),
    Group(
        "Runs on a CPU",
        "How fast rounds are, how they use several cores, and what each algorithm costs.",
        ("rounds", "cores", "exchange", "rounds-growth", "rounds-overhead", "algorithms"),
    ),
    Group(
        "Runs on a GPU",
        "How fast the engines train the clients of a round, what each of their parts brings, and how long whole runs "
        "take.",
        (
            "gpu-rounds-imagenet-stem",
            "gpu-rounds",
            "gpu-runs-imagenet-stem",
            "gpu-runs",
            "gpu-rounds-ablation",
            "gpu-rounds-growth-imagenet-stem",
            "gpu-rounds-growth",
            "gpu-rounds-steps-imagenet-stem",
            "gpu-rounds-kernels-imagenet-stem",
            "gpu-rounds-kernels",
            "gpu-rounds-preparation-imagenet-stem",
        ),
    ),
    Group(
        "Rounding and precision",
        "How far the fast engines are from the reference. The accuracy of `fp32` and `bf16` was compared in one seed "
        "of a short run, which ends at low accuracy. No full run of ResNet-18 was made in `fp32`.",
        (
            "gpu-rounds-agreement",
            "gpu-rounds-correctness-imagenet-stem",
            "gpu-rounds-rounding-imagenet-stem",
            "gpu-rounds-correctness",
        ),
    ),
    Group(
        "Generators",
        "How fast generators are trained and make images, and how good a classifier finds these. [Generators]"
        "(generators.md) explains the measures.",
        (
            "samplers",
            "cpu-generators",
            "cpu-generators-28",
            "cpu-generators-32",
            "gpu-generator-training",
            "gpu-generator-sampling",
            "gpu-generator-steps",
            "federated-generators",
        ),
    ),
    Group(
        "Images and data on disk",
        "The image bank beside databases, and the data cache beside Hugging Face `datasets`.",
        ("storage-bank", "storage-cache"),
    ),
    Group(
        "Flower",
        "What messages and rounds cost on Flower, and how much memory the server needs.",
        ("flower-messages", "flower-overhead", "flower-scale", "server-memory"),
    ),
    Group(
        "Privacy",
        "What a curious server learns about a client's labels, and what noise on the updates costs.",
        ("leakage", "privacy"),
    ),
)


def table(rows: list[dict[str, object]]) -> list[str]:
    def cell(value: object) -> str:
        return f"{value:,}" if isinstance(value, int) else str(value)

    head = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["| " + " | ".join(head) + " |", "|" + "---:|" * len(head)]
    return lines + ["| " + " | ".join(cell(row.get(name, "")) for name in head) + " |" for row in rows]


def section(name: str) -> list[str]:
    """One table with its question and its machine."""
    document: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    where = document["machine"]
    gpu = f"{where['gpu']} (torch {where['torch']}), " if "gpu" in where else ""
    host = "".join(f"{where[name]}, " for name in ("processor", "system") if name in where)
    machine = f"{gpu}{host}Python {where['python']}, numpy {where['numpy']}"
    script = document.get("script", name.partition("-")[0] + ".py")
    return [
        f"### {document['question']}",
        "",
        *table(document["rows"]),
        "",
        f"`{'benchmarks/' * script.endswith('.py')}{script}` on {machine}.",
        "",
    ]


def page() -> str:
    """The whole page: a list of contents, then the groups. A result that no group names is an error."""
    left_over = {path.stem for path in RESULTS.glob("*.json")} - {name for group in GROUPS for name in group.names}
    if left_over:
        raise ValueError(f"results without a group: {', '.join(sorted(left_over))}; add them to GROUPS in page.py")
    lines = [TITLE, *(f"- [{group.title}](#{group.anchor})" for group in GROUPS), ""]
    for group in GROUPS:
        lines += [f"## {group.title}", "", group.about, ""]
        lines += [line for name in group.names for line in section(name)]
    return "\n".join(lines)
