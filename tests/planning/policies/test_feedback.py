"""Feedback: Greedy weighted by how weak the model is, stage after stage."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import label_counts

from fedeas import Feedback, FullBalance, Greedy, LabelCounts, PolicyError, parse_policy
from fedeas.planning.policies.feedback import as_text
from fedeas.planning.policies.targets import target_shares

budgets = st.integers(0, 30)


@settings(max_examples=30)
@given(label_counts(), budgets, st.sampled_from(["uniform", "global"]), st.data())
def test_each_sample_goes_to_the_pair_of_largest_weighted_gain(counts, budget, target, data):
    recall = as_text([data.draw(st.floats(0, 0.9)) for _ in range(counts.num_classes)])
    before = counts.n + Feedback(budget=budget, recall=recall, target=target).allocate(counts).n
    after = counts.n + Feedback(budget=budget + 1, recall=recall, target=target).allocate(counts).n
    sizes = before.sum(axis=1, keepdims=True)
    apart = before / sizes - target_shares(counts, target)
    gains = counts.weights[:, None] / sizes * ((apart * before / sizes).sum(axis=1, keepdims=True) - apart)
    weighted = gains * [1 - float(word) for word in recall.split()]
    (place,) = np.argwhere(after - before)
    assert weighted[tuple(place)] == pytest.approx(weighted.max(), abs=1e-12)


@settings(max_examples=30)
@given(label_counts(), budgets, budgets)
def test_stages_without_feedback_are_one_stage(counts, first, second):
    once = Feedback(budget=first + second).allocate(counts)
    twice = Feedback(budget=second, after=Feedback(budget=first)).allocate(counts)
    assert np.array_equal(once.n, twice.n)


@settings(max_examples=30)
@given(label_counts(), budgets, budgets, st.data())
def test_a_stage_keeps_the_samples_before_and_adds_its_budget(counts, first, second, data):
    before = Feedback(budget=first)
    recall = as_text([data.draw(st.floats(0, 1)) for _ in range(counts.num_classes)])
    policy = Feedback(budget=second, recall=recall, after=before)
    more = policy.allocate(counts).n - before.allocate(counts).n
    assert more.min() >= 0
    assert more.sum() == second
    assert parse_policy(policy.spec) == policy


@settings(max_examples=30)
@given(label_counts(), budgets)
def test_without_recalls_it_is_greedy_towards_the_global_shares_too(counts, budget):
    own, greedy = (kind(budget=budget, target="global").allocate(counts).n for kind in (Feedback, Greedy))
    assert np.array_equal(own, greedy)


def test_ten_stages_with_a_hundred_classes_are_written_and_read():
    policy, recall = Feedback(budget=10), as_text([0.123] * 100)
    for _ in range(9):
        policy = Feedback(budget=10, recall=recall, after=policy)
    assert parse_policy(policy.spec) == policy


def test_a_weak_class_gets_more_samples():
    counts = LabelCounts([[50, 0, 0, 10], [40, 2, 2, 0]])
    plain, weak = (Feedback(budget=12, recall=recall).allocate(counts).n for recall in ("", "0.9 0.9 0.2 0.9"))
    assert weak[:, 2].sum() > plain[:, 2].sum()


@pytest.mark.parametrize("recall", ["a b", "0.5 1.1", "-0.1", "nan"])
def test_what_is_no_recall_is_refused(recall):
    with pytest.raises(PolicyError, match="recall must be numbers from 0 to 1"):
        Feedback(budget=3, recall=recall)


def test_recalls_of_other_classes_are_refused():
    with pytest.raises(PolicyError, match="2 numbers for 3 classes"):
        Feedback(budget=3, recall="0.1 0.2").allocate(LabelCounts([[1, 2, 3]]))


def test_a_stage_may_follow_any_plan():
    counts = LabelCounts([[9, 2, 0]])
    assert Feedback(budget=0, after=FullBalance()).allocate(counts).n.tolist() == [[0, 7, 9]]
