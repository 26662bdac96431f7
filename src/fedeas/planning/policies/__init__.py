"""Policies, which compute an allocation from label counts."""

from fedeas.core.spec import canonical_spec, read_spec
from fedeas.planning.counts import CertifiedAllocation, SharedAllocation
from fedeas.planning.policies.base import AllocationPolicy, Policy
from fedeas.planning.policies.baselines import BySize, FullBalance, MissingOnly, NoGeneration, Uniform
from fedeas.planning.policies.by_gain import CostAware, Greedy, Optimal
from fedeas.planning.policies.fedeas import FedEAS
from fedeas.planning.policies.kl import KL
from fedeas.planning.policies.pool import Pool

__all__ = [
    "KL",
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
    "Pool",
    "SharedAllocation",
    "Uniform",
    "parse_policy",
    "policy_spec",
]

POLICIES: dict[str, type[Policy]] = {
    policy.name(): policy
    for policy in (
        FedEAS,
        Uniform,
        MissingOnly,
        BySize,
        Greedy,
        Optimal,
        KL,
        Pool,
        CostAware,
        FullBalance,
        NoGeneration,
    )
}


def parse_policy(text: str) -> Policy:
    """The policy that a spec describes.

    >>> parse_policy("uniform(budget=fedeas(beta=8))")
    Uniform(budget=FedEAS(beta=8, gamma=0.5, entropy=True, fill='below-mean'))
    >>> parse_policy("missing-only(budget=100)").spec
    'missing-only(budget=100)'
    """
    return read_spec(text, POLICIES, "policy", Policy)


def policy_spec(text: str) -> str:
    """The one spelling of a policy's spec; a user's own code is not imported, and its arguments are not checked."""
    return canonical_spec(text, POLICIES, "policy")
