"""A plan in Python: its counts and its allocation, with names, totals and a table."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedeas.core.arrays import IntArray
from fedeas.core.errors import InputError
from fedeas.core.foreign_text import for_html
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies import AllocationPolicy
from fedeas.planning.policies.base import policy_name
from fedeas.planning.summary import Summary
from fedeas.planning.tables import read_allocation, write_allocation


@dataclass(frozen=True, eq=False)
class Plan:
    """How many synthetic samples each client generates of each class, with the counts that it was made from."""

    counts: LabelCounts
    allocation: Allocation
    policy: AllocationPolicy
    how: str = ""
    """How the counts were read, if they came from a file or a dataset."""

    @property
    def n(self) -> IntArray:
        """Synthetic samples, clients x classes."""
        return self.allocation.n

    @property
    def per_client(self) -> IntArray:
        """Synthetic samples of each client."""
        return self.allocation.per_client

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
        return f"<{policy_name(self.policy)}: {self.total:,} samples for {clients:,} clients x {classes:,} classes>"

    def _repr_html_(self) -> str:
        """The plan in a notebook: its key figures, and the table."""
        shown = f"{self.total:,} synthetic samples, {self.summary.removed:.1%} of the imbalance removed"
        return f"<p>{for_html(policy_name(self.policy))}: {for_html(shown)}</p>{self.allocation._repr_html_()}"


AnyPlan = Plan | Allocation | str | os.PathLike[str]
"""What `fedeas.plan` gives, an allocation of a policy, or the path of a written plan."""


def read_plan(plan: AnyPlan, instead: str = "make a fedeas.Allocation of a table") -> Allocation:
    """The allocation of a plan, read from its file if a path is given; an error says what to do `instead`."""
    if isinstance(plan, Plan):
        return plan.allocation
    if isinstance(plan, Allocation):
        return plan
    if isinstance(plan, str | os.PathLike):
        return read_allocation(plan)
    raise InputError(f"plan must be a plan, an allocation or the path of one, not a {type(plan).__name__}; {instead}")
