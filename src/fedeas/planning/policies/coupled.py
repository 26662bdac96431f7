"""The best samples of clients that are coupled: what all of them have together counts, not only what each one has.

Notation: D_k = x_k - t sum_c x_k^c is how far the samples x_k of client k are from the shares t of a target. Wanted
are the B samples with the least

    sum_k |D_k|^2 + r |sum_k D_k|^2.

The second term is the largest value, over all y, of 2 y . sum_k D_k - |y|^2 / r. So if each class has a pull y_c and
each sample a price 2 p, every client can decide on its own (`fedeas.planning.policies.pulled_clients`). Add up the
least values that clients reach, and subtract |y|^2 / r + 2 p B: this is a lower bound for all allocations of B samples,
and for the best y and p it is exact (Lagrange duality).

The bound is a concave function of y and p, and quadratic where clients take samples of the same classes. So Newton's
method finds the best y and p in a few steps. A step needs sums over all clients, which one reading of the table gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas.core.arrays import BoolArray, FloatArray, IntArray
from fedeas.planning.policies.prices import FINE, fine_total
from fedeas.planning.policies.pulled_clients import PulledClients, Response, apart_from

Read = Callable[[], Iterator[IntArray]]
"""Starts to read the counts of all clients anew, part by part."""

BLOCK_CELLS = 2**18
"""Counts that are summed at once, whatever the parts of the table: the order of a sum changes its last bits."""

MAX_STEPS, MAX_HALVINGS = 60, 30
ENOUGH = 1e-24
"""Newton's method ends when a step promises less, relative to the value without samples."""

ROUNDING = 1e-15
"""A step that promises less, in the same relation, but no less than the step before, corrects rounding errors alone."""

NEAR = 1e-9
"""Steps that promise less, in the same relation, are judged by the slope to which they lead."""

TINY = 1e-14
"""Added to the curvature in directions in which it is 0."""

CLOSE = 1e-8
"""How close, relatively, conjugate gradients come."""

MATRIX_CLASSES = 1_000
"""With more classes the curvature is no matrix: which classes each client raises is kept, one bit for each count."""


class Wanted(NamedTuple):
    """`total` samples, close to `shares`, where the sum over all clients has the weight r."""

    shares: FloatArray
    weight: float
    total: int


class Found(NamedTuple):
    """The best real numbers of samples for the counts of some clients, and a lower bound for any allocation."""

    samples_of: Callable[[IntArray], FloatArray]
    bound: float


def best_samples(read: Read, wanted: Wanted) -> Found:
    """Find the pulls and the price with which clients take the best samples."""
    without = _Without.of(read, wanted)
    surplus = wanted.total - without.matched / FINE
    if surplus >= 0:  # all clients match the shares; from there on they grow without leaving them
        more = surplus / without.clients * wanted.shares
        return Found(lambda counts: _matched(counts, wanted.shares) + more, 0.0)
    best = _climb(read, wanted, without)
    return Found(lambda counts: best.clients(counts).samples, best.bound)


class _Without(NamedTuple):
    """What one reading of the table tells before any price is tried."""

    value: float
    """What is to be made small, without samples."""
    price: float
    """The price from which on nobody takes a sample, if nothing pulls."""
    matched: int
    """The samples with which all clients match the shares, in parts of 1 / `FINE`."""
    clients: int

    @staticmethod
    def of(read: Read, wanted: Wanted) -> _Without:
        own, price, matched, clients, together = 0.0, 0.0, 0, 0, np.zeros(wanted.shares.size)
        for counts in _blocks(read):
            apart = apart_from(wanted.shares, counts)
            own, together = own + float(np.vdot(apart, apart)), together + apart.sum(axis=0)
            price = max(price, float((apart @ wanted.shares - apart.min(axis=1)).max()))
            matched += fine_total(_matched(counts, wanted.shares))
            clients += len(counts)
        return _Without(own + wanted.weight * float(together @ together), price, matched, clients)


def _matched(counts: IntArray, shares: FloatArray) -> FloatArray:
    """The fewest samples with which each client matches the shares; nobody holds a class without a share."""
    held = shares > 0
    sizes = (counts[:, held] / shares[held]).max(axis=1, keepdims=True)
    return np.asarray(np.maximum(sizes * shares - counts, 0.0))


