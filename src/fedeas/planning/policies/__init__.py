"""Policies, which compute an allocation from label counts."""

from fedeas.core.own_code import find_class
from fedeas.core.spec import canonical_spec, normalised, own_code_named, read_call, read_spec
from fedeas.planning.policies.base import AllocationPolicy, Policy
from fedeas.planning.policies.baselines import BySize, FullBalance, MissingOnly, NoGeneration, Uniform
from fedeas.planning.policies.cost_aware import CostAware
from fedeas.planning.policies.fedeas import FedEAS
from fedeas.planning.policies.feedback import Feedback
from fedeas.planning.policies.greedy import Greedy
from fedeas.planning.policies.kl import KL
from fedeas.planning.policies.optimal import CertifiedAllocation, Optimal
from fedeas.planning.policies.pool import Pool, SharedAllocation
from fedeas.planning.policies.round_bias import RoundBias

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
        RoundBias,
        Feedback,
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


def policy_class(name: str) -> type[Policy] | None:
    """The policy of this name, a user's own among them; None where the text is more than a name, or nobody's.

    >>> policy_class("Full_Balance").__name__
    'FullBalance'
    """
    if own := own_code_named(name, POLICIES, "policy"):
        return None if "(" in own else find_class(own, "policy", Policy)
    return POLICIES.get(normalised(name))


def policy_fields(text: str) -> set[str]:
    """The fields that a policy's spec sets.

    >>> policy_fields("fedeas(beta=12)")
    {'beta'}
    """
    return {*read_call(text, POLICIES, "policy").arguments}


def policy_spec(text: str) -> str:
    """The one spelling of a policy's spec; a user's own code is not imported, and its arguments are not checked."""
    return canonical_spec(text, POLICIES, "policy")


__all__ = [
    "KL",
    "POLICIES",
    "AllocationPolicy",
    "BySize",
    "CertifiedAllocation",
    "CostAware",
    "FedEAS",
    "Feedback",
    "FullBalance",
    "Greedy",
    "MissingOnly",
    "NoGeneration",
    "Optimal",
    "Policy",
    "Pool",
    "RoundBias",
    "SharedAllocation",
    "Uniform",
    "parse_policy",
    "policy_class",
    "policy_fields",
    "policy_spec",
]
