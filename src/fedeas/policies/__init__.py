"""Policies: label counts in, allocation out."""

from fedeas.policies.base import AllocationPolicy, Policy
from fedeas.policies.baselines import BySize, FullBalance, MissingOnly, NoGeneration, Uniform
from fedeas.policies.cost_aware import CostAware
from fedeas.policies.fedeas import FedEAS
from fedeas.policies.greedy import Greedy
from fedeas.policies.optimal import CertifiedAllocation, Optimal
from fedeas.spec import read_spec

POLICIES: dict[str, type[Policy]] = {
    policy.name(): policy
    for policy in (FedEAS, Uniform, MissingOnly, BySize, Greedy, Optimal, CostAware, FullBalance, NoGeneration)
}


def parse_policy(text: str) -> Policy:
    """The policy that a spec describes.

    >>> parse_policy("uniform(budget=fedeas(beta=8))")
    Uniform(budget=FedEAS(beta=8, gamma=0.5, entropy=True, fill='below-mean'))
    >>> parse_policy("missing-only(budget=100)").spec
    'missing-only(budget=100)'
    """
    return read_spec(text, POLICIES, "policy")


__all__ = [
    "POLICIES",
    "AllocationPolicy",
    "BySize",
    "CertifiedAllocation",
    "CostAware",
    "FedEAS",
    "FullBalance",
    "Greedy",
    "MissingOnly",
    "NoGeneration",
    "Optimal",
    "Policy",
    "Uniform",
    "parse_policy",
]
