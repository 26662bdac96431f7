"""Turn the choices on the page into a policy, with the same functions as ``fedeas plan``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from fedeas.planning.beta import MAX_SHARE, MIN_REMOVED
from fedeas.planning.counts import LabelCounts
from fedeas.planning.policies import POLICIES, FedEAS, Policy
from fedeas.planning.policies.pool import PoolFill
from fedeas.planning.policies.round_bias import Participation
from fedeas.planning.policies.targets import Target
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

OFFERED: dict[Any, tuple[str, str]] = {
    Target: (
        "Towards which class shares?",
        "uniform: equal shares; global: those of all real images together, which leaves a long tail as it is.",
    ),
    PoolFill: (
        "Up to where do clients fill their classes?",
        "mean: to the client's mean class size; max: to its largest class.",
    ),
    Participation: (
        "Share of the clients in a round",
        "Give the share of the run, rounds.participation.",
    ),
}
"""What the page asks for beside the budget, by the types of fields: the question, and help."""

NO_LIMIT = Limits()


class Option(NamedTuple):
    """A field of a policy that the page offers; without `choices` it is a share, a number."""

    field: str
    label: str
    help: str
    choices: tuple[str, ...]
    default: Any


def options_of(policy: str) -> list[Option]:
    """The fields of this policy that the page offers beside its budget.

    >>> [(each.field, each.choices, each.default) for each in options_of("round-bias")]
    [('participation', (), 0.1), ('target', ('uniform', 'global'), 'uniform')]
    """
    kind = POLICIES[policy]
    hints = get_type_hints(kind, include_extras=True)
    return [
        Option(each.name, *OFFERED[hint], get_args(hint) if get_origin(hint) is Literal else (), each.default)
        for each in fields(kind)
        if (hint := hints[each.name]) in OFFERED
    ]


@dataclass(frozen=True)
class Choice:
    """A policy by name, with the size of its budget or, for cost-aware, the price of an image.

    `options` are values of other fields that differ from their default.
    """

    policy: str = "fedeas"
    limits: Limits = NO_LIMIT
    price: float = 0.1
    options: Mapping[str, Any] = field(default_factory=dict)

    def resolved(self, counts: LabelCounts) -> Policy:
        """The policy itself."""
        return choose_policy(self.spec, self.limits if takes_budget(self.policy) else NO_LIMIT, counts)

    @property
    def spec(self) -> str:
        """The spec for `choose_policy`."""
        given = {"price": self.price} if self.policy == "cost-aware" else self.options
        shown = ", ".join(f"{name}={_text(value)}" for name, value in given.items())
        return f"{self.policy}({shown})" if shown else self.policy

    @property
    def arguments(self) -> list[str]:
        """The same choice for ``fedeas plan``."""
        chosen = [] if self.policy == "fedeas" else ["--policy", self.spec]
        return chosen + (_limit_arguments(self.limits) if takes_budget(self.policy) else [])


def takes_budget(policy: str) -> bool:
    """Whether the user chooses the size of this policy's budget."""
    return issubclass(POLICIES[policy], FedEAS) or bool(POLICIES[policy].budget_field)


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.12g}"


def _limit_arguments(limits: Limits) -> list[str]:
    options: dict[str, float | None] = {
        "--beta": limits.beta,
        "--total": limits.total,
        "--minutes": limits.minutes,
        "--images-per-second": limits.images_per_second,
        "--max-share": limits.max_share,
        "--min-removed": limits.min_removed,
    }
    given = [part for option, value in options.items() if value is not None for part in (option, _text(value))]
    return (["--auto"] if limits.auto else []) + given
