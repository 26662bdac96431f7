"""The methods that the tables compare: which policy, algorithm and images each has."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from fedeas import FedEAS

NO_GENERATION = "no-generation"
GENERATORS = {"ddpm": "{generator}", "sd-turbo": "{other}"}  # the profile's, and the one that it is compared with
BUDGET = "{budget}"  # placeholder for the profile's FedEAS policy, whose total the other policies match


@dataclass(frozen=True)
class Method:
    """A row of the paper's tables."""

    title: str
    algorithm: str = "fedavg"
    policy: str = NO_GENERATION
    generator: str = "{generator}"  # one of `GENERATORS` or a spec
    held_out: bool = False  # whether a part of the training images goes to no client
    loss: str = ""  # replaces cross-entropy
    sampling: Literal["shuffled", "balanced"] = "shuffled"  # of batches by clients
    # Whether one client holds all images: the ceiling of what clients can reach. It sees as many images in a round as
    # all participants together, and each image at least once.
    central: bool = False
    equal_steps: bool = False  # whether every client takes the profile's number of steps, however many samples it has

    @property
    def name(self) -> str:
        """The method's name in ``published.toml``."""
        return self.title.lower()

    def combined(self, other: Method) -> Method:
        """A method with the policy of this one and the algorithm of the other."""
        return replace(self, title=f"{self.title} + {other.title}", algorithm=other.algorithm)

    @property
    def run_name(self) -> str:
        """A name from the method's settings, so that all tables find the same run folder."""
        words = [self.algorithm, *[self.policy] * (self.policy != NO_GENERATION), *["apart"] * self.held_out]
        words += [self.loss.partition("(")[0]] * bool(self.loss) + ["steps"] * self.equal_steps
        words += ["balanced"] * (self.sampling == "balanced") + ["central"] * self.central
        if self.generator:
            kind, _, settings = self.generator.partition("(")
            words += [kind, *re.findall(r"each=\d+|seed=\d+|disjoint|(?<=of=)[\w-]+", settings)]
        return re.sub(r"[^a-z0-9.]+", "-", re.sub("(budget|distinct)=", "", "-".join(words)).lower()).strip("-")


def with_total(policy: str, budget: str = BUDGET) -> str:
    """The policy with the total of another, by default of the profile's plan.

    >>> with_total("uniform", "fedeas(beta=8)")
    'uniform(budget=fedeas(beta=8))'
    """
    return f"{policy}(budget={budget})"


FEDAVG = Method("FedAvg")
UNIFORM = Method("Uniform", policy=with_total("uniform"))
MISSING_ONLY = Method("Missing-only", policy=with_total("missing-only"))
FULL_BALANCE = Method("Full-Balance", policy="full-balance")
FEDEAS = Method("FedEAS", policy=BUDGET)
SCAFFOLD = Method("SCAFFOLD", "scaffold")

METHODS = {
    method.name: method
    for method in (
        FEDAVG, Method("FedProx", "fedprox"), SCAFFOLD, Method("MOON", "moon"), Method("FedGen", "fedgen"),
        Method("FedMix", "fedmix"), UNIFORM, MISSING_ONLY, FULL_BALANCE, FEDEAS,
    )
}  # fmt: skip
"""The rows of the main table, by name."""

GREEDY = Method("Greedy", policy=with_total("greedy"))
OPTIMAL = Method("Optimal", policy=with_total("optimal"))
POLICIES = (FEDAVG, UNIFORM, MISSING_ONLY, FEDEAS, GREEDY, OPTIMAL)
"""The policies that are compared at equal budget, beyond the paper."""

ABLATION = {
    "FedEAS (beta = 8)": FedEAS(8),
    "without entropy (beta = 6)": FedEAS(6, entropy=False),
    "linear in the size (beta = 0.6)": FedEAS(0.6, gamma=1),
}
"""The rows of Table 2, which says beta = 8 for all three; these are the betas that give its totals."""