def _blocks(read: Read) -> Iterator[IntArray]:
    """The counts of all clients in blocks of one size."""
    kept: list[IntArray] = []
    for part in read():
        rows = max(1, BLOCK_CELLS // part.shape[1])
        joined = np.concatenate([*kept, part]) if kept else part
        whole = len(joined) // rows * rows
        yield from (joined[first : first + rows] for first in range(0, whole, rows))
        kept = [joined[whole:]] if whole < len(joined) else []
    yield from kept


def _climb(read: Read, wanted: Wanted, without: _Without) -> _Point:
    """Newton's method, from no pull and half of the highest price."""
    point, before = _Point(read, wanted, np.zeros(wanted.shares.size), without.price / 2), np.inf
    for _ in range(MAX_STEPS):
        step = point.newton_step()
        gain = float(point.slope @ step)
        if gain <= ENOUGH * without.value or before <= gain <= ROUNDING * without.value:
            break
        ahead = _ahead(point, step, gain, is_near=gain <= NEAR * without.value)
        if ahead is None:
            break
        point, before = ahead, gain
    return point


def _ahead(point: _Point, step: FloatArray, gain: float, is_near: bool) -> _Point | None:
    """Where a step leads, or the first of its half, quarter, ... that lifts the bound; the price stays above 0.

    Near the best point rounding errors hide how the bound changes. There the slope along the step must fall to a half.
    """
    part = 1.0 if point.price + step[-1] > 0 else -0.9 * point.price / step[-1]
    for _ in range(MAX_HALVINGS):
        ahead = point.moved(part * step)
        if abs(ahead.slope @ step) <= gain / 2 if is_near else ahead.bound >= point.bound + 2e-4 * part * gain:
            return ahead
        part /= 2
    return None


class _Point:
    """Pulls and a price, with the bound there, and half of its slope and curvature.

    Pulls are divided by the square root of r here, since without a weight they are 0.
    """

    def __init__(self, read: Read, wanted: Wanted, pull: FloatArray, price: float) -> None:
        self.read, self.wanted, self.pull, self.price = read, wanted, pull, price
        self.scale = np.sqrt(wanted.weight)
        value, samples, apart = 0.0, 0.0, np.zeros(pull.size)
        self.curvature = _Curvature(wanted.shares, self.scale)
        for counts in _blocks(read):
            clients = self.clients(counts)
            sums = clients.sums
            value, apart, samples = value + sums.value, apart + sums.apart, samples + sums.samples
            self.curvature.add(clients.raised)
        self.bound = value - float(pull @ pull) - 2 * price * wanted.total
        self.slope = np.append(self.scale * apart - pull, samples - wanted.total)

    def clients(self, counts: IntArray) -> PulledClients:
        """These clients with what they take here."""
        return PulledClients(counts, self.wanted.shares, self.scale * self.pull, self.price)

    def moved(self, step: FloatArray) -> _Point:
        """The point that is a step away."""
        return _Point(self.read, self.wanted, self.pull + step[:-1], self.price + float(step[-1]))

    def newton_step(self) -> FloatArray:
        """The step to where the slope would be 0, if the curvature were the same everywhere."""
        return self.curvature.solve(self.slope)


class _Curvature:
    """Half of the curvature of the bound, with its sign changed; clients are added block by block."""

    def __init__(self, shares: FloatArray, scale: float) -> None:
        self.shares, self.scale = shares, scale
        self.diagonal = np.append(np.ones(shares.size), 0.0)
        self.matrix = np.diag(self.diagonal) if shares.size <= MATRIX_CLASSES else None
        self.raised: list[NDArray[np.uint8]] = []

    def add(self, raised: BoolArray) -> None:
        """Add clients that raise these classes."""
        response = Response.of(raised, self.shares)
        self.diagonal += response.diagonal(self.scale)
        if self.matrix is None:
            self.raised.append(np.packbits(raised, axis=1))
        else:
            self.matrix += response.matrix(self.scale)

    def solve(self, slope: FloatArray) -> FloatArray:
        """The step along which the slope would fall to 0."""
        by = 1 / np.sqrt(np.maximum(self.diagonal, TINY * self.diagonal.max()))
        if self.matrix is None:
            return np.asarray(by * conjugate_gradients(lambda step: by * self._times(by * step), by * slope))
        even = self.matrix * by * by[:, None] + TINY * np.eye(by.size)  # with a diagonal of 1
        return np.asarray(by * np.linalg.solve(even, by * slope))

    def _times(self, step: FloatArray) -> FloatArray:
        found = np.append(step[:-1], 0.0)
        for packed in self.raised:
            raised = np.unpackbits(packed, axis=1, count=self.shares.size).astype(bool)
            found += Response.of(raised, self.shares).times(step, self.scale)
        return found


def conjugate_gradients(times: Callable[[FloatArray], FloatArray], wanted: FloatArray) -> FloatArray:
    """The vector that a symmetric matrix without negative eigenvalues takes to `wanted`, nearly.

    >>> conjugate_gradients(lambda vector: np.array([2.0, 4.0]) * vector, np.array([2.0, 2.0]))
    array([1. , 0.5])
    """
    found, rest = np.zeros_like(wanted), wanted.copy()
    direction, left = rest.copy(), float(rest @ rest)
    least = CLOSE**2 * left
    for _ in range(wanted.size):
        ahead = times(direction)
        bend = float(direction @ ahead)
        if left <= least or bend <= 0:
            break
        found += left / bend * direction
        rest -= left / bend * ahead
        before, left = left, float(rest @ rest)
        direction = rest + left / before * direction
    return found
