"""What clients take if each class has a pull and each sample a price, and how that changes with pulls and price.

Notation: a client has n_c real samples of class c, N in all. After the allocation it has x_c, M in all, and is
D_c = x_c - t_c M away from the shares t of a target. With a pull y_c for each class and a price 2 p for each sample it
takes the samples that minimise

    |D|^2 + 2 y . D + 2 p (M - N).

Let e_c = n_c + y_c - t_c M. For a given M the best samples raise the smallest e_c to one level v: D_c =
max(e_c, v) - y_c. One more sample is worth sum_c t_c max(e_c - v, 0), a falling and convex function of M. The client
stops where this is p.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedeas.core.arrays import BoolArray, FloatArray, IntArray
from fedeas.planning.policies.share_curves import raised_level

LEAST_GROWTH = 1e-15
"""A client's number of samples that changes by less, relatively, is settled."""


def apart_from(shares: FloatArray, samples: FloatArray | IntArray) -> FloatArray:
    """D: how far clients with these samples are from the shares.

    >>> apart_from(np.array([0.5, 0.5]), np.array([[4, 0]]))
    array([[ 2., -2.]])
    """
    return np.asarray(samples - samples.sum(axis=1, keepdims=True) * shares)


class Sums(NamedTuple):
    """Over clients: the least values that they reach, D for each class, and the samples that they take."""

    value: float
    apart: FloatArray
    samples: float


class PulledClients:
    """Some clients with what they take."""

    def __init__(self, counts: IntArray, shares: FloatArray, pull: FloatArray, price: float) -> None:
        self.shares, self.pull, self.price = shares, pull, price
        self.pulled = counts + pull
        self.real = counts.sum(axis=1).astype(np.float64)
        self.sizes, self.levels = self.real.copy(), np.empty(len(counts))
        self._settle()
        self.is_taking = self.sizes > self.real

    def _settle(self) -> None:
        """Find M and v of each client. Newton's method never goes too far, since the worth of a sample is convex."""
        going = np.arange(len(self.real))
        for _ in range(self.shares.size + 1):  # a client is settled unless a further class was raised
            unraised = self._unraised(going)
            levels = raised_level(unraised, self.sizes[going] - self.real[going])
            self.levels[going] = levels
            # A client's sum has the same bits alone and among others, which that of a matrix product need not have.
            worth = (np.maximum(unraised - levels[:, None], 0.0) * self.shares).sum(axis=1)
            more = (worth - self.price) * Growth.of(unraised <= levels[:, None], self.shares).samples
            grows = more > LEAST_GROWTH * self.sizes[going]
            going = going[grows]
            if not going.size:
                return
            self.sizes[going] += more[grows]

    def _unraised(self, clients: IntArray | slice) -> FloatArray:
        """The e_c of these clients."""
        return np.asarray(self.pulled[clients] - self.sizes[clients, None] * self.shares)

    @property
    def samples(self) -> FloatArray:
        """The samples that clients take, clients x classes."""
        raised = np.maximum(self.levels[:, None] - self._unraised(slice(None)), 0.0)
        return np.asarray(np.where(self.is_taking[:, None], raised, 0.0))

    @property
    def sums(self) -> Sums:
        """Sums over these clients."""
        levels = np.where(self.is_taking, self.levels, -np.inf)
        apart = np.maximum(self._unraised(slice(None)), levels[:, None]) - self.pull
        together, taken = apart.sum(axis=0), float((self.sizes - self.real).sum())
        return Sums(float(np.vdot(apart, apart) + 2 * self.pull @ together + 2 * self.price * taken), together, taken)

    @property
    def raised(self) -> BoolArray:
        """The classes that are raised, of clients that take samples."""
        taking = np.flatnonzero(self.is_taking)
        return np.asarray(self._unraised(taking) <= self.levels[taking, None])


class Growth(NamedTuple):
    """By how much the samples of clients grow if the price falls by 1, and the level with each sample."""

    samples: FloatArray
    level: FloatArray

    @staticmethod
    def of(raised: BoolArray, shares: FloatArray) -> Growth:
        """The growth of clients, by the classes that each of them raises."""
        others = np.where(raised, 0.0, shares)
        rest = others.sum(axis=1)
        level = rest / np.maximum(raised.sum(axis=1), 1)
        falls = (others * others).sum(axis=1) + rest * level  # of the worth of a sample, with each sample
        return Growth(np.divide(1.0, falls, out=np.zeros_like(falls), where=falls > 0), level)


class Response(NamedTuple):
    """How clients that take samples answer to other pulls y and another price p, if they raise the same classes.

    dM = growth (lean . dy - dp), and dD = -lean dM - dy', where dy' is dy less its mean over the raised classes, and 0
    for all others.
    """

    growth: FloatArray
    lean: FloatArray
    raised: FloatArray
    number: FloatArray
    """How many classes each client raises."""

    @staticmethod
    def of(raised: BoolArray, shares: FloatArray) -> Response:
        """The response of clients, by the classes that each of them raises."""
        growth, number = Growth.of(raised, shares), np.maximum(raised.sum(axis=1), 1).astype(np.float64)
        lean = np.where(raised, -growth.level[:, None], shares)
        return Response(growth.samples, lean, raised.astype(np.float64), number)

    def leaning(self, scale: float) -> FloatArray:
        """By how much M grows with each y / `scale` and with p, divided by `growth`."""
        return np.column_stack([scale * self.lean, -np.ones(len(self.lean))])

    def matrix(self, scale: float) -> FloatArray:
        """Half of the curvature of these clients' least values by y / `scale` and p, with its sign changed."""
        leaning = self.leaning(scale)
        found = (leaning * self.growth[:, None]).T @ leaning
        spread = np.diag(self.raised.sum(axis=0)) - (self.raised / self.number[:, None]).T @ self.raised
        found[:-1, :-1] += scale**2 * spread
        return np.asarray(found)

    def diagonal(self, scale: float) -> FloatArray:
        """The diagonal of the matrix."""
        found = self.growth @ self.leaning(scale) ** 2
        found[:-1] += scale**2 * ((1 - 1 / self.number) @ self.raised)
        return np.asarray(found)

    def times(self, step: FloatArray, scale: float) -> FloatArray:
        """The matrix times a step, without the matrix."""
        leaning = self.leaning(scale)
        found = (self.growth * (leaning @ step)) @ leaning
        mean = (self.raised @ step[:-1]) / self.number
        found[:-1] += scale**2 * (self.raised.sum(axis=0) * step[:-1] - mean @ self.raised)
        return np.asarray(found)
