"""Addresses of images, sorted so that those of one file are together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fedeas.core.arrays import BoolArray, IntArray
from fedeas.generators.base import client_of


class Address(NamedTuple):
    """One image of a bank."""

    label: int
    client: int
    number: int
    """Which of the client's images of this class, from 0."""

    def __str__(self) -> str:
        return f"class {self.label}, client {self.client}, image {self.number}"


@dataclass(frozen=True, eq=False)
class Addresses:
    """Distinct labels and indices, sorted by client, class and number, so that those of one file are together."""

    labels: IntArray
    index: IntArray

    @property
    def clients(self) -> IntArray:
        """The client of each image."""
        return client_of(self.index)

    def at(self, rows: IntArray | BoolArray | slice) -> Addresses:
        """The addresses in these rows."""
        return Addresses(self.labels[rows], self.index[rows])


def distinct(labels: IntArray, index: IntArray) -> tuple[Addresses, IntArray]:
    """The distinct addresses among these, sorted, and the position of each given address in them."""
    order = np.lexsort((index, labels, client_of(index)))
    first = _starts(labels[order], index[order])
    inverse = np.empty(order.size, dtype=np.int64)
    inverse[order] = np.cumsum(first) - 1
    return Addresses(labels[order[first]], index[order[first]]), inverse


def stretches(*keys: IntArray) -> Iterator[tuple[int, int]]:
    """Start and stop of the longest stretches in which no key changes.

    >>> list(stretches(np.array([4, 4, 4, 7]), np.array([0, 0, 1, 1])))
    [(0, 2), (2, 3), (3, 4)]
    """
    return pairwise([*np.flatnonzero(_starts(*keys)).tolist(), keys[0].size])


def _starts(*keys: IntArray) -> BoolArray:
    """Where a key differs from its predecessor."""
    starts = np.ones(keys[0].size, dtype=bool)
    starts[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    return starts
