"""A policy of one's own: label counts in, numbers of synthetic images out.

From the root of the repository:

    fedeas plan --example --policy "python:examples.own_policy:RaiseRare(share=0.5)"
    fedeas run digits "policy=python:examples.own_policy:RaiseRare(share=0.5)"
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedeas import Allocation, LabelCounts, Policy, PolicyError


@dataclass(frozen=True)
class RaiseRare(Policy):
    """Every class of a client is raised to a share of its largest class."""

    share: float = 0.5
    is_local: ClassVar[bool] = True  # a client needs its own row of the counts alone

    def __post_init__(self) -> None:
        """Refuse what is no share."""
        if not 0 <= self.share <= 1:
            raise PolicyError(f"share must be between 0 and 1, not {self.share!r}")

    def allocate(self, counts: LabelCounts) -> Allocation:
        """As many images as are missing."""
        wanted = np.floor(self.share * counts.n.max(axis=1, keepdims=True)).astype(np.int64)
        return Allocation(np.maximum(wanted - counts.n, 0), self.spec)
