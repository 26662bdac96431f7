"""A plan in Python, with its counts, and the key figures of a plan, summed over parts of a federation of any size."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from fedeas.core.arrays import IntArray
from fedeas.core.errors import InputError
from fedeas.core.foreign_text import for_html
from fedeas.planning import scores
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies.base import AllocationPolicy, policy_name
from fedeas.planning.tables import read_allocation, write_allocation


class Extreme(NamedTuple):
    """A client and how many synthetic samples it generates."""

    samples: int
    client: str


@dataclass(frozen=True)
class Summary:
    """Totals of a plan. Summaries of parts add up to the summary of the whole.

    >>> counts = LabelCounts([[10, 0], [5, 5]])
    >>> whole = Summary.of(counts, Allocation([[0, 10], [0, 0]]))
    >>> whole.synthetic, whole.removed, whole.most.client
    (10, 1.0, '0')
    """

    clients: int
    real: int
    synthetic: int
    receiving: int
    imbalance_before: float
    imbalance_after: float
    least: Extreme
    most: Extreme
    largest: IntArray = field(repr=False, compare=False)
    """The most samples of any client, for each class."""

    @staticmethod
    def of(counts: LabelCounts, allocation: Allocation, names: Sequence[object] | None = None) -> Summary:
        """The summary of these clients; `names` are their names if the counts have none."""
        per_client = allocation.per_client
        least, most = (
            Extreme(int(per_client[k]), counts.client_name(k) if names is None else str(names[k]))
            for k in (int(per_client.argmin()), int(per_client.argmax()))
        )
        return Summary(
            clients=counts.num_clients,
            real=counts.total,
            synthetic=allocation.total,
            receiving=int(np.count_nonzero(per_client)),
            imbalance_before=scores.imbalance(counts),
            imbalance_after=scores.imbalance(counts, allocation),
            least=least,
            most=most,
            largest=allocation.n.max(axis=0),
        )

    def __add__(self, other: Summary) -> Summary:
        real = self.real + other.real
        # I weighs clients by their share of the real samples.
        mine, theirs = self.real / real, other.real / real
        sums = {name: getattr(self, name) + getattr(other, name) for name in ("clients", "synthetic", "receiving")}
        means = {
            name: mine * getattr(self, name) + theirs * getattr(other, name)
            for name in ("imbalance_before", "imbalance_after")
        }
        return Summary(
            real=real,
            least=min(self.least, other.least, key=itemgetter(0)),
            most=max(self.most, other.most, key=itemgetter(0)),
            largest=np.maximum(self.largest, other.largest),
            **sums,
            **means,
        )

    @property
    def distinct(self) -> int:
        """Different images that are needed if all clients share one pool."""
        return int(self.largest.sum())

    @property
    def removed(self) -> float:
        """Share of the imbalance removed; 0 if there was none."""
        return 1 - self.imbalance_after / self.imbalance_before if self.imbalance_before > 0 else 0.0

    @property
    def synthetic_share(self) -> float:
        """Share of synthetic samples in the combined training data."""
        return self.synthetic / (self.real + self.synthetic)


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
        """Write it as CSV or Parquet, by the file's ending."""
        write_allocation(path, self.counts, self.allocation)

    def __repr__(self) -> str:
        clients, classes = self.n.shape
        return f"<{policy_name(self.policy)}: {self.total:,} samples for {clients:,} clients x {classes:,} classes>"

    def _repr_html_(self) -> str:
        """The plan in a notebook: its key figures, and the table."""
        shown = f"{self.total:,} synthetic samples, {self.summary.removed:.1%} of the imbalance removed"
        return f"<p>{for_html(policy_name(self.policy))}: {shown}</p>{self.allocation._repr_html_() or ''}"


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
