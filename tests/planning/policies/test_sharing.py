"""A client computes its row of the allocation from the numbers that the server sends."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedeas import LabelCounts
from fedeas.core.errors import PolicyError
from fedeas.flower.revealed_counts import Numbers, Share, numbers_of, own_row, shares
from fedeas.planning.policies import parse_policy
from fedeas.planning.policies.base import Needs

TABLES = st.tuples(st.integers(1, 6), st.integers(2, 5)).flatmap(
    lambda shape: arrays(np.int64, shape, elements=st.integers(0, 40)).filter(lambda n: (n.sum(axis=1) > 0).all())
)
LOCAL = ["no-generation", "full-balance", "fedeas(beta=3)", "fedeas(beta=12, fill=all)"]
NUMBERS = [
    "uniform(budget=17)",
    "uniform(budget=fedeas(beta=2))",
    "missing-only(budget=11)",
    "missing-only(budget=full-balance)",
]
COUNTS = ["by-size(budget=5)", "greedy(budget=5)", "optimal(budget=5)", "uniform(budget=greedy(budget=4))"]


@given(TABLES, st.sampled_from(LOCAL + NUMBERS))
def test_a_clients_own_row_equals_its_row_of_the_whole_allocation(table, spec):
    policy, counts = parse_policy(spec), LabelCounts(table)
    try:
        expected = policy.allocate(counts).n
    except PolicyError:
        with pytest.raises(PolicyError, match="every client holds every class"):
            shares(policy, [numbers_of(policy, row) for row in table])
        return
    told = [None] * len(table)
    if policy.needs is Needs.NUMBERS:
        told = shares(policy, [numbers_of(policy, row) for row in table])
    found = [own_row(policy, row, share) for row, share in zip(table, told, strict=True)]
    assert np.array_equal(np.stack(found), expected)


@pytest.mark.parametrize(
    ("specs", "expected"), [(LOCAL, Needs.NOTHING), (NUMBERS, Needs.NUMBERS), (COUNTS, Needs.COUNTS)]
)
def test_what_each_policy_needs_from_clients(specs, expected):
    assert {parse_policy(spec).needs for spec in specs} == {expected}


def test_only_what_is_needed_is_revealed():
    row = np.array([5, 0, 0, 9])
    assert numbers_of(parse_policy("uniform(budget=7)"), row) == Numbers(0, 4)  # which says nothing of its counts
    assert numbers_of(parse_policy("missing-only(budget=7)"), row) == Numbers(0, 2)
    assert numbers_of(parse_policy("uniform(budget=full-balance)"), row) == Numbers(4 + 9 + 9, 4)


def test_a_policy_that_needs_counts_is_not_computed_from_numbers():
    with pytest.raises(PolicyError, match="greedy"):
        own_row(parse_policy("greedy(budget=7)"), np.array([1, 2]), Share(7, 2, 0))


def test_a_budgeted_policy_without_a_share_is_refused():
    with pytest.raises(PolicyError, match="share"):
        own_row(parse_policy("uniform(budget=7)"), np.array([1, 2]))
