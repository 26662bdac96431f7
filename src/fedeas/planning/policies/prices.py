"""Find one price for all clients at which a budget is spent, and turn real numbers of samples into whole ones.

A policy that spends one budget over a fleet takes every sample whose gain is above some price. All clients together
take fewer samples at a higher price, so two prices enclose the right one. A table that does not fit into memory is read
several times, and each reading tries several prices at once: the first guess comes from a sample of the clients, each
later one from a straight line. Sums over clients are made in whole numbers, so that they do not depend on the order or
on the parts in which a table is read.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from fedeas.core.arrays import FloatArray, IntArray
from fedeas.core.errors import PolicyError
from fedeas.planning.columns import MAX_CLIENT_SIZE
from fedeas.planning.counts import LabelCounts
from fedeas.planning.policies.base import Budget, ReadParts, samples_in

FINE = 2**40
"""Parts into which a sample is divided when real numbers of samples are added up."""

MAX_HALVINGS = 200

SAMPLED_CLIENTS = 10_000
NEARBY = (0, 1 / 8, -1 / 8, 1 / 2**8, -1 / 2**8, 1 / 2**16, -1 / 2**16)
"""Distances of the prices that are tried from a guess, relative to the interval that is left."""

CLOSE = 1e-13
"""Prices that differ by less, relatively, may be in the wrong order because of rounding errors."""

Curves = TypeVar("Curves")


def searchable_budget(budget: Budget, parts: Iterable[LabelCounts], most: int = MAX_CLIENT_SIZE) -> int:
    """The number of samples to spend; refuse too many, by default more than a client may hold."""
    total = samples_in(budget, parts)
    if total > most:
        raise PolicyError(f"a budget can be at most {most:,} samples, not {total:,}; lower it")
    return total


class Bracket(NamedTuple):
    """Two prices: at `too_low` more than the budget is taken, at `enough` it is not."""

    too_low: float
    enough: float


def bisect_price(fits: Callable[[float], bool], highest: float, lowest: float = 0.0, apart: float = 0.0) -> Bracket:
    """Halve a range of prices until its ends differ by `apart`, relatively, or until no number is left between them.

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
        return whole + self.each + up.reshape(whole.shape)


def _split(samples: FloatArray) -> tuple[IntArray, IntArray]:
    """Whole parts, and the rests as whole numbers in the same order; flat.

    A number that rounding errors lifted to the next whole one falls back, too.
    """
    whole = np.floor(samples * (1 - 1e-12)).astype(np.int64)
    return whole, np.ascontiguousarray(samples - whole).view(np.int64).ravel()


class Fleet:
    """Facts about all clients that their curves need, and the samples to spend; the table is read once."""

    def __init__(self, parts: ReadParts, total: int) -> None:
        self.total, self.clients, self.samples = total, 0, 0
        chosen: list[IntArray] = []
        stride = 1
        for part in parts():
            chosen += [*part.n[-self.clients % stride :: stride].copy()]
            while len(chosen) > 2 * SAMPLED_CLIENTS:
                chosen, stride = chosen[::2], 2 * stride
            self.clients, self.samples = self.clients + part.num_clients, self.samples + part.total
        self.some = LabelCounts(np.stack(chosen))
        """About `SAMPLED_CLIENTS` clients, evenly from the whole table."""
        self.sampled_total = self.total * len(chosen) // self.clients
        """The part of the budget that falls to them."""


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
        """The samples that all clients take at each of some prices."""
        taken = [0] * len(prices)
        for curves in self.curves():
            for place, price in enumerate(prices):
                taken[place] += self.taken(curves, price)
        return taken

    def enclose(self, total: int, demand: int, highest: float, guess: float, apart: float) -> tuple[float, float]:
        """Two prices with the wanted one between: at the lower one more than `total` is taken, at the higher one not.

        At a price of 0 `demand` is taken, at the highest nothing. The search is over when what is taken differs by at
        most `apart`, or when the two are too close to tell apart.
        """
        low, high, width = (0.0, demand), (highest, 0), guess / 4
        while low[1] - high[1] > apart and high[0] - low[0] > CLOSE * high[0]:
            tried = {(low[0] + high[0]) / 2, *(guess + width * part for part in NEARBY)}
            prices = [price for price in tried if low[0] < price < high[0]]
            for found in zip(prices, self.taken_at(prices), strict=True):
                if found[1] > total:
                    low = max(low, found)
                else:
                    high = min(high, found)
            width = high[0] - low[0]
            guess = low[0] + width * ((low[1] - total) / (low[1] - high[1]))
        return low[0], high[0]

    def bisect(self, total: int, highest: float, low: float, high: float) -> float:
        """The result of `bisect_price` for the whole table, if it is known to be between `low` and `high`."""

        def fits(price: float) -> bool:
            if low * (1 - CLOSE) < price < high * (1 + CLOSE):
                return self.taken_at([price])[0] <= total
            return price >= high

        return bisect_price(fits, highest).enough
