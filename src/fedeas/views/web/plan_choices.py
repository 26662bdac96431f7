"""What a user of the page chooses, as a policy and as a command, and the files to download.

The policy and the files are made by the functions of ``fedeas plan``.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory

from fedeas.calls.client_counts import CountSource
from fedeas.planning.beta import MAX_SHARE, MIN_REMOVED
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies import POLICIES, FedEAS, Policy
from fedeas.planning.request import Limits, choose_policy
from fedeas.planning.tables import write_allocation


class Size(StrEnum):
    """Ways to choose the size of the budget."""

    BETA = "beta"
    TOTAL = "at most so many images"
    MINUTES = "at most so many minutes"
    SHARE = "synthetic share below"
    REMOVED = "imbalance removed, at least"
    AUTO = "the paper's two conditions"


SIZE_WORDS = {
    Size.BETA: "FedEAS's one parameter: twice the beta is about twice the images for every client.",
    Size.TOTAL: "The largest beta that stays within this many images.",
    Size.MINUTES: "The largest beta whose images are generated in this time.",
    Size.SHARE: "The largest beta that keeps the synthetic part of all data below this.",
    Size.REMOVED: "The smallest beta that removes this much of the label imbalance.",
    Size.AUTO: (
        f"The roundest beta that removes {MIN_REMOVED:.0%} of the imbalance with less than {MAX_SHARE:.0%} of all "
        "data synthetic."
    ),
}

NO_LIMIT = Limits()


@dataclass(frozen=True)
class Choice:
    """The spec of a policy, and how the size of its budget is limited."""

    spec: str = "fedeas"
    limits: Limits = NO_LIMIT

    def resolved(self, counts: LabelCounts) -> Policy:
        """The policy itself."""
        return choose_policy(self.spec, self.limits, counts)

    def commands(self, federation: CountSource) -> str:
        """The command that gives the same numbers, after the command that makes the table, if there is one."""
        chosen = [] if self.spec == "fedeas" else ["--policy", self.spec]
        for name, value in vars(self.limits).items():
            option = f"--{name.replace('_', '-')}"
            if value is True:
                chosen.append(option)
            elif value is not None and value is not False:  # 0 is a limit
                chosen += [option, f"{value:.12g}"]
        plan = " ".join(["fedeas plan", federation.arguments, *map(shlex.quote, chosen)])
        return "\n".join(line for line in (federation.made_by, plan) if line)


def takes_budget(policy: str) -> bool:
    """Whether the user chooses the size of this policy's budget."""
    return issubclass(POLICIES[policy], FedEAS) or bool(POLICIES[policy].budget_field)


def table_file(counts: LabelCounts, allocation: Allocation | None = None, ending: str = ".csv") -> bytes:
    """The allocation, or the counts, as ``.csv`` or ``.parquet``, as ``fedeas plan --out`` writes it."""
    with TemporaryDirectory(prefix="fedeas-planner-") as folder:
        path = Path(folder) / f"allocation{ending}"
        write_allocation(path, counts, Allocation(counts.n) if allocation is None else allocation)
        return path.read_bytes()
