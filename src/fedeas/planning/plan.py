"""Plan from Python in one call: counts in, a plan with names, totals and a table out."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedeas.core.arrays import IntArray
from fedeas.core.foreign_text import for_html
from fedeas.errors import InputError
from fedeas.planning.counts import Allocation, LabelCounts, Table, as_counts
from fedeas.planning.policies import Policy
from fedeas.planning.request import Limits, choose_policy
from fedeas.planning.summary import Summary
from fedeas.planning.tables import read_counts, write_allocation

DATASETS = ("folder", "npz", "hub")  # what stands before the colon of a dataset


@dataclass(frozen=True, eq=False)
class Plan:
    """How many synthetic samples each client generates of each class, with the counts that it was made from."""

    counts: LabelCounts
    allocation: Allocation
    policy: Policy

    @property
    def n(self) -> IntArray:
        """Synthetic samples, clients x classes."""
        return self.allocation.n

    @property
    def total(self) -> int:
        """B, the synthetic samples of all clients."""
        return self.allocation.total

    @cached_property
    def summary(self) -> Summary:
        """The key figures."""
        return Summary.of(self.counts, self.allocation)

    def to_frame(self) -> Any:
        """The plan as a pandas DataFrame, with the names of clients and classes."""
        return self.allocation.to_frame()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as CSV, Parquet or JSON, by the file's ending."""
        write_allocation(path, self.counts, self.allocation)

    def __repr__(self) -> str:
        clients, classes = self.n.shape
        return f"<{self.policy.spec}: {self.total:,} samples for {clients:,} clients x {classes:,} classes>"

    def _repr_html_(self) -> str:
        """The plan in a notebook: its key figures, and the table."""
        shown = f"{self.total:,} synthetic samples, {self.summary.removed:.1%} of the imbalance removed"
        return f"<p>{for_html(self.policy.spec)}: {for_html(shown)}</p>{self.allocation._repr_html_()}"


def plan(
    counts: Table | str | os.PathLike[str],
    policy: Policy | str = "fedeas",
    *,
    beta: float | None = None,
    total: int | None = None,
    auto: bool = False,
    minutes: float | None = None,
    images_per_second: float | None = None,
    max_share: float | None = None,
    min_removed: float | None = None,
) -> Plan:
    """Plan how many synthetic samples each client generates of each class, as ``fedeas plan`` does.

    Args:
        counts: label counts: an array, nested lists, a pandas or Arrow table, `LabelCounts`, or the path of a file.
        policy: a policy or its spec.
        beta: FedEAS's budget parameter.
        total: generate at most this many samples.
        auto: choose beta by the paper's two conditions, `min_removed` and `max_share`.
        minutes: generate for at most this long, at the rate `images_per_second`.
        images_per_second: see `minutes`.
        max_share: stay below this synthetic share.
        min_removed: remove this share of the imbalance.

    >>> plan([[900, 80, 20], [10, 300, 690]], beta=6)
    <fedeas(beta=6): 85 samples for 2 clients x 3 classes>
    """
    _refuse_dataset(counts)
    table = read_counts(counts) if isinstance(counts, str | os.PathLike) else as_counts(counts)
    limits = Limits(beta, total, minutes, images_per_second, auto, max_share, min_removed)
    if isinstance(policy, str):
        chosen = choose_policy(policy, limits, table)
    elif limits.given:
        raise InputError(f"{policy.spec} has its parameters already; give limits with a spec such as 'fedeas'")
    else:
        chosen = policy
    return Plan(table, chosen.allocate(table), chosen)


def _refuse_dataset(counts: Any) -> None:
    """Say how to plan for the clients of a dataset, which the command line can read."""
    if isinstance(counts, str) and counts.startswith(tuple(f"{name}:" for name in DATASETS)):
        raise InputError(
            f"{counts}: a dataset, not a table of counts; `fedeas plan {counts} --auto --out plan.csv` plans for its "
            "clients, and fedeas.generate('plan.csv', ...) takes the plan"
        )
