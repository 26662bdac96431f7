"""Checks for parts of one's own: each raises an AssertionError that names the law that does not hold.

>>> from fedeas import FedEAS
>>> check_policy(FedEAS(beta=4))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedeas.testing.generators import check_generator
from fedeas.testing.policies import check_policy

if TYPE_CHECKING:
    from fedeas.algorithms import FedAvg

__all__ = ["check_algorithm", "check_generator", "check_policy"]


def check_algorithm(algorithm: FedAvg) -> None:
    """Check that an algorithm keeps the laws that runs rely on, on three clients of a small model; needs torch."""
    from fedeas.testing.algorithms import check_algorithm as check

    check(algorithm)
