"""RoundBias: its closed form against an enumeration of rounds, and its certificate against every allocation."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import dirichlet_counts, label_counts

from fedeas import KL, FedEAS, LabelCounts, PolicyError, RoundBias
from fedeas.planning.counts import Allocation
from fedeas.planning.policies.targets import target_shares
from reproduction.published import example_counts

targets = st.sampled_from(["uniform", "global"])
shares = st.sampled_from([0.1, 0.4, 0.7, 1.0])


@settings(max_examples=40)
@given(label_counts(max_clients=5, max_classes=4), targets, shares, st.integers(0, 40))
def test_the_closed_form_is_the_mean_over_all_rounds(counts, target, participation, budget):
    policy = RoundBias(budget=budget, participation=participation, target=target)
    plan = policy.allocate(counts)
    after, wanted = counts.n + plan.n, target_shares(counts, target)
    number = policy.participants(len(counts))
    usual = number * after.sum() / len(counts)
    rounds = [after[list(some)].sum(axis=0) for some in combinations(range(len(counts)), number)]
    bias = np.mean([(((labels - labels.sum() * wanted) / usual) ** 2).sum() for labels in rounds])
    assert policy.bias(counts, plan) == pytest.approx(float(bias), abs=1e-12)


@settings(max_examples=25)
@given(st.lists(st.lists(st.integers(0, 6), min_size=2, max_size=2).filter(any), min_size=2, max_size=2),
       targets, shares, st.integers(0, 4))  # fmt: skip
def test_no_allocation_is_better_than_the_certificate_says(rows, target, participation, budget):
    counts, policy = LabelCounts(rows), RoundBias(budget=budget, participation=participation, target=target)
    plan = policy.allocate(counts)
    every = (np.array(cells).reshape(2, 2) for cells in product(range(budget + 1), repeat=4) if sum(cells) == budget)
    least = min(policy.bias(counts, Allocation(n)) for n in every)
    assert least >= policy.bias(counts, plan) - plan.gap - 1e-12


@pytest.mark.parametrize("participation", [0.1, 0.5])
def test_for_a_real_federation_the_certificate_is_tight(participation):
    counts, policy = example_counts(), RoundBias(budget=FedEAS(12), participation=participation)
    plan = policy.allocate(counts)
    assert plan.total == FedEAS(12).allocate(counts).total
    assert plan.gap <= 1e-5 * policy.bias(counts)
    others = (FedEAS(12), KL(budget=FedEAS(12)))
    assert policy.bias(counts, plan) < min(policy.bias(counts, other.allocate(counts)) for other in others)


@pytest.mark.parametrize("target", ["uniform", "global"])
@pytest.mark.parametrize(("participation", "most"), [(0.1, 2e-3), (0.5, 5e-4), (0.9, 1e-4), (1.0, 5e-5)])
@pytest.mark.parametrize("kind", ["skewed", "equal clients"])
def test_rounding_costs_little_however_many_take_part(kind, participation, target, most):
    counts = dirichlet_counts(40, 10, 0.1, 100, seed=3)
    if kind == "equal clients":
        counts = LabelCounts(np.repeat(counts.n[:1], 40, axis=0))
    policy = RoundBias(budget=777, participation=participation, target=target)
    assert policy.allocate(counts).gap <= most * max(policy.bias(counts), 0.01)


@pytest.mark.parametrize("target", ["uniform", "global"])
@pytest.mark.parametrize("participation", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_images_placed_one_by_one_are_hardly_better(participation, target, seed):
    counts, policy = dirichlet_counts(15, 4, 0.2, 20, seed), RoundBias(60, participation, target)
    plan = policy.allocate(counts)
    spare = 1e-3 * policy.bias(counts) + 1e-12
    assert policy.bias(counts, plan) <= policy.bias(counts, one_by_one(policy, counts)) + spare


def one_by_one(policy, counts):
    """The budget, each image where it lowers the bias most at that time; the mean size of a round is the final one."""
    shares, placed = target_shares(counts, policy.target), np.zeros_like(counts.n)
    weights = policy._weights(len(counts), counts.total + policy.budget)
    for _ in range(policy.budget):
        after = counts.n + placed
        apart = after - after.sum(axis=1, keepdims=True) * shares
        slope = weights.own * apart + weights.joint * apart.sum(axis=0)
        change = 2 * (slope - (slope @ shares)[:, None]) + (weights.own + weights.joint) * (1 - 2 * shares)
        placed.ravel()[change.argmin()] += 1
    return Allocation(placed)


def test_images_for_equal_clients_are_spread_over_the_classes_if_all_take_part():
    counts = LabelCounts([[50, 30, 20]] * 10)
    policy = RoundBias(budget=10, participation=1.0, target="global")
    plan = policy.allocate(counts)
    assert plan.n.sum(axis=0).tolist() == [5, 3, 2]
    assert policy.bias(counts, plan) == pytest.approx(0, abs=1e-15)


def test_a_federation_that_can_be_balanced_is_balanced_if_all_take_part():
    generator = np.random.default_rng(0)
    counts = LabelCounts([generator.multinomial(30, generator.dirichlet(np.full(10, 0.1))) for _ in range(40)])
    policy = RoundBias(budget=3000, participation=1.0)
    assert policy.bias(counts, policy.allocate(counts)) == pytest.approx(0, abs=1e-15)


def test_a_skew_that_the_others_cancel_needs_no_images_if_all_take_part():
    opposite, both = LabelCounts([[40, 10], [10, 40]]), RoundBias(budget=0, participation=1.0)
    assert both.bias(opposite) == 0
    assert RoundBias(budget=0, participation=0.5).bias(opposite) > 0.1


def test_the_global_target_leaves_a_long_tail_as_it_is():
    tail = LabelCounts([[1000, 100], [1000, 100]])
    assert RoundBias(budget=0, target="global").bias(tail) == pytest.approx(0, abs=1e-12)
    assert RoundBias(budget=0).bias(tail) > 0.1


@pytest.mark.parametrize("wrong", [{"target": "mine"}, {"participation": 0}, {"participation": 1.5}])
def test_what_makes_no_sense_is_refused(wrong):
    with pytest.raises(PolicyError):
        RoundBias(budget=3, **wrong)
