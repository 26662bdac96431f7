"""Clients that take one sample after the other, each time of the class that lacks most; many clients at once."""

from __future__ import annotations

import numpy as np

from fedeas.core.arrays import FloatArray, IntArray
from fedeas.planning.counts import LabelCounts


def next_samples(after: FloatArray, weights: FloatArray, shares: FloatArray) -> tuple[FloatArray, IntArray]:
    """The gain of each client's next sample and its class, for clients with these samples and weights p_k.

    The gain is p_k / N_k ((q_k - t) q_k - (q_k^c - t_c)), half of Eq. (gain) for shares t of any target. A client's
    number has the same bits alone and among others.

    >>> gains, classes = next_samples(np.array([[6.0, 2.0]]), np.array([1.0]), np.array([0.5, 0.5]))
    >>> gains, classes
    (array([0.046875]), array([1]))
    """
    sizes = after.sum(axis=1)
    lacking = shares - after / sizes[:, None]
    own = (lacking[:, None, :] @ after[:, :, None])[:, 0, 0]  # one dot product for each client
    return weights / sizes * (lacking.max(axis=1) - own / sizes), lacking.argmax(axis=1)


LEAST_GAIN = 1e-12
"""Gains below this part of the largest one are not searched: there all clients match the target."""

FALL = 1 - 1 / 256
"""Ratio of two prices that are tried one after the other."""


class Steps:
    """Clients on their way: `after` is what each has, `gains` what the next sample of each is worth."""

    def __init__(self, counts: LabelCounts, weights: FloatArray, shares: FloatArray) -> None:
        self.counts, self.weights, self.shares = counts, weights, shares
        self.after, self.taken = counts.n.astype(np.float64), 0
        self.gains, self.classes = next_samples(self.after, weights, shares)

    @property
    def samples(self) -> IntArray:
        """The samples taken so far, clients x classes."""
        return self.after.astype(np.int64) - self.counts.n

    def take_above(self, price: float, limit: int) -> int:
        """Each client goes on until its next sample is not worth more than `price`; return how many all took so far.

        Prices must fall from call to call. If more than `limit` samples are taken, the rest of them is left out.
        """
        going = np.flatnonzero(self.gains > price)
        while going.size and self.taken <= limit:
            self.after[going, self.classes[going]] += 1
            self.taken += going.size
            self.gains[going], self.classes[going] = next_samples(self.after[going], self.weights[going], self.shares)
            going = going[self.gains[going] > price]
        return self.taken

    def spend(self, total: int, least: float) -> float:
        """Lower the price until more than `total` samples are taken; return the last price at which they are not."""
        price = float(self.gains.max())
        while price > least and self.take_above(price * FALL, total) <= total:
            price *= FALL
        return price
