"""Downloads of the page: files, and the commands that give the same numbers."""

from __future__ import annotations

import shlex
from pathlib import Path
from tempfile import TemporaryDirectory

from fedeas.calls.client_counts import CountSource
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.tables import write_allocation
from fedeas.views.web.choices import Choice


def allocation_file(counts: LabelCounts, allocation: Allocation, ending: str) -> bytes:
    """The allocation as ``.csv``, ``.parquet`` or ``.json``, as ``fedeas plan --out`` writes it."""
    with TemporaryDirectory(prefix="fedeas-planner-") as folder:
        path = Path(folder) / f"allocation{ending}"
        write_allocation(path, counts, allocation)
        return path.read_bytes()


def counts_file(counts: LabelCounts) -> bytes:
    """The counts as CSV, for the commands."""
    return allocation_file(counts, Allocation(counts.n), ".csv")


def commands(federation: CountSource, choice: Choice) -> str:
    """The command that gives the same numbers, after the command that makes the table, if there is one."""
    plan = " ".join(["fedeas plan", federation.arguments, *map(shlex.quote, choice.arguments)])
    return "\n".join(line for line in (federation.made_by, plan) if line)
