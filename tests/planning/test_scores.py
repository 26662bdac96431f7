from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import label_counts

from fedeas import (
    Allocation,
    FedEAS,
    FullBalance,
    Greedy,
    InputError,
    LabelCounts,
    accuracy_per_thousand,
    budget_path,
    budget_ratio,
    client_imbalance,
    concentration,
    heterogeneity_left,
    imbalance,
    imbalance_removed,
    imbalance_split,
    marginal_gain,
    synthetic_share,
)
from fedeas.planning.scores import negative_gain


def exact_imbalance(n, added=None):
    """I(B) of Eq. (surrogate) in rational numbers."""
    total = int(n.sum())
    score = Fraction(0)
    for row, extra in zip(n.tolist(), (np.zeros_like(n) if added is None else added).tolist(), strict=True):
        after = [a + b for a, b in zip(row, extra, strict=True)]
        score += Fraction(sum(row), total) * sum((Fraction(c, sum(after)) - Fraction(1, len(row))) ** 2 for c in after)
    return score


@given(label_counts(), st.integers(1, 30))
def test_imbalance_equals_the_rational_one(counts, beta):
    plan = FedEAS(beta).allocate(counts)
    assert imbalance(counts) == pytest.approx(float(exact_imbalance(counts.n)), rel=1e-12, abs=1e-15)
    assert imbalance(counts, plan) == pytest.approx(float(exact_imbalance(counts.n, plan.n)), rel=1e-12, abs=1e-15)


@given(
    st.lists(
        st.lists(st.integers(1, 10**9), min_size=4, max_size=4).filter(lambda row: sum(row) < 2**31),
        min_size=1,
        max_size=5,
    )
)
def test_scores_of_the_largest_counts_equal_the_rational_ones(rows):
    """Full balance makes clients of more than 2^31 samples out of legal ones."""
    counts = LabelCounts(rows)
    plan = FullBalance().allocate(counts)
    nearly = Allocation(np.maximum(plan.n - 1, 0))
    assert imbalance(counts, plan) == 0
    assert imbalance_removed(counts, plan) in (0, 1)
    for each in (nearly, Allocation(np.arange(4 * len(rows)).reshape(-1, 4) * 10**12)):
        exact = exact_imbalance(counts.n, each.n)
        assert imbalance(counts, each) == pytest.approx(float(exact), rel=1e-13, abs=0)
        assert sum(imbalance_split(counts, each)) == pytest.approx(float(exact), abs=1e-14)
    for k, (row, added) in enumerate(zip(counts.n.tolist(), plan.n.tolist(), strict=True)):
        after = [a + b for a, b in zip(row, added, strict=True)]
        squares = sum(Fraction(c, sum(after)) ** 2 for c in after)
        slopes = [
            2 * Fraction(sum(row), counts.total) / sum(after) * (squares - Fraction(c, sum(after))) for c in after
        ]
        assert marginal_gain(counts, plan)[k] == pytest.approx([float(slope) for slope in slopes], abs=1e-24)


def test_allocations_that_whole_numbers_cannot_hold_are_refused():
    with pytest.raises(InputError, match="allocate fewer"):
        imbalance(LabelCounts([[1, 1]]), Allocation([[2**62, 2**62]]))


@given(label_counts(), st.integers(1, 30))
def test_the_two_terms_sum_to_imbalance(counts, beta):
    plan = FedEAS(beta).allocate(counts)
    assert sum(imbalance_split(counts, plan)) == pytest.approx(imbalance(counts, plan), abs=1e-12)


def test_full_balance_removes_all_exactly():
    counts = LabelCounts([[1001, 37, 0], [5, 5, 6]])
    assert imbalance(counts, FullBalance().allocate(counts)) == 0
    assert imbalance_removed(counts, FullBalance().allocate(counts)) == 1


def test_balanced_clients_have_nothing_removed():
    counts = LabelCounts([[5, 5]])
    assert imbalance_removed(counts, Allocation([[0, 0]])) == 0


