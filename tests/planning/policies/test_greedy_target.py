"""Greedy towards a target other than equal shares."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import label_counts

from fedeas import Greedy, LabelCounts, PolicyError, imbalance
from fedeas.planning.counts import Allocation
from fedeas.planning.policies.greedy import one_by_one
from fedeas.planning.policies.targets import target_shares

budgets = st.integers(0, 40)


@settings(max_examples=50)
@given(label_counts(), budgets)
def test_towards_equal_shares_single_steps_remove_as_much_as_the_search(counts, budget):
    steps = Allocation(one_by_one(counts, target_shares(counts, "uniform"), budget))
    assert steps.total == budget
    assert imbalance(counts, steps) == pytest.approx(imbalance(counts, Greedy(budget=budget).allocate(counts)))


@settings(max_examples=50)
@given(label_counts(), budgets)
def test_each_sample_goes_to_the_pair_of_largest_gain(counts, budget):
    shares = target_shares(counts, "global")
    before = counts.n + Greedy(budget=budget, target="global").allocate(counts).n
    after = counts.n + Greedy(budget=budget + 1, target="global").allocate(counts).n
    sizes = before.sum(axis=1, keepdims=True)
    apart = before / sizes - shares
    gains = counts.weights[:, None] / sizes * ((apart * before / sizes).sum(axis=1, keepdims=True) - apart)
    (place,) = np.argwhere(after - before)
    assert gains[tuple(place)] == pytest.approx(gains.max(), abs=1e-12)


def test_the_global_target_leaves_a_long_tail_as_it_is():
    counts = LabelCounts([[1000, 0, 10], [1000, 200, 10]])
    assert Greedy(budget=50, target="global").allocate(counts).n[0, 1] == 50
    assert Greedy(budget=50).allocate(counts).n[0, 1] < 50


def test_another_target_is_refused():
    with pytest.raises(PolicyError, match="uniform"):
        Greedy(budget=3, target="mine")
