"""What the advice names can be typed, and keeps the budget."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import label_counts

from fedeas.config import load_config
from fedeas.generators.kinds import parse_generator
from fedeas.generators.pools import distinct_in_pool
from fedeas.planning.advice import ADVICE, advice_for
from fedeas.planning.policies import parse_policy
from fedeas.planning.policies.base import Needs
from fedeas.planning.request import Limits, choose_policy


@given(label_counts(), st.integers(0, 300))
def test_a_recommended_pool_serves_all_clients_and_makes_no_more_images_than_the_budget(counts, images):
    advice = advice_for(images, counts)
    policy, generator = re.search(r"(pool\(.*?\)) with generator=(shared(?:\(each=\d+\))?)", advice).groups()
    config = load_config(None, [f"policy={policy}", f"generator={generator}"])
    plan, pool = parse_policy(config.policy).allocate(counts), parse_generator(config.generator)
    pool.check_plan(plan.n)
    assert distinct_in_pool(plan.n, pool.each).sum() <= images


@pytest.mark.parametrize(("name", "counts"), [("pool", True), ("kl", True), ("fedeas", False)])
def test_advice_says_rightly_whether_the_server_needs_the_label_counts(name, counts):
    assert (choose_policy(name, Limits()).needs is Needs.COUNTS) == counts
    (clause,) = (each for each in ADVICE if "label counts" in each)
    assert (name in clause.partition("the server needs")[0]) == counts
