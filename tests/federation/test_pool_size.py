"""A run does not make more images for a pool than its policy may spend."""

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedeas import InputError
from fedeas.config import load_config
from fedeas.federation.clients import check_pool_size
from fedeas.federation.run import execute
from fedeas.generators.pools import distinct_in_pool
from fedeas.planning.counts import LabelCounts
from fedeas.planning.policies import parse_policy
from fedeas.runs.store import RunStore

tables = st.lists(st.lists(st.integers(0, 12), min_size=3, max_size=3).filter(any), min_size=1, max_size=6)


def config(policy, each):
    return load_config(None, [f"policy={policy}", f"generator=shared(of=gaussian, each={each})"])


@given(tables, st.integers(1, 60), st.integers(1, 30))
def test_a_pool_of_more_images_than_its_budget_is_refused_and_the_remedy_helps(rows, budget, each):
    counts, policy = LabelCounts(rows), f"pool(distinct={budget})"
    plan = parse_policy(policy).allocate(counts)
    assume(plan.n.max() <= each)  # a smaller pool is refused before
    if distinct_in_pool(plan.n, each).sum() <= budget:
        check_pool_size(config(policy, each), counts, plan.n)
        return
    with pytest.raises(InputError) as refused:
        check_pool_size(config(policy, each), counts, plan.n)
    smaller = re.search(r"set each=(\d+)$", str(refused.value))
    check_pool_size(config(policy, smaller[1] if smaller else 0), counts, plan.n)
    assert plan.distinct <= budget


def test_the_budget_of_another_policy_counts():
    counts = LabelCounts([[9, 1, 0], [0, 5, 5], [4, 4, 0]])
    plan = parse_policy("pool(distinct=uniform(budget=9))").allocate(counts)
    check_pool_size(config("pool(distinct=uniform(budget=9))", 3), counts, plan.n)
    with pytest.raises(InputError, match="the budget of policy pool is 9"):
        check_pool_size(config("pool(distinct=uniform(budget=9))", 50), counts, plan.n)


def test_a_run_is_refused_before_it_makes_a_directory(tmp_path):
    given = ["partition.clients=4", "rounds.total=1", "policy=pool(distinct=60)"]
    with pytest.raises(InputError, match=r"leave each out|set each=6"):
        execute(load_config(None, [*given, "generator=shared(of=gaussian, each=1000)"]), RunStore(tmp_path))
    assert not list(tmp_path.iterdir())


def test_other_policies_may_use_a_pool_of_any_size():
    counts = LabelCounts([[9, 1, 0], [0, 5, 5]])
    plan = parse_policy("full-balance").allocate(counts)
    check_pool_size(config("full-balance", 1000), counts, plan.n)
