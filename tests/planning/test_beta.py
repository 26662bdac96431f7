import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from strategies import dirichlet_counts, label_counts

from fedeas import (
    FedEAS,
    InputError,
    LabelCounts,
    PolicyError,
    beta_for_removed,
    beta_for_total,
    beta_path,
    images_for_share,
    images_in_minutes,
    imbalance_removed,
    select_beta,
    shortened_beta,
    synthetic_share,
)
from fedeas.planning import beta as selection
from fedeas.planning.beta import BetaCurve, BetaInterval
from fedeas.planning.policies.base import MAX_BUDGET
from reproduction.published import example_counts

shapes = st.builds(
    FedEAS, gamma=st.sampled_from([0.5, 1]), entropy=st.booleans(), fill=st.sampled_from(["below-mean", "all"])
)


@given(shapes, label_counts(), st.floats(0.5, 15))
@example(FedEAS(entropy=False), LabelCounts([[0, 3], [0, 75]]), 2.0)  # steps that differ in the last bit alone
def test_the_path_is_the_policy_at_every_beta(policy, counts, end):
    path = beta_path(policy, counts, end)
    betas = np.append(path.beta, end)
    for i in range(min(len(path.beta), 25)):
        for beta in (betas[i], (betas[i] + betas[i + 1]) / 2):
            if not beta > 0:
                continue
            plan = replace(policy, beta=float(beta)).allocate(counts)
            assert plan.total == path.total[i]
            assert imbalance_removed(counts, plan) == pytest.approx(path.removed[i], abs=1e-9)


@given(shapes, label_counts(), st.floats(0.01, 1e4))
@example(FedEAS(), LabelCounts([[2_000_000_000, 0, 0], [1_000_000_000, 1, 1]]), 1e4)
@example(FedEAS(), LabelCounts([[9, 0, 0], [1, 1, 1]]), 1e13)
def test_the_curve_is_the_policy_at_any_beta(policy, counts, beta):
    try:
        plan = replace(policy, beta=beta).allocate(counts)
    except PolicyError:
        assert BetaCurve(policy, counts).total(beta) > MAX_BUDGET
        return
    total, share = BetaCurve(policy, counts).at(beta)
    assert total == plan.total
    assert share == pytest.approx(imbalance_removed(counts, plan), abs=1e-12)


@given(shapes, label_counts(), st.integers(0, 300))
def test_beta_for_total_is_the_largest_that_fits(policy, counts, total):
    found = beta_for_total(policy, counts, total)
    assert found.total + found.shortfall == total
    assert found.shortfall >= 0
    if math.isinf(found.beta):
        assert replace(policy, beta=1e6).allocate(counts).total <= total
        return
    next_beta = float(np.nextafter(found.beta, np.inf))
    assert replace(policy, beta=found.beta).allocate(counts).total == found.total <= total
    assert replace(policy, beta=next_beta).allocate(counts).total > total


def test_beta_for_total_of_balanced_clients_is_infinite():
    assert beta_for_total(FedEAS(), LabelCounts([[5, 5]]), 10) == (math.inf, 0, 10)


@given(label_counts(), st.integers(0, 300))
def test_rounding_down_keeps_the_total_with_fewer_digits(counts, total):
    found = beta_for_total(FedEAS(), counts, total)
    assume(math.isfinite(found.beta))
    short = shortened_beta(FedEAS(), counts, found.beta)
    assert 0 < short <= found.beta
    assert FedEAS(short).allocate(counts).total == found.total
    assert len(repr(short)) <= max(len(repr(found.beta)), 3)


@given(label_counts(), st.floats(0.1, 0.9), st.floats(0.05, 0.6))
def test_the_interval_holds_exactly_the_betas_that_meet_both_conditions(counts, min_removed, max_share):
    interval = select_beta(counts, min_removed=min_removed, max_share=max_share)

    def meets(beta):
        plan = FedEAS(beta).allocate(counts)
        return imbalance_removed(counts, plan) >= min_removed - 1e-12 and synthetic_share(counts, plan) < max_share

    if interval:
        assert interval.lo < interval.hi
        assert meets(interval.lo)
        assert meets((interval.lo + interval.hi) / 2)
        assert meets(interval.hi * (1 - 1e-9))
        assert not meets(interval.hi)
        assert not meets(interval.lo * (1 - 1e-9))
        assert interval.roundest in interval
    else:
        assert math.isinf(interval.hi) == (FedEAS(1e6).allocate(counts).total == 0)
        assert not any(meets(beta) for beta in np.linspace(0.05, 60, 200))


