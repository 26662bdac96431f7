"""Coupled clients: what each takes at a price is best for it, and together it is the best that the bound allows."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from strategies import dirichlet_counts, label_counts

from fedeas import LabelCounts
from fedeas.planning.policies import coupled
from fedeas.planning.policies.coupled import Wanted, best_samples
from fedeas.planning.policies.pulled_clients import PulledClients, Response, apart_from
from fedeas.planning.policies.targets import target_shares

targets = st.sampled_from(["uniform", "global"])
weights = st.sampled_from([0.0, 1e-3, 0.3, 9.0, 500.0])
seeds = st.integers(0, 2**32 - 1)


def pulled(counts, target, price, seed):
    shares = target_shares(counts, target)
    pull = np.random.default_rng(seed).normal(0, counts.n.max() / 2, counts.num_classes)
    return PulledClients(counts.n, shares, pull, price * counts.n.max())


def value_of(counts, wanted, samples):
    apart = apart_from(wanted.shares, counts.n + samples)
    return float((apart**2).sum() + wanted.weight * (apart.sum(axis=0) ** 2).sum())


@settings(max_examples=60)
@given(label_counts(max_clients=5), targets, st.floats(1e-3, 2), seeds)
def test_no_client_can_do_better_at_its_price(counts, target, price, seed):
    """The conditions of Karush, Kuhn and Tucker, which are enough for a convex function."""
    clients = pulled(counts, target, price, seed)
    shares, pull = clients.shares, clients.pull
    apart = apart_from(shares, counts.n + clients.samples) + pull
    slope = apart - (apart @ shares)[:, None] + clients.price
    near = 1e-9 * (np.abs(apart).max() + clients.price)
    assert (clients.samples >= 0).all()
    assert (slope >= -near).all()
    assert np.abs(slope[clients.samples > 0]).max(initial=0) <= near


@settings(max_examples=60)
@given(label_counts(max_clients=5), targets, st.floats(1e-3, 2), seeds)
def test_the_sums_are_those_of_the_samples(counts, target, price, seed):
    clients = pulled(counts, target, price, seed)
    apart = apart_from(clients.shares, counts.n + clients.samples)
    together, taken = apart.sum(axis=0), clients.samples.sum()
    value = (apart**2).sum() + 2 * clients.pull @ together + 2 * clients.price * taken
    size = float((counts.n.max() + np.abs(clients.pull).max()) ** 2 * counts.n.size)
    assert clients.sums.value == pytest.approx(value, abs=1e-9 * size)
    assert clients.sums.samples == pytest.approx(taken, rel=1e-9, abs=1e-9 * counts.total)
    assert clients.sums.apart == pytest.approx(together, abs=1e-9 * np.sqrt(size) * len(counts))


@settings(max_examples=40)
@given(st.integers(0, 10**6), targets, st.floats(0.05, 1), st.sampled_from([0.3, 1.0, 7.0]))
def test_the_curvature_is_the_difference_quotient_of_the_slope(seed, target, price, scale):
    counts = dirichlet_counts(6, 4, 0.3, 500, seed=seed)
    shares, generator = target_shares(counts, target), np.random.default_rng(seed)
    point = np.append(generator.normal(0, 20, 4), price * 50)

    def clients_at(point):
        return PulledClients(counts.n, shares, scale * point[:-1], point[-1])

    def slope_at(point):
        sums = clients_at(point).sums
        return np.append(scale * sums.apart, sums.samples)

    step = generator.normal(0, 1e-5, 5)
    ahead, behind = clients_at(point + step), clients_at(point - step)
    here = clients_at(point)
    if not all(np.array_equal(here.raised, each.raised) for each in (ahead, behind)):
        return  # between two pieces there is no derivative
    response = Response.of(here.raised, shares)
    quotient = (slope_at(point - step) - slope_at(point + step)) / 2
    assert response.matrix(scale) @ step == pytest.approx(quotient, rel=1e-4, abs=1e-8)
    assert response.times(step, scale) == pytest.approx(response.matrix(scale) @ step, rel=1e-9, abs=1e-15)
    assert response.diagonal(scale) == pytest.approx(np.diag(response.matrix(scale)), rel=1e-9)


@settings(max_examples=60)
@given(label_counts(max_clients=8), targets, weights, st.integers(1, 1000), seeds)
@example(LabelCounts([[10**12, 0], [1, 10**12]]), "uniform", 9.0, 10**9, 0)
@example(LabelCounts([[5, 1], [5, 1]]), "global", 1e-3, 3, 0)  # nothing to do
@example(LabelCounts([[0, 0, 7]]), "uniform", 0.0, 1, 0)
def test_the_bound_is_reached_and_holds_for_any_other_samples(counts, target, weight, total, seed):
    wanted = Wanted(target_shares(counts, target), weight, total)
    found = best_samples(lambda: iter([counts.n]), wanted)
    best = found.samples_of(counts.n)
    size = value_of(counts, wanted, 0) + 1e-6 * float(counts.n.max()) ** 2
    assert best.sum() == pytest.approx(total, rel=1e-5)
    assert value_of(counts, wanted, best) == pytest.approx(found.bound, abs=1e-5 * size)
    other = np.random.default_rng(seed).multinomial(total, np.full(counts.n.size, 1 / counts.n.size))
    assert value_of(counts, wanted, other.reshape(counts.n.shape)) >= found.bound - 1e-9 * size


@pytest.mark.parametrize("target", ["uniform", "global"])
def test_many_classes_lead_to_the_same_samples_without_a_matrix(target, monkeypatch):
    counts = dirichlet_counts(40, 12, 0.1, 300, seed=3)
    wanted = Wanted(target_shares(counts, target), 2.0, 2000)
    with_matrix = best_samples(lambda: iter([counts.n]), wanted)
    monkeypatch.setattr(coupled, "MATRIX_CLASSES", 0)
    without = best_samples(lambda: iter([counts.n]), wanted)
    assert without.samples_of(counts.n) == pytest.approx(with_matrix.samples_of(counts.n), abs=1e-6)
    assert without.bound == pytest.approx(with_matrix.bound, rel=1e-12)


@pytest.mark.parametrize("target", ["uniform", "global"])
def test_a_client_takes_the_same_bits_alone_and_among_others(target):
    counts = dirichlet_counts(200, 37, 0.1, 400, seed=5)
    shares = target_shares(counts, target)
    pull = np.random.default_rng(0).normal(0, 30, 37)
    together = PulledClients(counts.n, shares, pull, 12.3).samples
    alone = [PulledClients(counts.n[[row]], shares, pull, 12.3).samples for row in range(len(counts))]
    assert np.array_equal(together, np.concatenate(alone))