@given(label_counts(max_count=50))
def test_gain_is_the_slope_of_imbalance(counts):
    """A fraction eps of a sample, by finite differences."""
    weights, q, eps = counts.weights, counts.proportions, 1e-6
    for k in range(counts.num_clients):
        for c in range(counts.num_classes):
            added = counts.n[k] + eps * np.eye(counts.num_classes)[c]
            after = ((added / added.sum() - 1 / counts.num_classes) ** 2).sum()
            before = ((q[k] - 1 / counts.num_classes) ** 2).sum()
            slope = weights[k] * (before - after) / eps
            assert marginal_gain(counts)[k, c] == pytest.approx(slope, rel=1e-3, abs=1e-5)


@given(label_counts())
def test_negative_gain_is_decided_exactly(counts):
    for k, row in enumerate(counts.n.tolist()):
        squares = sum(Fraction(c, sum(row)) ** 2 for c in row)
        assert negative_gain(counts)[k].tolist() == [squares < Fraction(c, sum(row)) for c in row]


def test_concentration_orders_clients_by_their_part_of_imbalance():
    counts = LabelCounts([[5, 5], [40, 0], [9, 1]])
    plan = Allocation([[0, 0], [0, 6], [0, 2]])
    result = concentration(counts, plan)
    assert result.order.tolist() == [1, 2, 0]
    assert result.budget.tolist() == [0.75, 1, 1]
    parts = client_imbalance(counts)
    assert result.imbalance[0] == pytest.approx(parts[1] / parts.sum())


def test_concentration_without_a_budget_has_no_shares():
    assert concentration(LabelCounts([[5, 5], [4, 0]])).budget.tolist() == [0, 0]


def test_synthetic_share():
    assert synthetic_share(LabelCounts([[30, 0]]), Allocation([[0, 10]])) == 0.25


def test_budget_ratio_ignores_clients_without_budget():
    assert budget_ratio([0, 6, 231]) == 38.5
    with pytest.raises(InputError, match="no client has a positive budget"):
        budget_ratio([0, 0])


def test_efficiency_needs_samples():
    assert accuracy_per_thousand(24.39, 226_783) == pytest.approx(0.108, abs=5e-4)
    with pytest.raises(InputError):
        accuracy_per_thousand(1.0, 0)


@given(st.integers(1, 500), st.integers(0, 500))
def test_closed_form_is_the_heterogeneity_of_two_mirrored_clients(n, m):
    """The theorem: client 1 holds n of class A, client 2 n of class B, and each adds m of what it lacks."""
    counts = LabelCounts([[n, 0], [0, n]])
    after = imbalance_split(counts, Allocation([[0, m], [m, 0]])).heterogeneity
    assert after == pytest.approx(imbalance_split(counts).heterogeneity * float(heterogeneity_left(m / n)), abs=1e-12)


def test_closed_form_falls_convexly_from_slope_four_to_zero():
    r = np.linspace(0, 1, 1001)
    slope = np.gradient(heterogeneity_left(r), r)
    assert (np.diff(heterogeneity_left(r)) < 0).all()
    assert (np.diff(slope) > 0).all()
    assert slope[0] == pytest.approx(-4, abs=0.01)
    assert slope[-1] == pytest.approx(0, abs=0.01)


def test_a_ratio_of_images_is_not_negative():
    with pytest.raises(InputError, match="-1"):
        heterogeneity_left([0.5, -1])


def test_a_budget_path_falls_for_greedy_and_gives_each_point():
    counts = LabelCounts([[90, 5, 0], [3, 40, 9]])
    plans = [Greedy(budget=budget).allocate(counts) for budget in range(0, 120, 10)]
    path = budget_path(counts, plans)
    assert path.total.tolist() == list(range(0, 120, 10))
    assert (np.diff(path.imbalance) < 0).all()
    assert path.imbalance[3] == imbalance(counts, plans[3])
    assert path.removed[5] == pytest.approx(imbalance_removed(counts, plans[5]))
