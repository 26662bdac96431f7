"""One pool of images for all clients: a budget of distinct images, each of which may be placed at many clients.

Where a server generates, an image costs once, however many clients train on it. A client that lacks d_k^c samples of a
class takes the first d_k^c images of the class, or all m_c if there are fewer. So image j of a class is placed at the
clients that lack more than j of it, a number that falls with j: taking images by falling number of placements is best.
"""

from bisect import bisect_left
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedeas.core.arrays import IntArray
from fedeas.planning.counts import LabelCounts, SharedAllocation
from fedeas.planning.policies.base import Budget, Placer, Policy, ReadParts, samples_in

PoolFill = Literal["mean", "max"]


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
    budget_field = "distinct"
    description = "One pool of images that all clients share, as a server can make it: few are generated, many placed."

    def allocate(self, counts: LabelCounts) -> SharedAllocation:
        """Choose the size of the pool in each class; each client takes from it what it lacks."""
        return SharedAllocation(super().allocate(counts).n, self.spec)

    def in_parts(self, parts: ReadParts) -> Placer:
        """Find for each class how many clients lack how many samples, and from that the size of the pool."""
        clients, images = 0, samples_in(self.distinct, parts())
        lacked: dict[int, tuple[IntArray, IntArray]] = {}  # of each class, the numbers that clients lack, and how often
        for part in parts():
            clients += part.num_clients
            for label, column in enumerate(self.lacking(part).T):
                numbers, times = np.unique(column, return_counts=True)
                if label in lacked:
                    numbers, places = np.unique(np.concatenate([lacked[label][0], numbers]), return_inverse=True)
                    times = np.bincount(places, np.concatenate([lacked[label][1], times])).astype(np.int64)
                lacked[label] = numbers, times
        falling = [(numbers[::-1], np.cumsum(times[::-1])) for numbers, times in lacked.values()]

        def more_than(place: int) -> IntArray:
            """The images of each class that more than `place` clients lack."""
            return np.array([numbers[np.searchsorted(up_to, place, "right")] for numbers, up_to in falling])

        # The sizes that give the most placements; among equals, the smaller classes of the pool grow first.
        place = bisect_left(range(clients), True, key=lambda p: int(more_than(p).sum()) <= images)
        high = more_than(max(place - 1, 0))
        low = more_than(place) if place < clients else np.zeros_like(high)
        # Numbers between the two that sum to the budget and are as even as possible.
        level = bisect_left(range(int(high.max())), True, key=lambda n: int(np.clip(n + 1, low, high).sum()) > images)
        sizes: IntArray = np.clip(level, low, high)
        growing = np.flatnonzero((low <= level) & (high > level))
        sizes[growing[: images - int(sizes.sum())]] += 1
        return lambda part: np.minimum(self.lacking(part), sizes)

    def lacking(self, counts: LabelCounts) -> IntArray:
        """d_k^c, the samples that each class of each client lacks."""
        level = counts.n.max(axis=1) if self.fill == "max" else -(-counts.sizes // counts.num_classes)
        lacked: IntArray = np.maximum(level[:, None] - counts.n, 0)
        return lacked


def images_each(plan: IntArray, images: int) -> int:
    """How many images of each class use up a budget evenly; 0 if a client of the plan needs more of a class.

    >>> images_each(np.array([[5, 2], [5, 0]]), 16), images_each(np.array([[5, 2], [5, 0]]), 8)
    (8, 0)
    """
    each = images // plan.shape[1]
    return each if each >= plan.max(initial=1) else 0
