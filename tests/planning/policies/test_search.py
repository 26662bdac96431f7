"""Greedy, Optimal and CostAware against brute force in rational numbers."""

from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from strategies import dirichlet_counts, label_counts

from fedeas import CostAware, FullBalance, Greedy, LabelCounts, Optimal, PolicyError, heterogeneity_left, imbalance
from fedeas.planning.policies import by_gain
from fedeas.planning.policies.waterfill import Waterfill, cubic_root

COUNTEREXAMPLE = LabelCounts([[3, 4, 2], [5, 8, 7], [2, 2, 3]])


def greedy_by_the_loop(counts, budget):
    """Eq. (gain) for every pair and every sample, in rational numbers; ties to the lowest client, then class."""
    n, sizes = counts.n.tolist(), counts.sizes.tolist()
    added = np.zeros_like(counts.n)
    for _ in range(budget):
        gains = {}
        for k, row in enumerate(n):
            size, squares = sum(row), sum(c * c for c in row)
            for c, count in enumerate(row):
                gains[k, c] = Fraction(sizes[k] * (squares - count * size), size**3)
        k, c = max(gains, key=lambda pair: (gains[pair], -pair[0], -pair[1]))
        n[k][c] += 1
        added[k, c] += 1
    return added


def exact_value(counts, added):
    rows = zip(counts.sizes.tolist(), (counts.n + added).tolist(), strict=True)
    return sum(size * Fraction(sum(c * c for c in row), sum(row) ** 2) for size, row in rows)


def best_by_enumeration(counts, budget):
    best = None
    for places in combinations_with_replacement(range(counts.n.size), budget):
        added = np.bincount(np.array(places, dtype=int), minlength=counts.n.size).reshape(counts.n.shape)
        value = exact_value(counts, added)
        best = value if best is None else min(best, value)
    return best


@given(label_counts(max_clients=4, max_classes=4, max_count=60), st.integers(0, 40))
@example(LabelCounts([[4, 4], [9, 9]]), 7)  # nothing but ties
@example(LabelCounts([[5, 1], [5, 1], [5, 1]]), 9)  # triplets
def test_greedy_equals_the_loop_over_samples(counts, budget):
    assert np.array_equal(Greedy(budget=budget).allocate(counts).n, greedy_by_the_loop(counts, budget))


@pytest.mark.parametrize(("clients", "classes", "size", "budget"), [(12, 5, 40, 400), (6, 3, 8, 300), (40, 4, 12, 250)])
def test_greedy_equals_the_loop_on_larger_federations(clients, classes, size, budget):
    counts = dirichlet_counts(clients, classes, 0.3, size, seed=clients)
    assert np.array_equal(Greedy(budget=budget).allocate(counts).n, greedy_by_the_loop(counts, budget))


def test_greedy_keeps_filling_the_first_client_once_all_are_balanced():
    counts = LabelCounts([[2, 2], [5, 1]])
    assert Greedy(budget=4 + 5).allocate(counts).n.tolist() == [[3, 2], [0, 4]]


@settings(max_examples=60)
@given(label_counts(max_clients=2, max_classes=3, max_count=30), st.integers(0, 4))
@example(COUNTEREXAMPLE, 4)
def test_optimal_equals_enumeration_and_the_hulls_bound_it(counts, budget):
    best = best_by_enumeration(counts, budget)
    exact = Optimal(budget=budget).allocate(counts)
    assert exact_value(counts, exact.n) == pytest.approx(float(best), rel=1e-12)
    assert exact.gap == 0
    samples, bound = by_gain._by_convex_hulls(Waterfill(counts), budget)
    hulls = exact_value(counts, Waterfill(counts).fill(samples))
    assert samples.sum() == budget
    assert bound <= float(best) * (1 + 1e-12)
    assert float(best) <= float(hulls) * (1 + 1e-12)


def test_optimal_beats_greedy_on_exact_marginal_gains_in_the_known_counterexample():
    def marginal(n, k, c):
        more = n.copy()
        more[k, c] += 1
        added = more - COUNTEREXAMPLE.n
        return exact_value(COUNTEREXAMPLE, added - np.eye(3, dtype=int)[[k]].T * np.eye(3, dtype=int)[c]) - exact_value(
            COUNTEREXAMPLE, added
        )

    n = COUNTEREXAMPLE.n.copy()
    for _ in range(4):
        k, c = max(((k, c) for k in range(3) for c in range(3)), key=lambda pair: marginal(n, *pair))
        n[k, c] += 1
    best = Optimal(budget=4).allocate(COUNTEREXAMPLE)
    assert exact_value(COUNTEREXAMPLE, best.n) < exact_value(COUNTEREXAMPLE, n - COUNTEREXAMPLE.n)


