"""One pool of images for all clients: a budget of distinct images, each of which may be placed at many clients.

Where a server generates, an image costs once, however many clients train on it. A client that lacks d_k^c samples of a
class takes the first d_k^c images of the class, or all m_c if there are fewer. So image j of a class is placed at the
clients that lack more than j of it, a number that falls with j: taking images by falling number of placements is best.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from fedeas.core.arrays import IntArray
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies.base import Budget, Policy, check_budget, samples_in

PoolFill = Literal["mean", "max"]


class SharedAllocation(Allocation):
    """An allocation for clients that share one pool of images."""

    @property
    def generated(self) -> int:
        """How many images have to be made: the distinct ones."""
        return self.distinct


@dataclass(frozen=True)
class Pool(Policy):
    """Place as many samples as possible with at most `distinct` different images, which all clients share.

    A run needs the generator ``shared(of=...)`` with it: without sharing, each client would need images of its own.
    Fewer images are made if clients lack no more.

    Args:
        distinct: images to generate: a number, or the total of another policy on the same counts.
        fill: up to where a client fills its classes: its mean (``mean``) or its largest class (``max``).

    >>> plan = Pool(distinct=3).allocate(LabelCounts([[6, 0, 0], [0, 3, 3]]))
    >>> plan.n, plan.total, plan.generated
    (array([[0, 1, 1],
           [1, 0, 0]]), 3, 3)
    """

    distinct: Budget
    fill: PoolFill = "mean"
    budget_field: ClassVar[str] = "distinct"
    description: ClassVar[str] = (
        "One pool of images that all clients share, as a server can make it: few are generated, many placed."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_budget(self.distinct)

    def allocate(self, counts: LabelCounts) -> SharedAllocation:
        """Choose the size of the pool in each class; each client takes from it what it lacks."""
        lacking = self.lacking(counts)
        sizes = pool_sizes(lacking, samples_in(self.distinct, counts))
        return SharedAllocation(np.minimum(lacking, sizes), self.spec)

    def lacking(self, counts: LabelCounts) -> IntArray:
        """d_k^c, the samples that each class of each client lacks."""
        level = counts.n.max(axis=1) if self.fill == "max" else -(-counts.sizes // counts.num_classes)
        return np.asarray(np.maximum(level[:, None] - counts.n, 0))


def pool_sizes(lacking: IntArray, images: int) -> IntArray:
    """How many images of each class give the most placements; among equals, the smaller classes of the pool grow first.

    >>> pool_sizes(np.array([[5, 2], [5, 0]]), 6)
    array([5, 1])
    """
    falling: IntArray = -np.sort(-lacking, axis=0)
    return sizes_of_pool(falling.__getitem__, len(lacking), images)


def sizes_of_pool(falling: Callable[[int], IntArray], clients: int, images: int) -> IntArray:
    """The same, where `falling(p)` are the images of each class that more than p clients lack."""
    place = bisect_left(range(clients), True, key=lambda p: int(falling(p).sum()) <= images)
    if place == 0:
        return falling(0)
    more = falling(place - 1)
    sure = falling(place) if place < clients else np.zeros_like(more)
    return _level_between(sure, more, images)


def images_each(plan: IntArray, images: int) -> int:
    """How many images of each class use up a budget evenly; 0 if a client of the plan needs more of a class.

    >>> images_each(np.array([[5, 2], [5, 0]]), 16), images_each(np.array([[5, 2], [5, 0]]), 8)
    (8, 0)
    """
    each = images // plan.shape[1]
    return each if each >= plan.max(initial=1) else 0


def _level_between(low: IntArray, high: IntArray, total: int) -> IntArray:
    """Numbers between `low` and `high` that sum to `total` and are as even as possible."""
    below, above = 0, int(high.max())
    while below < above:
        middle = (below + above + 1) // 2
        if np.clip(middle, low, high).sum() <= total:
            below = middle
        else:
            above = middle - 1
    level: IntArray = np.clip(below, low, high)
    growing = np.flatnonzero((low <= below) & (high > below))
    level[growing[: total - int(level.sum())]] += 1
    return level
