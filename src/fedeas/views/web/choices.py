"""Turn the choices on the page into a policy, with the same functions as ``fedeas plan``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fedeas.planning.beta import MAX_SHARE, MIN_REMOVED
from fedeas.planning.counts import LabelCounts
from fedeas.planning.policies import POLICIES, FedEAS, Policy
from fedeas.planning.policies.pool import PoolFill
from fedeas.planning.request import Limits, choose_policy


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
    """A policy by name, with the size of its budget; for cost-aware the price of an image, for pool its fill."""

    policy: str = "fedeas"
    limits: Limits = NO_LIMIT
    price: float = 0.1
    fill: PoolFill = "mean"

    def resolved(self, counts: LabelCounts) -> Policy:
        """The policy itself."""
        return choose_policy(self.spec, self.limits if takes_budget(self.policy) else NO_LIMIT, counts)

    @property
    def spec(self) -> str:
        """The spec for `choose_policy`."""
        if self.policy == "cost-aware":
            return f"cost-aware(price={_text(self.price)})"
        return "pool(fill=max)" if self.policy == "pool" and self.fill == "max" else self.policy

    @property
    def arguments(self) -> list[str]:
        """The same choice for ``fedeas plan``."""
        chosen = [] if self.policy == "fedeas" else ["--policy", self.spec]
        for name, value in vars(self.limits).items() if takes_budget(self.policy) else ():
            option = f"--{name.replace('_', '-')}"
            if value is True:
                chosen.append(option)
            elif value is not None and value is not False:  # 0 is a limit
                chosen += [option, _text(value)]
        return chosen


def takes_budget(policy: str) -> bool:
    """Whether the user chooses the size of this policy's budget."""
    return issubclass(POLICIES[policy], FedEAS) or bool(POLICIES[policy].budget_field)


def _text(value: float) -> str:
    return f"{value:.12g}"
