"""Policies, which compute an allocation from label counts."""

from fedeas.core.own_code import find_class
from fedeas.core.spec import canonical_spec, read_call, read_spec
from fedeas.planning.counts import CertifiedAllocation, SharedAllocation
from fedeas.planning.policies.base import AllocationPolicy, Budget, Policy, check_budget
from fedeas.planning.policies.baselines import BySize, FullBalance, MissingOnly, NoGeneration, Uniform
from fedeas.planning.policies.cost_aware import CostAware
from fedeas.planning.policies.fedeas import FedEAS
from fedeas.planning.policies.greedy import Greedy
from fedeas.planning.policies.kl import KL
from fedeas.planning.policies.optimal import Optimal
from fedeas.planning.policies.pool import Pool

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


def policy_class(text: str) -> type[Policy]:
    """The class of the policy that a spec describes, which may be a user's own.

    >>> policy_class("Cost_Aware(price=0.5)").__name__
    'CostAware'
    """
    name = read_call(text, POLICIES, "policy").name
    return POLICIES.get(name) or find_class(name, "policy", Policy)


def lacks_budget(text: str) -> bool:
    """Whether a policy takes a budget that its spec leaves out.

    >>> lacks_budget("kl"), lacks_budget("kl(smoothing=2)"), lacks_budget("kl(budget=5)"), lacks_budget("fedeas")
    (True, True, False, False)
    """
    field = policy_class(text).budget_field
    return bool(field) and field not in policy_fields(text)


def policy_with_budget(text: str, budget: Budget) -> Policy:
    """The policy of a spec that leaves out its budget.

    >>> policy_with_budget("pool(fill=max)", 30).spec
    'pool(distinct=30, fill=max)'
    """
    check_budget(budget)
    return read_spec(text, POLICIES, "policy", Policy, left_out={policy_class(text).budget_field: budget})


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
    "FullBalance",
    "Greedy",
    "MissingOnly",
    "NoGeneration",
    "Optimal",
    "Policy",
    "Pool",
    "SharedAllocation",
    "Uniform",
    "lacks_budget",
    "parse_policy",
    "policy_class",
    "policy_fields",
    "policy_spec",
    "policy_with_budget",
]
