"""What the advice names can be typed, and keeps the budget."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import label_counts

from fedeas.config import load_config
from fedeas.core.errors import PolicyError
from fedeas.flower.revealed_counts import numbers_of, own_row, shares
from fedeas.generators.pools import distinct_in_pool
from fedeas.generators.registry import parse_generator
from fedeas.planning.advice import WHOLE_POOL, Advice, Shown
from fedeas.planning.counts import LabelCounts
from fedeas.planning.policies import FedEAS, parse_policy


@given(label_counts(), st.integers(0, 300))
def test_a_recommended_pool_serves_all_clients_and_makes_no_more_images_than_the_budget(counts, images):
    advice = Advice(server=Shown(WHOLE_POOL)).for_budget(images, counts)
    policy, generator = re.search(r"(pool\(.*?\)) with generator=(shared(?:\(each=\d+\))?)", advice).groups()
    config = load_config(None, [f"policy={policy}", f"generator={generator}"])
    plan, pool = parse_policy(config.policy).allocate(counts), parse_generator(config.generator)
    pool.check_plan(plan.n)
    assert distinct_in_pool(plan.n, pool.each).sum() <= images


@pytest.mark.parametrize(
    ("name", "counts"),
    [("fedeas", False), ("uniform", False), ("greedy", True), ("kl", True), ("pool", True), ("pool(fill=max)", True)],
)
def test_advice_says_whether_clients_must_reveal_their_label_counts(name, counts):
    assert Shown(name).needs_counts == counts
    for shown in (Shown(name), Shown(name, ("digits",), 1, 2)):
        assert any("label counts" in clause for clause in Advice(clients=shown).clauses) == counts


def test_what_is_not_a_policy_needs_no_counts():
    assert Shown(WHOLE_POOL).needs_counts
    assert not Shown("balanced softmax", ("digits",), 1, 2).needs_counts


@pytest.mark.parametrize("name", ["kl", "greedy", "uniform"])
def test_a_policy_that_needs_no_counts_gives_a_client_its_row_from_a_few_numbers(name):
    policy, rows = parse_policy(f"{name}(budget={FedEAS().spec})"), LabelCounts([[60, 20, 0], [0, 80, 5]])
    try:
        told = shares(policy, [numbers_of(policy, row) for row in rows.n])
        own = [own_row(policy, row, share).tolist() for row, share in zip(rows.n, told, strict=True)]
    except PolicyError:
        assert Shown(name).needs_counts
    else:
        assert own == policy.allocate(rows).n.tolist()
        assert not Shown(name).needs_counts
