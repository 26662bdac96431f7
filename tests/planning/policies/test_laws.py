"""One suite of laws over every policy."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import label_counts

from fedeas import (
    KL,
    AllocationPolicy,
    BySize,
    CostAware,
    FedEAS,
    FullBalance,
    Greedy,
    LabelCounts,
    MissingOnly,
    NoGeneration,
    Optimal,
    PolicyError,
    Pool,
    Uniform,
    parse_policy,
)
from fedeas.planning.policies import POLICIES

betas = st.one_of(st.integers(1, 40).map(float), st.floats(0.01, 40))
local_policies = st.one_of(
    st.builds(
        FedEAS,
        beta=betas,
        gamma=st.sampled_from([0, 0.3, 0.5, 1]),
        entropy=st.booleans(),
        fill=st.sampled_from(["below-mean", "all"]),
    ),
    st.builds(CostAware, price=st.floats(0.001, 2)),
    st.just(FullBalance()),
    st.just(NoGeneration()),
)
budgeted_kinds = st.sampled_from([Uniform, MissingOnly, BySize, Greedy, Optimal, KL])
budgets = st.integers(0, 60)
pools = st.builds(Pool, distinct=budgets, fill=st.sampled_from(["mean", "max"]))
budgeted = st.builds(lambda kind, budget: kind(budget=budget), budgeted_kinds, budgets)
any_policy = st.one_of(local_policies, budgeted, pools)


def has_room(policy, counts):
    return not (isinstance(policy, MissingOnly) and policy.budget and (counts.n > 0).all())


@pytest.mark.parametrize("kind", [Greedy, Optimal, KL])
def test_a_budget_that_is_too_large_to_search_is_refused_in_words_for_all_policies(kind):
    with pytest.raises(PolicyError, match=r"^a budget can be at most .* lower it"):
        kind(budget=10**14).allocate(LabelCounts([[3, 1], [0, 4]]))


def test_every_policy_is_tested():
    covered = {
        FedEAS,
        CostAware,
        FullBalance,
        NoGeneration,
        Uniform,
        MissingOnly,
        BySize,
        Greedy,
        Optimal,
        KL,
        Pool,
    }
    assert covered == set(POLICIES.values())


@given(any_policy, label_counts())
def test_an_allocation_has_the_shape_of_the_counts_and_names_its_policy(policy, counts):
    assume(has_room(policy, counts))
    plan = policy.allocate(counts)
    assert isinstance(policy, AllocationPolicy)
    assert plan.n.shape == counts.n.shape
    assert plan.n.dtype == np.int64
    assert plan.n.min() >= 0
    assert plan.policy == policy.spec


@given(any_policy, label_counts())
def test_a_policy_is_a_pure_function_of_the_counts(policy, counts):
    assume(has_room(policy, counts))
    before = counts.n.copy()
    assert np.array_equal(policy.allocate(counts).n, policy.allocate(LabelCounts(before)).n)
    assert np.array_equal(counts.n, before)


@given(any_policy)
def test_specs_are_read_back(policy):
    assert parse_policy(policy.spec) == policy


@given(local_policies, label_counts())
def test_law_1_locality(policy, counts):
    assert policy.is_local
    whole = policy.allocate(counts).n
    for k in range(len(counts)):
        assert np.array_equal(whole[k], policy.allocate(counts[[k]]).n[0])


@given(budgeted_kinds, budgets, label_counts())
def test_law_2_exact_spend(kind, budget, counts):
    policy = kind(budget=budget)
    assert not policy.is_local
    if has_room(policy, counts):
        assert policy.allocate(counts).total == budget
    else:
        with pytest.raises(PolicyError, match="every client holds every class"):
            policy.allocate(counts)


@given(budgeted_kinds, betas, label_counts())
def test_law_2_a_policy_as_budget_is_the_matched_protocol(kind, beta, counts):
    fedeas = FedEAS(beta)
    total = fedeas.allocate(counts).total
    assume(has_room(kind(budget=total), counts))
    matched = kind(budget=fedeas).allocate(counts)
    assert matched.total == total
    assert np.array_equal(matched.n, kind(budget=total).allocate(counts).n)


@given(st.integers(1, 6), st.integers(2, 6), st.integers(1, 10**6), betas)
def test_the_iid_limit_generates_nothing(clients, classes, each, beta):
    balanced = LabelCounts(np.full((clients, classes), each))
    policies = [FedEAS(beta), FedEAS(beta, fill="all"), FullBalance(), CostAware(price=beta), NoGeneration()]
    for policy in policies:
        assert policy.allocate(balanced).total == 0
    for kind in (Uniform, MissingOnly, BySize, Greedy, Optimal, KL):
        assert kind(budget=FedEAS(beta)).allocate(balanced).total == 0


@given(st.sampled_from([Greedy, Optimal]), budgets, label_counts())
def test_the_order_of_classes_does_not_change_what_searches_remove(kind, budget, counts):
    mirrored = LabelCounts(counts.n[:, ::-1])
    squares = [np.sort(c.plus(kind(budget=budget).allocate(c)).n, axis=1).tolist() for c in (counts, mirrored)]
    assert squares[0] == squares[1]


@pytest.mark.parametrize("kind", [Uniform, MissingOnly, BySize, Greedy, Optimal, KL])
@pytest.mark.parametrize("budget", [-1, 2.5, True, "many", None])
def test_impossible_budgets_are_refused(kind, budget):
    with pytest.raises(PolicyError, match="budget must be"):
        kind(budget=budget)
