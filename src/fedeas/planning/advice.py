"""Which policies to compare with FedEAS, as the paper's study recommends; a test compares this with its results."""

from fedeas.planning.counts import LabelCounts
from fedeas.planning.policies.pool import Pool, images_each

WHOLE_POOL = "pool with generator=shared(each=budget/classes)"
"""A pool of as many images as the budget."""

AT_SERVER, AT_CLIENTS = WHOLE_POOL, "kl"
"""The policies that do better than FedEAS in most experiments, if a server makes the images, and if clients do."""

ADVICE = (
    f"if a server makes the images, {AT_SERVER}",
    f"if clients make their own, {AT_CLIENTS}",
    "clients of a pool have more images than those of fedeas, and so train for more steps",
    "for pool and kl the server needs the label counts of all clients, for fedeas it does not",
)


def advice_for(budget: int, counts: LabelCounts) -> str:
    """The advice, with the numbers that a budget of so many images gives for these clients.

    A plain pool may make fewer images than its budget: this is about the budget.

    >>> advice_for(10, LabelCounts([[6, 2], [0, 8]])).splitlines()[1]
    '- if a server makes the images, pool(distinct=10) with generator=shared(each=5)'
    """
    pool = Pool(distinct=budget)
    each = images_each(pool.allocate(counts).n, budget)
    named = f"{pool.spec} with generator=shared{f'({each=})' if each else ''}"
    return "\n- ".join(["policies to compare, by our experiments:", *ADVICE]).replace(WHOLE_POOL, named)
