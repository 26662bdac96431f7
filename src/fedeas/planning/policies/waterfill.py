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

from functools import cached_property
from typing import NamedTuple

import numpy as np

from fedeas.core.arrays import FloatArray, IntArray, for_row_blocks
from fedeas.planning.counts import LabelCounts


class Round(NamedTuple):
    """For each client, as columns: stage j, common level L of its j smallest classes, and the samples to reach it."""

    stage: IntArray
    level: IntArray
    start: IntArray


class SortedCounts:
    """The counts of each client in rising order, with the sums of the first 0, 1, ... of them and of their squares."""

    def __init__(self, counts: LabelCounts) -> None:
        self.counts = counts
        self.sorted = np.empty_like(counts.n)

        def sort(rows: slice) -> None:
            self.sorted[rows] = np.sort(counts.n[rows], axis=1)

        for_row_blocks(sort, *counts.n.shape)
        self.sums = self._running_sums(1)

    @cached_property
    def square_sums(self) -> IntArray:
        """The sums of squares."""
        return self._running_sums(2)

    def _running_sums(self, power: int) -> IntArray:
        sums = np.zeros((len(self.counts), self.counts.num_classes + 1), dtype=np.int64)

        def add(rows: slice) -> None:
            np.cumsum(self.sorted[rows] ** power, axis=1, out=sums[rows, 1:])

        for_row_blocks(add, *self.counts.n.shape)
        return sums


def cells_of(table: IntArray, rows: IntArray, columns: IntArray | int) -> IntArray:
    """Single cells of a table; several times faster than `np.take_along_axis`."""
    cells: IntArray = table.ravel().take(rows * table.shape[1] + columns)
    return cells


class Waterfill(SortedCounts):
    """The curves of all clients of a federation."""

    def __init__(self, counts: LabelCounts) -> None:
        super().__init__(counts)
        self._sizes, self._rows = counts.sizes[:, None], np.arange(len(counts))[:, None]

    @cached_property
    def demand(self) -> IntArray:
        """Samples that balance each client completely."""
        return self.counts.num_classes * self.sorted[:, -1] - self.counts.sizes

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
        sums = cells_of(self.sums, self._rows, stage)
        level = (sums + samples[:, None]) // stage
        return Round(stage, level, stage * level - sums)

    def round_at_price(self, price: float) -> Round:
        """The last round of each client whose first sample has a gain above `price`.

        Clients without such a round get the round they start in. Setting the gain equal to the price gives
        a cubic in M without a square term, `price M^3 + (N R / j) M - N (Q + R^2 / j) = 0`, solved in closed form.
        """
        stage = np.maximum((self._stage_gains > price).sum(axis=1, keepdims=True), 1)
        sums, sizes = cells_of(self.sums, self._rows, stage), self._sizes
        rest, squares = (sizes - sums).astype(np.float64), self._rest_squares(stage).astype(np.float64)
        target = cubic_root(sizes * rest / (stage * price), -sizes * (squares + rest**2 / stage) / price)
        first = cells_of(self.sorted, self._rows, stage - 1)
        last = cells_of(self.sorted, self._rows, np.minimum(stage, self.counts.num_classes - 1))
        level = np.clip(np.ceil((target - rest) / stage).astype(np.int64) - 1, first, np.maximum(last - 1, first))
        # The root has rounding errors: decide between two neighbouring levels by their gains.
        level += (level + 1 < last) & (self.gain(stage, level + 1) > price)
        level -= (level > first) & (self.gain(stage, level) <= price)
        return Round(stage, level, stage * level - sums)

    def gain(self, stage: IntArray | int, level: IntArray, odd: IntArray | int = 0) -> FloatArray:
        """The gain of the next sample, when `odd` samples have been placed in the round that begins at this level."""
        rest = self._sizes - cells_of(self.sums, self._rows, stage)
        above = self._rest_squares(stage) - level * rest + odd * (level + 1)
        return self._sizes * (above / ((rest + stage * level).astype(np.float64) + odd) ** 3)

    def taken_above(self, price: float) -> IntArray:
        """How many samples each client takes until the gain of its next one is at or below `price`; for `Greedy`."""
        at, odd = self.round_at_price(price), np.arange(self.counts.num_classes)
        ends = (self.gain(at.stage, at.level, odd) <= price) | (odd >= at.stage)
        taken: IntArray = at.start[:, 0] + ends.argmax(axis=1)
        return taken

    def best_at(self, price: float) -> IntArray:
        """The number of samples t that minimises value + 2 price t for each client; it is in the round at that price.

        At the ends of a round the curve touches its convex relaxation, whose minimum lies in this round, so no other
        round can be better. A gain lacks the factor 2 of the derivative of a value, hence the doubled price.
        """
        at, odd = self.round_at_price(price), np.arange(self.counts.num_classes + 1)
        values = np.where(odd <= at.stage, self._values(at, odd), np.inf)
        taken: IntArray = at.start[:, 0] + (values + 2 * price * odd).argmin(axis=1)
        return taken

    def _values(self, at: Round, odd: IntArray) -> FloatArray:
        """The value of each client when `odd` samples have been placed in a round."""
        squares = self._rest_squares(at.stage) + at.stage * at.level**2 + odd * (2 * at.level + 1)
        values: FloatArray = self._sizes * (squares / (self._sizes + at.start + odd).astype(np.float64) ** 2)
        return values

    @cached_property
    def _stage_ends(self) -> IntArray:
        """Samples after which stages 2, 3, ... begin."""
        return np.arange(1, self.counts.num_classes) * self.sorted[:, 1:] - self.sums[:, 1:-1]

    @cached_property
    def _stage_gains(self) -> FloatArray:
        """Gain at the start of each stage, falling from left to right and 0 in the last."""
        return self.gain(np.arange(1, self.counts.num_classes + 1), self.sorted)

    def _rest_squares(self, stage: IntArray | int) -> IntArray:
        return self.square_sums[:, -1:] - cells_of(self.square_sums, self._rows, stage)


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
