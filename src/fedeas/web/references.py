"""The paths of greedy and of the optimum, computed by price instead of by budget.

At any price of a sample each client can compute how many samples it takes. All of them together are what greedy, or
the optimum, does with exactly that total. To meet a given budget, about fifty prices must be tried; a curve may have
any budgets, so that each price gives one point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from fedeas.core.arrays import IntArray
from fedeas.planning.counts import Allocation
from fedeas.planning.policies import Greedy, Optimal
from fedeas.planning.policies.waterfill import Waterfill

PRICES = 30
# Logarithms of the highest price over the others. They are dense for small budgets, which a logarithmic axis spreads
# out; at the last price nearly everything is balanced.
FALLS = np.geomspace(0.01, 14.0, PRICES)

Take = Callable[[Waterfill, float], IntArray]


TAKES: dict[str, Take] = {Greedy.name(): Waterfill.taken_above, Optimal.name(): Waterfill.best_at}


def plans(curves: Waterfill, take: Take, fewest: int) -> list[Allocation]:
    """Allocations at falling prices, from `fewest` samples to full balance, each total once."""
    found = {int(samples.sum()): samples for samples in _walk_prices(curves, take)}
    return [Allocation(curves.fill(found[total])) for total in sorted(found) if total >= fewest]


def _walk_prices(curves: Waterfill, take: Take) -> Iterator[IntArray]:
    for price in curves.highest_gain * np.exp(-FALLS):
        yield take(curves, float(price))
    yield curves.demand
