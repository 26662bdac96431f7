"""Policies: label counts in, allocation out."""

from fedeas.policies.base import AllocationPolicy, Policy
from fedeas.policies.baselines import BySize, FullBalance, MissingOnly, NoGeneration, Uniform
from fedeas.policies.cost_aware import CostAware
from fedeas.policies.fedeas import FedEAS
from fedeas.policies.greedy import Greedy
from fedeas.policies.optimal import CertifiedAllocation, Optimal

__all__ = [
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
]
