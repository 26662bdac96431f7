"""Find the price at which a budget is spent, for a table that is read several times from its beginning to its end.

Each reading tries several prices at once. All clients together take fewer samples at a higher price, so two prices
enclose the right one. The first guess comes from a sample of the clients, each later one from a straight line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from fedeas.core.arrays import FloatArray, IntArray
from fedeas.planning.counts import LabelCounts
from fedeas.planning.policies.prices import Bracket, bisect_price, rounded_down

Curves = TypeVar("Curves")
ReadParts = Callable[[], Iterator[LabelCounts]]
"""Start to read the table again, part by part."""
Placer = Callable[[LabelCounts], IntArray]
"""The allocation of the next part; parts come in order."""

NEARBY = (1 / 8, 1 / 2**8, 1 / 2**16)
"""Distances of further prices from a guess, relative to the interval that is left."""

CLOSE = 1e-13
"""Prices that differ by less, relatively, may be in the wrong order because of rounding errors."""

LEVELS_AT_ONCE = 4
"""Halvings of a bracket for which one reading of the table prepares all prices."""


class Tried(NamedTuple):
    """A price and what all clients take at it."""

    price: float
    taken: int


@dataclass
class Passes(Generic[Curves]):
    """The curves of all clients, part by part, as often as they are needed, and what is taken at a price."""

    parts: ReadParts
    curves_of: Callable[[LabelCounts], Curves]
    taken: Callable[[Curves, float], int]

    def curves(self) -> Iterator[Curves]:
        """Read the table once."""
        return map(self.curves_of, self.parts())

    def taken_at(self, prices: Sequence[float]) -> list[int]:
        """The samples that all clients take at each of some rising prices; the highest is tried first."""
        taken = [0] * len(prices)
        for curves in self.curves():
            for place in reversed(range(len(prices))):
                taken[place] += self.taken(curves, prices[place])
        return taken

    def enclose(
        self, total: int, ends: tuple[Tried, Tried], guess: float, narrow: Callable[[Tried, Tried], bool]
    ) -> tuple[Tried, Tried]:
        """Two prices with the wanted one between: at the lower one more than `total` is taken, at the higher one not.

        `ends` enclose it already. The search is over when the two are `narrow` enough, or too close to tell apart.
        """
        low, high = ends
        width = guess / 4
        while not narrow(low, high) and high.price - low.price > CLOSE * high.price:
            offsets = [sign * width * part for part in NEARBY for sign in (-1, 1)]
            tried = {(low.price + high.price) / 2, guess, *(guess + offset for offset in offsets)}
            prices = sorted(price for price in tried if low.price < price < high.price)
            for each in map(Tried, prices, self.taken_at(prices)):
                if each.taken > total:
                    low = max(low, each)
                else:
                    high = min(high, each)
            width = high.price - low.price
            guess = low.price + width * ((low.taken - total) / (low.taken - high.taken))
        return low, high

    def bisect(self, total: int, highest: float, low: float, high: float) -> Bracket:
        """The same as `bisect_price` of the whole table, if it is known that the result is between `low` and `high`."""
        low, high = low * (1 - CLOSE), high * (1 + CLOSE)
        known: dict[float, int] = {}

        def fits(bracket: Bracket) -> bool:
            price = bracket.middle
            if not low < price < high:
                return price >= high
            if price not in known:
                prices = sorted({each for each in middles(bracket, LEVELS_AT_ONCE) if low < each < high})
                known.update(zip(prices, self.taken_at(prices), strict=True))
            return known[price] <= total

        return bisect_price(fits, highest)


def middles(bracket: Bracket, levels: int) -> Iterator[float]:
    """The prices that the next halvings may try."""
    if levels:
        yield bracket.middle
        for fits in (True, False):
            yield from middles(bracket.halved(fits), levels - 1)


class Rounding:
    """Round real numbers of samples, given in parts, as `round_to` rounds them all at once.

    The smallest rest that is rounded up is found by counting. Rests of 0 or more have the order of their bits, so four
    readings find it, each of them a quarter of the bits.
    """

    def __init__(self, samples: Callable[[], Iterator[FloatArray]], total: int) -> None:
        spent = cells = 0
        histogram = np.zeros(2**16, dtype=np.int64)
        for part in samples():
            whole, bits = _split(part)
            spent, cells = spent + int(whole.sum()), cells + part.size
            histogram += np.bincount(bits >> 48, minlength=2**16)
        self.each, rest = divmod(total - spent, cells)
        self.threshold, self.ties = _place_from_the_end(histogram, rest)
        for shift in (32, 16, 0):
            histogram[:] = 0
            for part in samples():
                bits = _split(part)[1] >> shift
                histogram += np.bincount(bits[bits >> 16 == self.threshold] & 0xFFFF, minlength=2**16)
            place, self.ties = _place_from_the_end(histogram, self.ties)
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
    """Whole parts, and the rests as whole numbers in the same order; flat."""
    whole = rounded_down(samples)
    return whole, np.ascontiguousarray(samples - whole).view(np.int64).ravel()


def _place_from_the_end(histogram: IntArray, count: int) -> tuple[int, int]:
    """The place where the last `count` entries begin, and how many of them are at this place.

    >>> _place_from_the_end(np.array([5, 2, 1]), 2)
    (1, 1)
    """
    after = np.cumsum(histogram[::-1])[::-1] - histogram
    place = int(np.flatnonzero(after <= count)[0])
    return place, count - int(after[place])
