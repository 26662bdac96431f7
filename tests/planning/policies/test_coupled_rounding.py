"""Rounding for coupled clients: against every way to round, and in parts."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedeas.planning.policies.coupled_rounding import CoupledRounding
from fedeas.planning.policies.prices import round_to

weights = st.sampled_from([0.0, 0.01, 0.3, 0.9, 1.0])
tables = st.tuples(st.integers(1, 12), st.integers(1, 5)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.one_of(st.just(0.0), st.just(0.5), st.floats(0, 50)))
)


def rounded(samples, total, own, rows=100):
    parts = [samples[first : first + rows] for first in range(0, len(samples), rows)]
    rounding = CoupledRounding(lambda: iter(parts), total, own)
    return np.concatenate([rounding.next_part(part) for part in parts])


def cost_of(whole, samples, own):
    errors = whole - samples
    return own * (errors**2).sum() + (1 - own) * (errors.sum(axis=0) ** 2).sum()


@settings(max_examples=60)
@given(tables, weights, st.integers(0, 3))
@example(np.full((3, 2), 4.0), 0.5, 0)  # whole numbers
@example(np.full((3, 2), np.nextafter(4.0, 5)), 0.5, 0)
def test_the_budget_is_spent_exactly_and_no_number_moves_by_more_than_one(samples, own, more):
    total = round(samples.sum()) + min(more, samples.size) // 2
    whole = rounded(samples, total, own)
    assert whole.sum() == total
    assert np.abs(whole - samples).max() < 2
    assert whole.min() >= 0


@settings(max_examples=60)
@given(tables, weights, st.integers(1, 5))
def test_the_plan_does_not_depend_on_the_parts(samples, own, rows):
    total = round(samples.sum())
    assert np.array_equal(rounded(samples, total, own, rows), rounded(samples, total, own))


@pytest.mark.parametrize("own", [0.0, 0.05, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("seed", range(8))
def test_hardly_any_other_way_to_round_costs_less(own, seed):
    samples = np.random.default_rng(seed).random((4, 3)) * 3
    samples *= round(samples.sum()) / samples.sum()
    total, down = round(samples.sum()), np.floor(samples).astype(int)
    ways = combinations(range(samples.size), total - int(down.sum()))
    least = min(cost_of(down + np.isin(np.arange(12), way).reshape(4, 3), samples, own) for way in ways)
    assert cost_of(rounded(samples, total, own), samples, own) <= least + own / 50 + 1e-12  # it sorts into 256 steps


def test_if_only_clients_count_the_largest_fractions_of_all_are_rounded_up():
    samples = np.random.default_rng(0).permutation(60).reshape(12, 5) / 60 + 1.0
    total = round(samples.sum())
    errors = [np.abs(whole - samples).sum() for whole in (rounded(samples, total, 1.0), round_to(samples, total))]
    assert errors[0] == pytest.approx(errors[1])


@pytest.mark.parametrize("own", [0.0, 0.5])
def test_equal_fractions_are_rounded_up_for_the_first_clients_and_keep_the_totals_of_classes(own):
    whole = rounded(np.array([[1.5, 0.3, 0.2]] * 10), 20, own)
    assert whole.sum(axis=0).tolist() == [15, 3, 2]
    assert (np.diff(whole, axis=0) <= 0).all()


def test_a_fleet_of_equal_clients_keeps_the_totals_of_classes():
    whole = rounded(np.tile([0.25, 0.251, 0.25, 0.249], (100_000, 1)), 100_000, 0.0, rows=997)
    assert whole.sum(axis=0).tolist() == [25_000, 25_100, 25_000, 24_900]
