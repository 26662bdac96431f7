"""Greedy towards a target other than equal shares."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from strategies import dirichlet_counts, label_counts

from fedeas import Greedy, LabelCounts, PolicyError, imbalance
from fedeas.planning.counts import Allocation
from fedeas.planning.policies.greedy import one_by_one
from fedeas.planning.policies.stepping import next_samples
from fedeas.planning.policies.targets import target_shares

budgets = st.integers(0, 40)


@settings(max_examples=60)
@given(label_counts(), budgets, st.sampled_from(["uniform", "global"]))
def test_each_sample_goes_to_the_pair_of_largest_gain(counts, budget, target):
    shares = target_shares(counts, target)
    before, after = (counts.n + one_by_one(counts, shares, total, 0 * counts.n) for total in (budget, budget + 1))
    sizes = before.sum(axis=1, keepdims=True)
    apart = before / sizes - shares
    gains = counts.weights[:, None] / sizes * ((apart * before / sizes).sum(axis=1, keepdims=True) - apart)
    (place,) = np.argwhere(after - before)
    assert gains[tuple(place)] == pytest.approx(gains.max(), abs=1e-12)


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), budgets)
def test_towards_equal_shares_single_steps_remove_as_much_as_the_search(seed, budget):
    counts = dirichlet_counts(8, 4, 0.3, 60, seed)  # gains of different clients hardly ever tie
    steps = Allocation(one_by_one(counts, target_shares(counts, "uniform"), budget, 0 * counts.n))
    assert imbalance(counts, steps) == pytest.approx(imbalance(counts, Greedy(budget=budget).allocate(counts)))


@settings(max_examples=30)
@given(label_counts(), st.integers(0, 300))
@example(LabelCounts([[5, 1], [5, 1], [5, 1]]), 7)  # all clients match the target
@example(LabelCounts([[5, 1, 0], [5, 1, 0], [0, 1, 5], [0, 1, 5]]), 5)  # ties
def test_the_policy_takes_these_steps(counts, budget):
    steps = one_by_one(counts, target_shares(counts, "global"), budget, 0 * counts.n)
    assert np.array_equal(Greedy(budget=budget, target="global").allocate(counts).n, steps)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 300), st.integers(2, 140))
def test_a_gain_has_the_same_bits_alone_and_among_others(seed, clients, classes):
    rng = np.random.default_rng(seed)
    after, weights = rng.integers(1, 1000, (clients, classes)).astype(float), rng.random(clients)
    shares = rng.dirichlet(np.ones(classes))
    gains, chosen = next_samples(after, weights, shares)
    for client in rng.integers(0, clients, 5):
        (gain,), (best,) = next_samples(after[[client]], weights[[client]], shares)
        assert (gain, best) == (gains[client], chosen[client])


def test_the_global_target_leaves_a_long_tail_as_it_is():
    counts = LabelCounts([[1000, 0, 10], [1000, 200, 10]])
    assert Greedy(budget=50, target="global").allocate(counts).n[0, 1] == 50
    assert Greedy(budget=50).allocate(counts).n[0, 1] < 50


def test_another_target_is_refused():
    with pytest.raises(PolicyError, match="uniform"):
        Greedy(budget=3, target="mine")
