"""Generate only samples that are worth their price: the cost-aware surrogate of the paper's supplement B."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedeas.core.arrays import FloatArray, IntArray
from fedeas.core.spec import Positive
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies.base import Policy
from fedeas.planning.policies.waterfill import cubic_root


@dataclass(frozen=True)
class CostAware(Policy):
    """Maximise J = sum_{k,c} a_k^c g(m_k^c / d_k^c) - price * sum m_k^c over classes below the client's mean.

    The supplement leaves weights and curves open. Here they are those of the imbalance score: d = n̄_k - n_k^c is what
    the class lacks, g(r) = 1 - h(r) = 4r / (1 + r)^2 the closed-form benefit of filling a share r of it, and
    a = N_k (q_k^c - 1/C)^2 the pair's part of I (times sum N, which keeps the policy local). One sample is then worth
    at most 4 (1/C - q_k^c): a price of 4/C or more generates nothing, a price near 0 fills every class to the mean.

    Setting J' = 0 gives the interior optimum r* with (1 - r) / (1 + r)^3 = price / (4 (1/C - q)), a cubic in 1 + r
    with a closed form. J is concave in m, so the best whole number is one of the two beside r* d.

    >>> CostAware(price=0.1).allocate(LabelCounts([[90, 10, 0]])).n
    array([[ 0, 14, 22]])
    """

    price: Positive
    is_local = True
    description = "Generates for as long as the next image is worth its price."

    def allocate(self, counts: LabelCounts) -> Allocation:
        """The optimal whole number for each pair."""
        generated = np.empty_like(counts.n)
        for rows in counts.blocks():
            sizes = counts.sizes[rows, None]
            lack = np.maximum(sizes / counts.num_classes - counts.n[rows], 0.0)
            with np.errstate(divide="ignore"):
                ratio = self.price * sizes / (4 * lack)  # price over the worth of the first sample
            wanted = np.where(ratio < 1, cubic_root(1 / ratio, -2 / ratio) - 1, 0.0) * lack
            below = np.floor(np.clip(wanted, 0.0, lack))
            generated[rows] = below + (self._benefit(below + 1, lack, sizes) > self._benefit(below, lack, sizes))
        return Allocation(generated, self.spec)

    def _benefit(self, samples: FloatArray, lack: FloatArray, sizes: IntArray) -> FloatArray:
        """J of a pair, a 4r / (1 + r)^2 - price m with a = lack^2 / N, written so that lack may be 0."""
        with np.errstate(invalid="ignore"):
            share = np.where(lack > 0, 4 * samples * lack / (lack + samples) ** 2, 0.0)
        return lack**2 / sizes * share - self.price * samples
