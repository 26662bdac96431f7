"""Check that the images that clients take from a pool do not exceed the budget of its policy."""

from __future__ import annotations

from fedeas.config.run import RunConfig
from fedeas.core.arrays import IntArray
from fedeas.core.errors import InputError
from fedeas.generators.kinds import Shared
from fedeas.generators.pools import distinct_in_pool
from fedeas.generators.registry import parse_generator
from fedeas.planning.counts import LabelCounts
from fedeas.planning.policies import Pool, parse_policy
from fedeas.planning.policies.pool import images_each


def check_pool_size(config: RunConfig, counts: LabelCounts, plan: IntArray) -> None:
    """Refuse a pool of fixed size of which clients take more different images than the policy may spend.

    Rows of the plan are all clients, with zeros for those that take nothing from the pool.
    """
    policy, generator = parse_policy(config.policy), parse_generator(config.generator)
    if not isinstance(policy, Pool) or not isinstance(generator, Shared) or not generator.each:
        return
    made, budget = int(distinct_in_pool(plan, generator.each).sum()), policy.images_asked(counts)
    if budget is not None and made > budget:
        fitting = images_each(plan, budget)
        remedy = f"set each={fitting}" if fitting else "leave each out"
        raise InputError(
            f"generator {generator.spec}: clients take {made:,} different images, "
            f"but the budget of policy pool is {budget:,}; {remedy}"
        )
