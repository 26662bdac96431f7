import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from strategies import dirichlet_counts, label_counts

from fedeas import (
    KL,
    FedEAS,
    InputError,
    LabelCounts,
    Optimal,
    Policy,
    PolicyError,
    SpecError,
    Summary,
    images_for_share,
    imbalance,
    imbalance_removed,
    parse_policy,
    select_beta,
    synthetic_share,
    write_counts,
)
from fedeas.planning.request import (
    Limits,
    choose_policy,
    compare_policies,
    policy_left_out,
    reads_in_parts,
    write_plan,
)
from fedeas.planning.tables import CountTable

COUNTS = dirichlet_counts(30, 10, 0.1, 300)


def total_of(text, counts=COUNTS, **limits):
    return choose_policy(text, Limits(**limits), counts).allocate(counts).total


def test_limits_become_budgets():
    assert choose_policy("fedeas", Limits(beta=7), COUNTS) == FedEAS(7)
    assert choose_policy("fedeas(gamma=1)", Limits(beta=7), COUNTS) == FedEAS(7, gamma=1)
    assert 900 < total_of("fedeas", total=1000) <= 1000
    assert 2900 < total_of("fedeas", minutes=5, images_per_second=10) <= 3000
    assert total_of("fedeas", max_share=0.1) <= images_for_share(COUNTS, 0.1)
    plan = choose_policy("fedeas", Limits(min_removed=0.4), COUNTS).allocate(COUNTS)
    assert 0.4 <= imbalance_removed(COUNTS, plan) < 0.42


def test_auto_takes_the_papers_conditions_or_given_ones():
    interval = select_beta(COUNTS, min_removed=0.3, max_share=0.4)
    chosen = choose_policy("fedeas", Limits(auto=True, min_removed=0.3, max_share=0.4), COUNTS)
    assert chosen.beta == interval.roundest
    plan = chosen.allocate(COUNTS)
    assert imbalance_removed(COUNTS, plan) >= 0.3
    assert synthetic_share(COUNTS, plan) < 0.4


@pytest.mark.parametrize("limit", ["min_removed", "max_share"])
def test_a_limit_of_nothing_is_refused_and_not_taken_for_a_missing_one(limit):
    with pytest.raises(InputError, match="between 0 and 1, not 0"):
        choose_policy("fedeas", Limits(auto=True, **{limit: 0}), COUNTS)


def test_budgeted_policies_take_the_limit_or_match_fedeas():
    assert total_of("uniform", total=777) == 777
    assert total_of("greedy", minutes=1, images_per_second=2) == 120
    assert total_of("missing-only") == FedEAS().allocate(COUNTS).total
    assert total_of("uniform", beta=5) == FedEAS(5).allocate(COUNTS).total
    assert total_of("uniform(budget=12)") == 12


SPECS_WITHOUT_BUDGET = {
    "KL( smoothing=2 )": "kl(budget={}, smoothing=2)",
    "pool(fill=max)": "pool(distinct={}, fill=max)",
    "uniform()": "uniform(budget={})",
}


@pytest.mark.parametrize("text", SPECS_WITHOUT_BUDGET)
@pytest.mark.parametrize(
    "limit",
    [
        {},
        {"beta": 6},
        {"total": 30},
        {"minutes": 1, "images_per_second": 2},
        {"max_share": 0.1},
        {"min_removed": 0.3},
        {"auto": True, "max_share": 0.6},
    ],
)
def test_a_spec_that_leaves_out_only_its_budget_takes_the_limit_as_the_bare_name_does(text, limit):
    bare = choose_policy("uniform", Limits(**limit), COUNTS)
    budget = bare.budget.spec if isinstance(bare.budget, Policy) else bare.budget
    assert choose_policy(text, Limits(**limit), COUNTS).spec == SPECS_WITHOUT_BUDGET[text].format(budget)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pool(fill=half)", "fill must be 'mean' or 'max', not 'half'"),
        ("kl(size=3)", "kl has no field 'size'"),
        ("uniform(budget=kl(smoothing=2))", "kl needs budget"),
        ("cost-aware", "cost-aware needs price"),
    ],
)
def test_a_limit_helps_no_spec_that_has_another_fault(text, message):
    with pytest.raises(SpecError, match=message):
        choose_policy(text, Limits(total=30), COUNTS)


def test_balanced_clients_get_nothing_whatever_the_limit():
    balanced = LabelCounts([[5, 5], [7, 7]])
    for limit in ({"total": 100}, {"auto": True}, {"min_removed": 0.5}, {"max_share": 0.2}):
        assert total_of("fedeas", balanced, **limit) == 0


