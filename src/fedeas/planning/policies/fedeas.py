"""FedEAS, the paper's policy: an entropy-adaptive budget for each client, spent on its scarce classes."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedeas.core.arrays import FloatArray, IntArray, for_row_blocks, frozen
from fedeas.core.errors import PolicyError
from fedeas.core.spec import NotNegative, Positive
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies.base import Policy

Fill = Literal["below-mean", "all"]

# The logarithms in b_k have small rounding errors, which must not lower a whole number before the floor.
ROUNDING_SLACK = 1e-12

MAX_LEVEL = 10.0**12
"""The largest budget b_k: with more, totals would not fit 64 bits."""


@dataclass(frozen=True)
class FedEAS(Policy):
    """Client k fills its scarce classes up to b_k = floor(n̄_k^gamma (1 - H̃_k) beta), Eq. (cap) and (gen).

    Args:
        beta: the one budget parameter, shared by all clients.
        gamma: exponent of the per-class mean count n̄_k; 0.5 is the paper's square root, 1 its linear variant.
        entropy: whether the factor 1 - H̃_k is used; False is the paper's ablation.
        fill: ``"below-mean"`` fills classes with n < n̄_k only, the rule behind the paper's tables;
            ``"all"`` fills every class below b_k, Eq. (gen) as printed.

    >>> FedEAS(beta=4).allocate(LabelCounts([[100, 2, 0], [40, 40, 40]])).n
    array([[ 0, 19, 21],
           [ 0,  0,  0]])
    """

    beta: Positive = 12.0
    gamma: NotNegative = 0.5
    entropy: bool = True
    fill: Fill = "below-mean"
    is_local = True
    description = (
        "Skewed clients get more, balanced ones none; each fills its scarce classes. Needs its own counts only."
    )
    colour = "blue"

    def scale(self, counts: LabelCounts) -> FloatArray:
        """The factor s_k of beta: n̄_k^gamma (1 - H̃_k) of each client."""
        mean = counts.sizes / counts.num_classes
        with np.errstate(over="ignore"):
            size_factor = np.sqrt(mean) if self.gamma == 0.5 else np.minimum(mean**self.gamma, np.finfo(float).max)
        return size_factor * (1 - counts.entropy) if self.entropy else size_factor

    def budgets(self, counts: LabelCounts) -> IntArray:
        """b_k, the level to which each client fills its scarce classes."""
        with np.errstate(over="ignore"):
            level = self.scale(counts) * self.beta
        return np.floor(np.minimum(level, MAX_LEVEL) * (1 + ROUNDING_SLACK)).astype(np.int64)

    def fillable(self, counts: LabelCounts) -> IntArray:
        """Only classes with fewer samples than this are filled (and with n < b_k)."""
        if self.fill == "all":
            return np.full(counts.num_clients, np.iinfo(np.int64).max)
        return -(-counts.sizes // counts.num_classes)  # n < N / C holds exactly when n < ceil(N / C)

    def allocate(self, counts: LabelCounts) -> Allocation:
        """Fill each scarce class to b_k; in blocks of rows, so that memory stays near input plus output."""
        budgets = self.budgets(counts)
        threshold = np.minimum(budgets, self.fillable(counts))
        generated = np.empty_like(counts.n)

        def fill(rows: slice) -> None:
            n, block = counts.n[rows], generated[rows]
            np.subtract(budgets[rows, None], n, out=block)
            block *= n < threshold[rows, None]

        for_row_blocks(fill, *counts.n.shape)
        if budgets.max() >= MAX_LEVEL and generated[budgets >= MAX_LEVEL].any():
            raise PolicyError(f"{self.spec} asks for {MAX_LEVEL:.0e} samples of a class or more; give a smaller beta")
        return Allocation(frozen(generated), self.spec)
