"""KL against brute force, and its certificate."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy
from strategies import label_counts

from fedeas import KL, FedEAS, FullBalance, LabelCounts, PolicyError, Uniform
from fedeas.planning.counts import Allocation
from fedeas.planning.policies.prices import FINE, fine_total
from reproduction.published import example_counts

smoothings = st.sampled_from([0.01, 0.5, 1.0, 3.0])


def every_allocation(shape, total):
    """All tables of whole numbers of this shape and sum."""
    cells = shape[0] * shape[1]
    for first in product(range(total + 1), repeat=cells - 1):
        if sum(first) <= total:
            yield np.array([*first, total - sum(first)]).reshape(shape)


@given(label_counts(), smoothings, st.integers(0, 60))
def test_the_divergence_is_that_of_scipy(counts, smoothing, budget):
    policy = KL(budget=budget, smoothing=smoothing)
    plan = policy.allocate(counts)
    after = counts.n + plan.n + smoothing
    apart = [entropy(np.full(counts.num_classes, 1 / counts.num_classes), row / row.sum()) for row in after]
    assert policy.divergence(counts, plan) == pytest.approx(float(counts.weights @ apart), abs=1e-12)


@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(0, 6), min_size=2, max_size=2), min_size=2, max_size=2), smoothings,
       st.integers(0, 5))  # fmt: skip
def test_no_allocation_is_better_than_the_certificate_says(rows, smoothing, budget):
    if any(sum(row) == 0 for row in rows):
        return
    counts, policy = LabelCounts(rows), KL(budget=budget, smoothing=smoothing)
    plan = policy.allocate(counts)
    reached = [policy.divergence(counts, Allocation(n, "any")) for n in every_allocation((2, 2), budget)]
    assert min(reached) >= policy.divergence(counts, plan) - plan.gap - 1e-12
    assert plan.gap >= -1e-15


@pytest.mark.parametrize("budget", [1_000, 13_437, 100_000, 1_000_000])
def test_for_a_real_federation_the_certificate_is_tight(budget):
    counts, policy = example_counts(), KL(budget=budget)
    plan = policy.allocate(counts)
    assert plan.total == budget
    assert plan.gap <= 2e-4 * policy.divergence(counts)


def test_it_is_closer_to_the_target_than_other_policies_of_the_same_budget():
    counts = example_counts()
    policy = KL(budget=FedEAS(12))
    others = (FedEAS(12), Uniform(budget=FedEAS(12)))
    assert policy.divergence(counts, policy.allocate(counts)) < min(
        policy.divergence(counts, other.allocate(counts)) for other in others
    )


@given(label_counts(), smoothings)
def test_with_the_budget_of_full_balance_every_client_is_balanced(counts, smoothing):
    policy = KL(budget=FullBalance(), smoothing=smoothing)
    assert np.array_equal(policy.allocate(counts).n, FullBalance().allocate(counts).n)


@given(label_counts(), st.integers(0, 40), st.integers(0, 40))
def test_more_samples_never_take_any_away_by_more_than_rounding(counts, budget, more):
    one, other = (KL(budget=each).allocate(counts).n for each in (budget, budget + more))
    assert (one - other).max() <= 1


@pytest.mark.parametrize("wrong", [{"smoothing": 0}, {"smoothing": -1.0}])
def test_what_makes_no_sense_is_refused(wrong):
    with pytest.raises(PolicyError):
        KL(budget=3, **wrong)


def test_the_samples_of_a_very_large_table_add_up():
    assert fine_total(np.full(2**24, 0.75)) == 3 * 2**22 * FINE
