"""A client's best use of t samples: always raise its smallest classes, like water filling a vessel.

For a fixed number of samples, ||q_k - u||^2 is smallest when the samples go to the smallest classes, one at a time.
So a client's whole curve t -> I_k(t) follows from its sorted counts, and an allocation is a number t_k for each
client. `Greedy` and `Optimal` differ only in how they choose these numbers.

Notation, for a client with sorted counts a_1 <= ... <= a_C. In stage j the j smallest classes are at one level L
between a_j and a_{j+1} and the others are untouched; their sum is R and their sum of squares Q. With M = R + jL samples
in all, the gain of the next sample, Eq. (gain) without its constant factor 2 / sum N, is

    N (||n||^2 - L M) / M^3 = N (Q - L R) / M^3.

It falls as the level rises, because the curve is convex where all j classes are level. While only i of the j have been
raised it is N (Q - L R + i (L + 1)) / (M + i)^3, which need not fall: that is why choosing the largest gain each time
is not always the best allocation, and why levels, not single samples, are the points to search.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from fedeas.core.arrays import FloatArray, IntArray
from fedeas.core.errors import PolicyError
from fedeas.planning.columns import MAX_CLIENT_SIZE
from fedeas.planning.counts import LabelCounts, exact_integers


def check_searchable(total: int) -> None:
    """Refuse budgets of more samples than a client may hold."""
    if total > MAX_CLIENT_SIZE:
        raise PolicyError(f"a budget can be at most {MAX_CLIENT_SIZE:,} samples, not {total:,}; lower it")


class Round(NamedTuple):
    """Columns of a number for each client: stage j, common level L of the j smallest classes, and samples to reach it."""

    stage: IntArray
    level: IntArray
    start: IntArray


class Waterfill:
    """The curves of all clients of a federation, for up to `total` samples."""

    def __init__(self, counts: LabelCounts, total: int = 0) -> None:
        self.counts, self._sizes = counts, counts.sizes[:, None]
        self.sorted = np.sort(counts.n, axis=1)
        self._sums = np.cumsum(self.sorted, axis=1)
        self.largest = max(int(counts.sizes.max()), total)

    @cached_property
    def demand(self) -> IntArray:
        """Samples that balance each client completely."""
        return np.asarray(self.counts.num_classes * self.sorted[:, -1] - self.counts.sizes)

    def fill(self, samples: IntArray) -> IntArray:
        """The allocation in which client k raises its smallest classes with `samples[k]` samples."""
        at = self.round_after(samples)
        low = self.counts.n <= at.level
        odd = samples[:, None] - at.start  # samples of an unfinished round go to the first classes
        return np.where(low, at.level - self.counts.n + (np.cumsum(low, axis=1) <= odd), 0)

    def value(self, samples: IntArray) -> FloatArray:
        """N_k ||q_k||^2 = N_k (||q_k - u||^2 + 1/C); `Optimal` minimises its sum over clients."""
        at = self.round_after(samples)
        return self._values(at, samples[:, None] - at.start)[:, 0]

    @property
    def highest_gain(self) -> float:
        """The gain of the first sample of the client to which it is worth most."""
        return float(self.gain(1, self.sorted[:, :1]).max())

    def round_after(self, samples: IntArray) -> Round:
        """The round that each client is in after `samples[k]` samples."""
        stage = 1 + (self._stage_ends <= samples[:, None]).sum(axis=1, keepdims=True)
        sums = _pick(self._sums, stage)
        level = (sums + samples[:, None]) // stage
        return Round(stage, level, stage * level - sums)

    def round_at_price(self, price: float) -> Round:
        """The last round of each client whose first sample has a gain above `price`.

        Clients without such a round get the round they start in. Setting the gain equal to the price gives
        a cubic in M without a square term, `price M^3 + (N R / j) M - N (Q + R^2 / j) = 0`, solved in closed form.
        """
        stage = np.maximum((self._stage_gains > price).sum(axis=1, keepdims=True), 1)
        sums, sizes = _pick(self._sums, stage), self._sizes
        rest, squares = (sizes - sums).astype(np.float64), self._rest_squares(stage).astype(np.float64)
        target = cubic_root(sizes * rest / (stage * price), -sizes * (squares + rest**2 / stage) / price)
        first = _pick(self.sorted, stage)
        last = _pick(self.sorted, np.minimum(stage + 1, self.counts.num_classes))
        level = np.clip(np.ceil((target - rest) / stage).astype(np.int64) - 1, first, np.maximum(last - 1, first))
        # The root has rounding errors: decide between two neighbouring levels by their gains.
        level += (level + 1 < last) & (self.gain(stage, level + 1) > price)
        level -= (level > first) & (self.gain(stage, level) <= price)
        return Round(stage, level, stage * level - sums)

    def gain(self, stage: IntArray | int, level: IntArray, odd: IntArray | int = 0) -> FloatArray:
        """The gain of the next sample, when `odd` samples have been placed in the round that begins at this level."""
        rest, exact = self._sizes - _pick(self._sums, stage), exact_integers(level, self.largest)
        above = self._rest_squares(stage) - exact * rest + odd * (exact + 1)
        return self._sizes * _ratio(above, ((rest + stage * level).astype(np.float64) + odd) ** 3)

    def taken_above(self, price: float) -> IntArray:
        """How many samples each client takes until the gain of its next one is at or below `price`; for `Greedy`."""
        at, odd = self.round_at_price(price), np.arange(self.counts.num_classes)
        ends = (self.gain(at.stage, at.level, odd) <= price) | (odd >= at.stage)
        return np.asarray(at.start[:, 0] + ends.argmax(axis=1))

    def best_at(self, price: float) -> IntArray:
        """The number of samples t that minimises value + 2 price t for each client; it is in the round at that price.

        At the ends of a round the curve touches its convex relaxation, whose minimum lies in this round, so no other
        round can be better. A gain lacks the factor 2 of the derivative of a value, hence the doubled price.
        """
        at, odd = self.round_at_price(price), np.arange(self.counts.num_classes + 1)
        values = np.where(odd <= at.stage, self._values(at, odd), np.inf)
        return np.asarray(at.start[:, 0] + (values + 2 * price * odd).argmin(axis=1))

    def _values(self, at: Round, odd: IntArray) -> FloatArray:
        """The value of each client when `odd` samples have been placed in a round."""
        level = exact_integers(at.level, self.largest)
        squares = self._rest_squares(at.stage) + at.stage * level**2 + odd * (2 * level + 1)
        return self._sizes * _ratio(squares, (self._sizes + at.start + odd).astype(np.float64) ** 2)

    @cached_property
    def _square_sums(self) -> IntArray:
        return np.cumsum(exact_integers(self.sorted, self.largest) ** 2, axis=1)

    @cached_property
    def _stage_ends(self) -> IntArray:
        """Samples after which stages 2, 3, ... begin."""
        return np.arange(1, self.counts.num_classes) * self.sorted[:, 1:] - self._sums[:, :-1]

    @cached_property
    def _stage_gains(self) -> FloatArray:
        """Gain at the start of each stage, falling from left to right and 0 in the last."""
        return self.gain(np.arange(1, self.counts.num_classes + 1), self.sorted)

    def _rest_squares(self, stage: IntArray | int) -> IntArray:
        return self._square_sums[:, -1:] - _pick(self._square_sums, stage)


def _pick(table: IntArray, stage: IntArray | int) -> IntArray:
    """The entries of each client's stages; stages count from 1."""
    return np.asarray(table[np.arange(len(table))[:, None], stage - 1])


def _ratio(above: IntArray, below: FloatArray) -> FloatArray:
    return np.asarray(above / below, dtype=np.float64)  # Python's whole numbers give Python's floats


def cubic_root(linear: FloatArray, constant: FloatArray) -> FloatArray:
    """The real root of x^3 + linear x + constant for linear >= 0 > constant, without cancellation.

    >>> cubic_root(np.array([1.0]), np.array([-10.0]))  # 8 + 2 - 10 = 0
    array([2.])
    """
    width = np.sqrt(linear / 3)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        steepness = -constant / (2 * width**3)
        root = 2 * width * np.sinh(np.arcsinh(steepness) / 3)
    return np.where(steepness < 1e100, root, np.cbrt(-constant))  # the linear term is lost in rounding, or 0
