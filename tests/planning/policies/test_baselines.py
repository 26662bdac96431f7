import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import label_counts

from fedeas import BySize, FullBalance, LabelCounts, MissingOnly, PolicyError, Uniform


@given(label_counts(), st.integers(0, 500))
def test_uniform_differs_by_one_at_most_and_favours_the_first_pairs(counts, budget):
    flat = Uniform(budget=budget).allocate(counts).n.ravel()
    assert flat.max() - flat.min() <= 1
    assert (np.diff(flat) <= 0).all()


@given(label_counts(), st.integers(1, 500))
def test_missing_only_is_uniform_over_the_absent_pairs(counts, budget):
    absent = counts.n == 0
    if not absent.any():
        return
    plan = MissingOnly(budget=budget).allocate(counts).n
    assert (plan[~absent] == 0).all()
    assert (np.diff(plan[absent]) <= 0).all()
    assert plan[absent].max() - plan[absent].min() <= 1


def test_missing_only_needs_an_absent_pair_only_if_it_has_something_to_place():
    full = LabelCounts([[1, 2], [3, 4]])
    assert MissingOnly(budget=0).allocate(full).total == 0
    with pytest.raises(PolicyError, match="missing-only cannot place 5 samples"):
        MissingOnly(budget=5).allocate(full)


@given(label_counts(), st.integers(0, 10**6))
def test_by_size_shares_are_proportional_and_even(counts, budget):
    plan = BySize(budget=budget).allocate(counts)
    exact = budget * counts.sizes / counts.total
    assert (np.abs(plan.per_client - exact) <= 1).all()
    assert (plan.n.max(axis=1) - plan.n.min(axis=1) <= 1).all()


def test_by_size_survives_products_beyond_64_bits():
    counts = LabelCounts([[2**30, 0], [2**29, 2**29]])
    assert BySize(budget=2**40).allocate(counts).per_client.tolist() == [2**39, 2**39]


@given(label_counts())
def test_full_balance_levels_every_client_at_its_largest_class(counts):
    filled = counts.plus(FullBalance().allocate(counts)).n
    assert np.array_equal(filled, np.broadcast_to(counts.n.max(axis=1, keepdims=True), filled.shape))
