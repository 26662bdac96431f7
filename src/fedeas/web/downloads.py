"""Downloads of the page: files, the config of a run, and the commands that give the same numbers."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedeas.client_counts import CountSource
from fedeas.config import RunConfig
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies import Policy, Pool
from fedeas.planning.tables import write_allocation, write_counts
from fedeas.web.choices import Choice


def allocation_file(counts: LabelCounts, allocation: Allocation, ending: str) -> bytes:
    """The allocation as ``.csv``, ``.parquet`` or ``.json``, as ``fedeas plan --out`` writes it."""
    with TemporaryDirectory(prefix="fedeas-planner-") as folder:
        path = Path(folder) / f"allocation{ending}"
        write_allocation(path, counts, allocation)
        return path.read_bytes()


def counts_file(counts: LabelCounts) -> bytes:
    """The counts as CSV, for the commands."""
    with TemporaryDirectory(prefix="fedeas-planner-") as folder:
        path = Path(folder) / "counts.csv"
        write_counts(path, counts)
        return path.read_bytes()


def commands(federation: CountSource, choice: Choice) -> str:
    """The command that gives the same numbers, after the command that makes the table, if there is one."""
    plan = " ".join(["fedeas plan", federation.arguments, *map(shlex.quote, choice.arguments)])
    return "\n".join(line for line in (federation.made_by, plan) if line)


def run_config(federation: CountSource, policy: Policy) -> str:
    """TOML for ``fedeas run``: this policy, on these clients if a run can have them."""
    shared = {"generator": "shared(of=gaussian)"} if isinstance(policy, Pool) else {}
    content: dict[str, Any] = {"label": "planned", "policy": policy.spec, **shared, **federation.config}
    RunConfig.model_validate(content)
    known = (
        "on the clients that were planned for" if federation.config else "set [data] and [partition] to your clients"
    )
    lines = [f"# Planned with FedEAS; {known}. Everything else is at its default: fedeas run FILE --dry-run"]
    for key, value in content.items():
        if isinstance(value, str):
            lines.append(f"{key} = {json.dumps(value)}")
        else:
            lines += ["", f"[{key}]", *(f"{name} = {json.dumps(each)}" for name, each in value.items())]
    return "\n".join(lines) + "\n"
