"""The paths of greedy and of the optimum, found by price and not by budget.

At any price of a sample each client knows by itself how many it takes, and what all of them take is what greedy, or the
optimum, does with exactly that many. A budget has to be met by trying some fifty prices; a curve may have whatever
budgets its prices lead to, and each of them is a point for the trouble of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from fedeas.core.arrays import IntArray
from fedeas.planning.counts import Allocation
from fedeas.planning.policies import Greedy, Optimal
from fedeas.planning.policies.waterfill import Waterfill

PRICES = 30
# Logarithms of the highest price over the others: close together where few samples are taken, which a logarithmic axis
# of budgets shows wide apart; at the last one nearly everything is balanced.
FALLS = np.geomspace(0.01, 14.0, PRICES)

Take = Callable[[Waterfill, float], IntArray]


TAKES: dict[str, Take] = {Greedy.name(): Waterfill.taken_above, Optimal.name(): Waterfill.best_at}


def plans(curves: Waterfill, take: Take, fewest: int) -> list[Allocation]:
    """What is taken at falling prices, from `fewest` samples on up to full balance, no total twice."""
    found = {int(samples.sum()): samples for samples in _walked(curves, take)}
    return [Allocation(curves.fill(found[total])) for total in sorted(found) if total >= fewest]


def _walked(curves: Waterfill, take: Take) -> Iterator[IntArray]:
    highest = float(curves.gain_at(curves.sorted[:, 0]).max())
    for price in highest * np.exp(-FALLS):
        yield take(curves, float(price))
    yield curves.demand
