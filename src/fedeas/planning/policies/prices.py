"""Find one price for all clients at which a budget is spent, and turn real numbers of samples into whole ones.

A policy that spends one budget over a fleet takes every sample whose gain is above some price. Sums over clients are
made in whole numbers, so that they do not depend on the order or on the parts in which a table is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedeas.core.arrays import FloatArray, IntArray

FINE = 2**40
"""Parts into which a sample is divided when real numbers of samples are added up."""

MAX_HALVINGS = 200


class Bracket(NamedTuple):
    """Two prices: at `too_low` more than the budget is taken, at `enough` it is not."""

    too_low: float
    enough: float

    @property
    def middle(self) -> float:
        """The price that is tried next."""
        return (self.too_low + self.enough) / 2

    def halved(self, fits: bool) -> Bracket:
        """The half that is left once it is known whether what the middle takes fits the budget."""
        return Bracket(self.too_low, self.middle) if fits else Bracket(self.middle, self.enough)


def bisect_price(fits: Callable[[Bracket], bool], highest: float, lowest: float = 0.0) -> Bracket:
    """Halve the prices in a range until no number is left between two; `fits` tells for the middle of a bracket.

    >>> bisect_price(lambda bracket: 10 / bracket.middle <= 4, highest=100.0).enough
    2.5
    """
    bracket = Bracket(lowest, highest)
    for _ in range(MAX_HALVINGS):
        if bracket.middle in bracket:
            break
        bracket = bracket.halved(fits(bracket))
    return bracket


def fine_total(samples: FloatArray) -> int:
    """The sum of real numbers of samples, in parts of 1 / `FINE`; sums over parts of a table add up exactly.

    >>> fine_total(np.array([0.5, 1.25])) / FINE
    1.75
    """
    rough = float(samples.sum())
    if rough >= 2**53:  # more than any budget
        return int(rough) * FINE
    whole = np.floor(samples)
    rests = ((samples - whole) * FINE).astype(np.int64).ravel()
    parts = np.add.reduceat(rests, np.arange(0, rests.size, 2**22))  # the sum of more rests may not fit 64 bits
    return int(whole.sum()) * FINE + sum(map(int, parts))


def rounded_down(samples: FloatArray) -> IntArray:
    """Whole numbers; a number that rounding errors lifted to the next whole one falls back, too."""
    return np.floor(samples * (1 - 1e-12)).astype(np.int64)


def round_to(samples: FloatArray, total: int) -> IntArray:
    """Whole numbers that sum to `total`: each number is rounded down, and the largest rests are rounded up.

    >>> round_to(np.array([[0.5, 1.7], [0.0, 1.8]]), 4)
    array([[0, 2],
           [0, 2]])
    """
    rounded = rounded_down(samples)
    rests = (samples - rounded).ravel()
    each, rest = divmod(total - int(rounded.sum()), rests.size)
    rounded += each
    largest = np.argsort(-rests, kind="stable")[:rest]
    rounded.ravel()[largest] += 1
    return rounded
