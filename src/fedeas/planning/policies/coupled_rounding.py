"""Round the samples of coupled clients to whole numbers, so that errors do not add up over the clients.

Notation: e_k^c is the whole number of samples of client k and class c less the real one, f_k^c the real one's fraction,
and F_c = sum_k f_k^c. The whole numbers sum to the budget. Rounding costs about

    a sum_k |e_k|^2 + b |sum_k e_k|^2

with the weights a and b of `fedeas.planning.policies.round_bias`. All numbers are rounded down first. If n_c of a class
are then rounded up, those with the largest fractions cost least, and together they are n_c - F_c too many. Rounding up
the n-th largest fraction f of a class lowers the cost by

    a (2 f - 1) + b (2 (F_c - n) + 1),

which falls with n. So the best n_c follow from one price for all classes: fractions are rounded up as long as the gain
is above it. If only clients count (b = 0), the largest fractions of the whole table are rounded up. If only the sum
counts (a = 0), each class gets its total, rounded by largest remainders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from fedeas.core.arrays import FloatArray, IntArray
from fedeas.planning.policies.prices import bisect_price, rounded_down

FRACTION_BITS = 32
"""Fractions that agree in so many bits are equal."""

BITS_AT_ONCE = 8
STEPS = 2**BITS_AT_ONCE
"""Each reading sorts the fractions of a class into so many steps."""


class CoupledRounding:
    """Round real numbers of samples, given in parts, to whole numbers that sum to `total`.

    Equal fractions of a class are rounded up for the first clients. The plan does not depend on the parts: four
    readings, each for a quarter of the bits, lead to the fraction of each class from which on numbers are rounded up.

    Args:
        samples: starts to read the real numbers anew, part by part.
        total: the sum of the whole numbers.
        own: the weight a of the errors of each client, from 0 to 1; b, that of their sum over clients, is 1 - a.

    >>> samples = np.array([[0.5, 0.3, 0.2]] * 10)
    >>> rounding = CoupledRounding(lambda: iter([samples]), total=10, own=0.0)
    >>> rounding.next_part(samples).sum(axis=0)
    array([5, 3, 2])
    """

    def __init__(self, samples: Callable[[], Iterator[FloatArray]], total: int, own: float) -> None:
        spent = cells = 0
        sums, steps = np.zeros(1, dtype=np.int64), np.zeros((1, STEPS), dtype=np.int64)
        for part in samples():
            whole, fractions = _split(part)
            spent, cells, sums = spent + int(whole.sum()), cells + part.size, sums + fractions.sum(axis=0)
            steps = steps + _sorted_into_steps(fractions >> (FRACTION_BITS - BITS_AT_ONCE))
        self.each, rest = divmod(total - spent, cells)
        up = _rounded_up(steps, sums / 2**FRACTION_BITS, rest, own)
        self.threshold, self.ties = _place_from_the_end(steps, up)
        for shift in range(FRACTION_BITS - 2 * BITS_AT_ONCE, -1, -BITS_AT_ONCE):
            steps[:] = 0
            for part in samples():
                places = (_split(part)[1] >> shift) - (self.threshold << BITS_AT_ONCE)
                steps += _sorted_into_steps(places)
            place, self.ties = _place_from_the_end(steps, self.ties)
            self.threshold = (self.threshold << BITS_AT_ONCE) + place

    def next_part(self, samples: FloatArray) -> IntArray:
        """The whole numbers of the next part; parts must come in order."""
        whole, fractions = _split(samples)
        tied = fractions == self.threshold
        before = np.cumsum(tied, axis=0)
        up = (fractions > self.threshold) | (tied & (before <= self.ties))
        self.ties = np.maximum(self.ties - before[-1], 0)
        return np.asarray(whole + self.each + up)


def _place_from_the_end(histograms: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """For each histogram the place where its last `counts` entries begin, and how many of them are at this place.

    >>> _place_from_the_end(np.array([[5, 2, 1], [1, 1, 1]]), np.array([2, 3]))
    (array([1, 0]), array([1, 1]))
    """
    after = np.cumsum(histograms[:, ::-1], axis=1)[:, ::-1] - histograms
    places = (after <= counts[:, None]).argmax(axis=1)
    return places, counts - after[np.arange(len(after)), places]


def _split(samples: FloatArray) -> tuple[IntArray, IntArray]:
    """Whole parts, and the fractions in parts of 2^-`FRACTION_BITS`."""
    whole = rounded_down(samples)
    fine = ((samples - whole) * 2**FRACTION_BITS).astype(np.int64)
    return whole, np.minimum(fine, 2**FRACTION_BITS - 1)  # a whole number may have been rounded down by 1


def _sorted_into_steps(places: IntArray) -> IntArray:
    """For each class, how many clients are at each of the `STEPS` places; those at others are left out."""
    classes, inside = places.shape[1], (places >= 0) & (places < STEPS)
    cells = (places + STEPS * np.arange(classes))[inside]
    return np.bincount(cells, minlength=classes * STEPS).reshape(classes, STEPS)


def _rounded_up(steps: IntArray, sums: FloatArray, count: int, own: float) -> IntArray:
    """How many numbers of each class are rounded up, `count` in all.

    `steps` counts the fractions of each class; within a step they are taken to be evenly spaced.
    """
    inside = steps[:, ::-1]  # the largest fractions first
    before = np.cumsum(inside, axis=1) - inside
    joint, largest = 1 - own, np.arange(STEPS, 0, -1) / STEPS
    falls = 2 * own / STEPS / np.maximum(inside, 1) + 2 * joint
    gains = own * (2 * largest - 1) + joint * (2 * (sums[:, None] - before) + 1)  # before the first one of a step

    def above(price: float) -> IntArray:
        return np.asarray(np.clip(np.floor((gains - price) / falls), 0, inside).sum(axis=1).astype(np.int64))

    highest = float(gains.max())
    lowest = float((gains - falls * (inside + 1)).min())
    bracket = bisect_price(lambda at: int(above(at.middle).sum()) <= count, highest, lowest)
    up, more = above(bracket.enough), above(bracket.too_low)
    left = np.clip(count - int(up.sum()) - (np.cumsum(more - up) - (more - up)), 0, more - up)
    return np.asarray(up + left)