def test_an_empty_interval_says_which_condition_fails_and_cannot_be_rounded():
    interval = select_beta(dirichlet_counts(20, 10, 0.05, 400), min_removed=0.99)
    assert not interval
    assert 12.0 not in interval
    assert "of the imbalance goes, not 99.0%; relax one of the two" in interval.reason
    with pytest.raises(InputError, match="no beta meets both"):
        _ = interval.roundest


@pytest.mark.parametrize(
    ("lo", "hi", "roundest"),
    [
        (11.37, 13.29, 12.0),
        (5.52, 5.77, 5.6),
        (0.3, 0.4, 0.3),
        (9.9, 10.4, 10.0),
        (0.031, 0.0335, 0.032),
        (2, math.inf, 2),
    ],
)
def test_the_roundest_beta_has_the_fewest_decimals(lo, hi, roundest):
    interval = BetaInterval(lo, hi)
    assert interval.roundest == roundest
    assert interval.roundest in interval


@given(label_counts(), st.floats(0.05, 0.8))
def test_beta_for_removed_is_the_smallest(counts, share):
    try:
        beta = beta_for_removed(FedEAS(), counts, share)
    except InputError as error:
        assert "no beta removes" in str(error)
        return
    if np.isinf(beta):
        assert FedEAS(1e6).allocate(counts).total == 0
        return
    assert imbalance_removed(counts, FedEAS(beta).allocate(counts)) >= share - 1e-12
    assert imbalance_removed(counts, FedEAS(beta * (1 - 1e-9)).allocate(counts)) < share


@given(label_counts(), st.floats(0.01, 0.9))
def test_images_for_share_is_the_largest_number_below_it(counts, share):
    images = images_for_share(counts, share)
    assert images / (counts.total + images) < share
    assert (images + 1) / (counts.total + images + 1) >= share * (1 - 1e-9)


@given(st.integers(1, 10**6), st.integers(1, 10**4))
@example(41, 1)  # 4.1 * 60 is a little less than 246
def test_whole_seconds_give_whole_numbers_of_images(tenths, rate):
    assert images_in_minutes(tenths / 10, rate) == tenths * 6 * rate


def test_limits_out_of_range_are_refused():
    counts = LabelCounts([[5, 1]])
    assert images_in_minutes(minutes=0, images_per_second=5) == 0
    for call in (
        lambda: images_in_minutes(-1, 5),
        lambda: images_in_minutes(1, 0),
        lambda: images_in_minutes("1", 5),
        lambda: images_in_minutes(1, math.inf),
        lambda: images_for_share(counts, "0.5"),
        lambda: images_for_share(counts, 1),
        lambda: select_beta(counts, min_removed=0),
        lambda: select_beta(counts, max_share=1.2),
        lambda: beta_for_total(FedEAS(), counts, -1),
        lambda: beta_for_total(FedEAS(), counts, 1.5),
    ):
        with pytest.raises(InputError):
            call()


def test_a_sampled_path_leads_to_the_same_choice(monkeypatch):
    counts, policy = example_counts(), FedEAS()
    whole, least = select_beta(counts), beta_for_removed(policy, counts, 0.7)
    monkeypatch.setattr(selection, "MAX_STEPS", 1000)
    assert select_beta(counts).lo == pytest.approx(whole.lo, rel=1e-9)
    assert select_beta(counts).hi == whole.hi
    assert beta_for_removed(policy, counts, 0.7) == pytest.approx(least, rel=1e-9)


def test_counts_of_billions_are_planned_in_little_memory():
    counts = LabelCounts([[2_000_000_000, 0, 0], [1_000_000_000, 1, 1]])
    tracemalloc.start()
    interval = select_beta(counts, min_removed=0.1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10e6
    plan = FedEAS(beta=interval.roundest).allocate(counts)
    assert imbalance_removed(counts, plan) >= 0.1
    assert synthetic_share(counts, plan) < 0.25


@pytest.mark.parametrize("digits", [9, 11, 12])
def test_a_very_large_total_is_spent_too(digits):
    found = beta_for_total(FedEAS(), LabelCounts([[900, 80, 20], [10, 300, 690]]), 10**digits)
    assert found.total == 10**digits == FedEAS(found.beta).allocate(LabelCounts([[900, 80, 20], [10, 300, 690]])).total
