"""Find one price for all clients at which a budget is spent, and turn real numbers of samples into whole ones.

A policy that spends one budget over a fleet takes every sample whose gain is above some price. Sums over clients are
made in whole numbers, so that they do not depend on the order or on the parts in which a table is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


def bisect_price(fits: Callable[[float], bool], highest: float, lowest: float = 0.0, apart: float = 0.0) -> Bracket:
    """Halve the prices in a range until two that differ by `apart`, relatively, or next to nothing enclose the right one.

    `fits` tells whether what is taken at a price fits the budget.

    >>> bisect_price(lambda price: 10 / price <= 4, highest=100.0).enough
    2.5
    """
    too_low, enough = lowest, highest
    for _ in range(MAX_HALVINGS):
        middle = (too_low + enough) / 2
        if middle in (too_low, enough) or enough - too_low <= enough * apart:
            break
        if fits(middle):
            enough = middle
        else:
            too_low = middle
    return Bracket(too_low, enough)


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


class Rounding:
    """Round real numbers of samples, given in parts: each is rounded down, and the largest rests are rounded up.

    The smallest rest that is rounded up is found by counting. Rests of 0 or more have the order of their bits, so four
    readings find it, each of them a quarter of the bits.
    """

    def __init__(self, samples: Callable[[], Iterator[FloatArray]], total: int) -> None:
        self.threshold = 0
        for shift in (48, 32, 16, 0):
            spent = cells = 0
            histogram = np.zeros(2**16, dtype=np.int64)
            for part in samples():
                whole, bits = _split(part)
                spent, cells = spent + int(whole.sum()), cells + part.size
                bits >>= shift
                histogram += np.bincount(bits[bits >> 16 == self.threshold] & 0xFFFF, minlength=2**16)
            if shift == 48:
                self.each, self.ties = divmod(total - spent, cells)
            after = np.cumsum(histogram[::-1])[::-1] - histogram
            place = int(np.flatnonzero(after <= self.ties)[0])  # where the last `ties` entries begin
            self.ties -= int(after[place])
            self.threshold = (self.threshold << 16) + place

    def next_part(self, samples: FloatArray) -> IntArray:
        """The whole numbers of the next part; parts must come in order."""
        whole, bits = _split(samples)
        tied = np.flatnonzero(bits == self.threshold)[: self.ties]
        self.ties -= tied.size
        up = (bits > self.threshold).astype(np.int64)
        up[tied] = 1
        return np.asarray(whole + self.each + up.reshape(whole.shape))


def _split(samples: FloatArray) -> tuple[IntArray, IntArray]:
    """Whole parts, and the rests as whole numbers in the same order; flat.

    A number that rounding errors lifted to the next whole one falls back, too.
    """
    whole = np.floor(samples * (1 - 1e-12)).astype(np.int64)
    return whole, np.ascontiguousarray(samples - whole).view(np.int64).ravel()
