"""Optimal towards shares other than equal ones, against enumeration and against water-filling."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import dirichlet_counts, label_counts

from fedeas import Greedy, LabelCounts, Optimal, PolicyError, imbalance
from fedeas.planning.counts import Allocation
from fedeas.planning.policies import optimal
from fedeas.planning.policies.share_curves import ShareCurves
from fedeas.planning.policies.targets import target_shares
from fedeas.planning.policies.waterfill import Waterfill


def every_row(classes, total):
    """All ways to give `total` samples to this many classes."""
    if classes == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for others in every_row(classes - 1, total - first):
            yield (first, *others)


def every_allocation(shape, total):
    for cells in every_row(shape[0] * shape[1], total):
        yield np.array(cells).reshape(shape)


def curves_to_global(counts):
    return ShareCurves(counts, target_shares(counts, "global"))


@settings(max_examples=40)
@given(label_counts(max_clients=2, max_classes=3, max_count=12), st.integers(0, 4))
def test_optimal_equals_enumeration_and_relaxing_bounds_it(counts, budget):
    policy = Optimal(budget=budget, target="global")
    best = min(policy.imbalance(counts, Allocation(n)) for n in every_allocation(counts.n.shape, budget))
    plan = policy.allocate(counts)
    assert plan.total == budget
    assert plan.gap == 0
    assert policy.imbalance(counts, plan) == pytest.approx(best, abs=1e-12)
    samples, bound = optimal._by_relaxing(curves_to_global(counts), budget)
    assert samples.sum() == budget
    assert bound / counts.total <= best + 1e-12


@settings(max_examples=60)
@given(label_counts(max_count=40), st.sampled_from(["uniform", "global"]), st.data())
def test_a_clients_samples_are_used_as_well_as_possible(counts, target, data):
    shares = target_shares(counts, target)
    samples = np.array([data.draw(st.integers(0, 5)) for _ in range(len(counts))])
    curves = ShareCurves(counts, shares)
    assert np.array_equal(curves.fill(samples).sum(axis=1), samples)
    for k, row in enumerate(counts.n):
        size = row.sum() + samples[k]
        ways = ((row + np.array(way)) / size - shares for way in every_row(len(row), int(samples[k])))
        best = counts.sizes[k] * min((apart**2).sum() for apart in ways)
        assert curves.value(samples)[k] == pytest.approx(best, abs=1e-9)


@given(label_counts(max_count=100), st.data())
def test_towards_equal_shares_the_curves_are_those_of_water_filling(counts, data):
    samples = np.array([data.draw(st.integers(0, 60)) for _ in range(len(counts))])
    equal = ShareCurves(counts, target_shares(counts, "uniform"))
    water = Waterfill(counts).value(samples) - counts.sizes / counts.num_classes
    assert equal.value(samples) == pytest.approx(water, abs=1e-9)
    assert equal.matched() == pytest.approx(Waterfill(counts).demand, abs=1e-9)


@given(label_counts(max_count=100), st.floats(0.001, 0.999))
def test_a_sample_more_or_less_is_worth_the_price_to_each_client(counts, part):
    curves = curves_to_global(counts)
    price = part * curves.highest_price
    if price <= 1e-9:
        return
    samples = curves.samples_at(price)
    worth = curves.relaxed_value(samples) + price * samples
    for step in (0.01, -0.01):
        moved = np.maximum(samples + step, 0)
        assert (curves.relaxed_value(moved) + price * moved >= worth - 1e-9).all()


@pytest.mark.parametrize("budget", [2_000, 50_000, 10_000_000])
def test_large_problems_have_a_small_certified_gap(budget):
    counts = dirichlet_counts(300, 10, 0.1, 400)
    policy = Optimal(budget=budget, target="global")
    plan = policy.allocate(counts)
    assert plan.total == budget
    assert plan.gap < 1e-5 * policy.imbalance(counts)


def test_it_is_closer_to_its_target_than_greedy_and_than_the_other_target():
    counts = dirichlet_counts(30, 6, 0.2, 100, seed=2)
    policy = Optimal(budget=900, target="global")
    reached = policy.imbalance(counts, policy.allocate(counts))
    for other in (Greedy(budget=900, target="global"), Optimal(budget=900)):
        assert reached <= policy.imbalance(counts, other.allocate(counts)) + 1e-12


def test_the_global_target_leaves_a_long_tail_as_it_is():
    tail = LabelCounts([[1000, 100, 10], [1000, 100, 10]])
    assert Optimal(budget=0, target="global").imbalance(tail) == pytest.approx(0, abs=1e-12)
    skewed = LabelCounts([[1000, 0, 10], [1000, 200, 10]])
    assert Optimal(budget=50, target="global").allocate(skewed).n[0, 1] == 50


def test_a_class_that_nobody_holds_gets_nothing():
    counts = LabelCounts([[90, 10, 0], [10, 90, 0]])
    for budget in (30, 10**6):
        assert Optimal(budget=budget, target="global").allocate(counts).n[:, 2].sum() <= 2


@given(label_counts())
def test_towards_equal_shares_the_imbalance_is_the_score(counts):
    plan = Optimal(budget=5).allocate(counts)
    assert Optimal(budget=5).imbalance(counts, plan) == pytest.approx(imbalance(counts, plan), abs=1e-12)


def test_huge_counts_are_spent_exactly():
    counts = LabelCounts([[10**12, 3, 7], [5, 10**11, 0], [1, 1, 1]])
    plan = Optimal(budget=10**12 + 1, target="global").allocate(counts)
    assert plan.total == 10**12 + 1


def test_another_target_is_refused():
    with pytest.raises(PolicyError, match="uniform"):
        Optimal(budget=3, target="mine")