@pytest.mark.parametrize("budget", [1, 50, 700, 3000, 20_000, 60_000])
def test_hulls_agree_with_dynamic_programming_within_the_certified_gap(budget):
    counts = dirichlet_counts(8, 5, 0.2, 60, seed=3)
    hulls = Waterfill(counts)
    samples, bound = by_gain._by_convex_hulls(hulls, budget)
    assert samples.sum() == budget
    value = hulls.value(samples).sum()
    assert bound <= value * (1 + 1e-12)
    if budget <= 3000:
        exact = hulls.value(by_gain._by_dynamic_programming(hulls, budget)).sum()
        assert bound * (1 - 1e-12) <= exact <= value * (1 + 1e-12)
        assert value - exact <= value - bound + 1e-9


def test_large_problems_have_a_small_certified_gap():
    counts = dirichlet_counts(1000, 10, 0.1, 400)
    plan = Optimal(budget=250_000).allocate(counts)
    assert plan.total == 250_000
    assert 0 <= plan.gap < 1e-6 * imbalance(counts)
    assert imbalance(counts, plan) <= imbalance(counts, Greedy(budget=250_000).allocate(counts))


def test_optimal_beyond_full_balance_leaves_next_to_nothing():
    counts = dirichlet_counts(30, 7, 0.2, 200)
    demand = FullBalance().allocate(counts).total
    assert imbalance(counts, Optimal(budget=demand).allocate(counts)) == 0
    assert imbalance(counts, Optimal(budget=demand + 7 * 11).allocate(counts)) == 0
    assert 0 < imbalance(counts, Optimal(budget=demand + 3).allocate(counts)) < 1e-6


def test_searches_refuse_budgets_that_would_overflow():
    for kind in (Greedy, Optimal):
        with pytest.raises(PolicyError, match="a budget can be at most"):
            kind(budget=2**31).allocate(COUNTEREXAMPLE)


@given(label_counts(max_count=100), st.data())
def test_water_filling_raises_the_smallest_class_each_time(counts, data):
    samples = np.array([data.draw(st.integers(0, 60)) for _ in range(len(counts))])
    curves = Waterfill(counts)
    expected = counts.n.copy()
    for k, count in enumerate(samples):
        for _ in range(count):
            expected[k, expected[k].argmin()] += 1
    assert np.array_equal(counts.n + curves.fill(samples), expected)
    values = counts.sizes * (expected**2).sum(axis=1) / expected.sum(axis=1) ** 2
    assert curves.value(samples) == pytest.approx(values, rel=1e-14)


@given(st.floats(0, 1e9), st.floats(1e-9, 1e12))
def test_cubic_root_solves_its_cubic(linear, constant):
    root = cubic_root(np.array([linear]), np.array([-constant]))[0]
    assert root**3 + linear * root == pytest.approx(constant, rel=1e-9)


def cost_aware_worth(count, size, classes, samples, price):
    lack = size / classes - count
    share = (count / size - 1 / classes) ** 2
    return size * share * (1 - float(heterogeneity_left(samples / lack))) - price * samples


@given(label_counts(max_count=40), st.floats(0.001, 2))
def test_cost_aware_is_the_best_whole_number_of_each_pair(counts, price):
    plan = CostAware(price=price).allocate(counts).n
    for k, row in enumerate(counts.n.tolist()):
        size, classes = sum(row), len(row)
        for c, count in enumerate(row):
            if count * classes >= size:
                assert plan[k, c] == 0
                continue
            choices = range(int(size / classes - count) + 2)
            best = max(cost_aware_worth(count, size, classes, m, price) for m in choices)
            assert plan[k, c] in choices
            assert cost_aware_worth(count, size, classes, plan[k, c], price) == pytest.approx(best, abs=1e-9)


def test_cost_aware_stays_strictly_between_nothing_and_balance():
    """The supplement's proposition: an interior optimum, which rises as the price falls."""
    counts = LabelCounts([[900, 60, 40]])
    lack = 1000 / 3 - counts.n[0, 1:]
    plans = [CostAware(price=price).allocate(counts).n[0] for price in (0.5, 0.1, 0.01)]
    for plan in plans:
        assert (plan[1:] > 0).all()
        assert (plan[1:] < lack).all()
    assert (np.diff(plans, axis=0)[:, 1:] > 0).all()


def test_a_price_beyond_the_first_samples_worth_generates_nothing():
    counts = LabelCounts([[90, 10, 0]])
    assert CostAware(price=4 / 3).allocate(counts).total == 0
    assert CostAware(price=1.0).allocate(counts).total > 0