def test_contradicting_limits_are_refused():
    for limits in ({"beta": 1, "total": 5}, {"auto": True, "beta": 2}, {"total": 3, "max_share": 0.2}):
        with pytest.raises(InputError, match="give the budget in one way"):
            Limits(**limits)
    with pytest.raises(InputError, match="needs both: minutes and images per second"):
        Limits(minutes=3)
    with pytest.raises(PolicyError, match="full-balance takes no beta"):
        choose_policy("full-balance", Limits(total=3), COUNTS)


@pytest.mark.parametrize("limit", [{"beta": 6}, {"total": 5}, {"auto": True}, {"min_removed": 0.5}])
@pytest.mark.parametrize(
    "text",
    [
        "fedeas(beta=5)",
        "FedEAS( gamma=1, Beta=12 )",
        "uniform(budget=5)",
        "pool(distinct=5)",
        "kl(smoothing=2, budget=5)",
    ],
)
def test_a_limit_beside_the_budget_of_a_policy_is_refused(text, limit):
    for counts in (None, COUNTS):
        with pytest.raises(PolicyError, match="give the budget once"):
            choose_policy(text, Limits(**limit), counts)


@pytest.mark.parametrize(("clients", "in_parts"), [(100_000, False), (1_000_000, True)])
def test_a_table_of_millions_of_counts_is_planned_in_parts(tmp_path, clients, in_parts):
    np.lib.format.open_memmap(tmp_path / "counts.npy", "w+", np.int8, (clients, 10))
    file = CountTable(tmp_path / "counts.npy")
    assert reads_in_parts(file, KL(budget=5), Limits()) == in_parts


def test_a_plan_in_parts_equals_the_plan_of_the_whole(tmp_path):
    write_counts(tmp_path / "counts.parquet", COUNTS)
    policy = FedEAS(6)
    chunks = CountTable(tmp_path / "counts.parquet").chunks(cells=70)
    plans = ((chunk, policy.allocate(chunk.counts)) for chunk in chunks)
    parts = write_plan(plans, policy.spec, tmp_path / "parts.parquet")
    whole = Summary.of(COUNTS, policy.allocate(COUNTS))
    assert parts.synthetic == whole.synthetic
    assert parts.most == whole.most
    assert parts.least == whole.least
    assert parts.receiving == whole.receiving
    assert parts.removed == pytest.approx(whole.removed, rel=1e-12)
    assert np.array_equal(written_plan(tmp_path / "parts.parquet"), policy.allocate(COUNTS).n)


def written_plan(path):
    table = parquet.read_table(path)
    return np.stack([table.column(name).to_numpy() for name in table.schema.names[1:]], axis=1)


@pytest.mark.parametrize(
    "text", ["fedeas", "uniform", "optimal", "full-balance", "no-generation", "cost-aware(price=0.1)"]
)
def test_a_comparison_matches_budgets_and_names_each_policy_once(text):
    policy: Policy = choose_policy(text, Limits(), COUNTS)
    mine = policy.allocate(COUNTS)
    compared = compare_policies(COUNTS, policy, mine)
    plans = {plan.policy.partition("(")[0]: plan for plan in compared}
    assert len(plans) == len(compared)
    assert any(plan is mine for plan in compared)
    assert {
        "no-generation",
        "uniform",
        "by-size",
        "missing-only",
        "fedeas",
        "greedy",
        "optimal",
        "full-balance",
    } <= set(plans)
    assert {plans[name].total for name in ("uniform", "by-size", "missing-only", "greedy", "optimal")} == {mine.total}
    assert plans["fedeas"].total <= mine.total
    assert imbalance_removed(COUNTS, plans["greedy"]) <= imbalance_removed(COUNTS, plans["optimal"]) + 1e-12


@settings(max_examples=15)
@given(label_counts(max_count=60), st.sampled_from([KL, Optimal]))
def test_optimal_leaves_the_least_imbalance_in_a_comparison(counts, kind):
    policy = kind(budget=60)
    compared = compare_policies(counts, policy, policy.allocate(counts))
    best = next(plan for plan in compared if isinstance(parse_policy(plan.policy), Optimal))
    least = imbalance(counts, best)
    for plan in compared:
        if plan.total == best.total:
            assert least <= imbalance(counts, plan) + best.gap + 1e-12


def test_a_comparison_leaves_out_missing_only_if_no_class_is_absent():
    full, policy = LabelCounts([[5, 1], [2, 9]]), FedEAS(3)
    compared = compare_policies(full, policy, policy.allocate(full))
    assert "missing-only" not in {plan.policy.partition("(")[0] for plan in compared}
    assert "missing-only" in policy_left_out(compared)
    assert not policy_left_out(compare_policies(COUNTS, policy, policy.allocate(COUNTS)))
