"""A fleet planned in passes gets the allocation that the policy gives for the table in memory."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from strategies import dirichlet_counts, label_counts

from fedeas import (
    KL,
    BySize,
    FedEAS,
    FullBalance,
    Greedy,
    LabelCounts,
    MissingOnly,
    Optimal,
    PolicyError,
    Pool,
    Uniform,
    write_counts,
)
from fedeas.cli import main
from fedeas.planning import request
from fedeas.planning.policies import by_gain, prices
from fedeas.planning.policies.prices import Rounding
from fedeas.planning.request import plan_in_parts
from fedeas.planning.tables import CountTable, read_allocation

kinds = st.sampled_from([Greedy, Optimal, KL])
spreading = st.sampled_from([Uniform, MissingOnly, BySize, Pool])


def in_parts(counts, rows):
    """The table as parts of so many rows, which can be read again and again."""
    return lambda: (LabelCounts(counts.n[start : start + rows]) for start in range(0, len(counts), rows))


def planned_in_passes(counts, policy, rows):
    parts = in_parts(counts, rows)
    place = policy.in_parts(parts)
    return np.concatenate([place(part) for part in parts()])


def assert_same(counts, policy, rows=3):
    assert np.array_equal(planned_in_passes(counts, policy, rows), policy.allocate(counts).n)


@settings(max_examples=15)
@given(kinds, label_counts(max_clients=12), st.integers(0, 400), st.integers(1, 5))
@example(Greedy, LabelCounts([[5, 1], [5, 1], [5, 1]]), 4, 1)  # nothing but ties
@example(KL, LabelCounts([[5, 1], [5, 1], [5, 1]]), 4, 1)
@example(Greedy, LabelCounts([[2, 2], [3, 3]]), 5, 1)  # more than balance needs
def test_a_plan_in_passes_is_the_plan_of_the_whole(kind, counts, budget, rows):
    assert_same(counts, kind(budget=budget), rows)


@settings(max_examples=80)
@given(spreading, label_counts(max_clients=12), st.integers(0, 400) | st.just(FedEAS(6)), st.integers(1, 5))
@example(Uniform, LabelCounts([[9, 0], [4, 4], [1, 2]]), 7, 1)  # the remainder ends inside a client
@example(MissingOnly, LabelCounts([[9, 0], [4, 4], [0, 2]]), 3, 1)  # a part without an absent class
@example(BySize, LabelCounts([[9, 0], [4, 4], [1, 2]]), 11, 2)
@example(BySize, LabelCounts([[2 * 10**9, 0], [4, 4], [1, 2]]), 10**14, 1)  # products beyond 64 bits
@example(Pool, LabelCounts([[9, 0, 0], [0, 9, 0], [0, 9, 0]]), 4, 2)
@example(Pool, LabelCounts([[5, 5], [4, 4]]), 3, 1)  # nobody lacks a sample
def test_so_it_is_for_policies_without_a_price(kind, counts, budget, rows):
    if kind.suits(counts):
        assert_same(counts, kind(budget), rows)
    elif FedEAS(6).allocate(counts).total if isinstance(budget, FedEAS) else budget:
        with pytest.raises(PolicyError, match="every client holds every class"):
            kind(budget).in_parts(in_parts(counts, rows))


@settings(max_examples=12)
@given(label_counts(max_clients=12), st.integers(0, 400), st.integers(1, 5))
def test_so_it_is_without_dynamic_programming(counts, budget, rows):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_gain, "EXACT_STEPS", -1)
        assert_same(counts, Optimal(budget=budget), rows)


@settings(max_examples=20)
@given(label_counts(max_clients=12), st.integers(0, 100), st.integers(1, 5))
def test_so_it_is_for_a_pool_to_the_largest_class(counts, images, rows):
    assert_same(counts, Pool(distinct=images, fill="max"), rows)


@settings(max_examples=12)
@given(label_counts(max_clients=12), st.integers(0, 400), st.sampled_from([0.01, 1.0, 3.0]))
def test_so_it_is_for_kl_with_another_smoothing(counts, budget, smoothing):
    assert_same(counts, KL(budget=budget, smoothing=smoothing))


@pytest.mark.parametrize("open_clients", [0, 5, 100_000])
@pytest.mark.parametrize(
    "policy",
    [
        Greedy(budget=FedEAS(6)),
        Optimal(budget=FedEAS(6)),
        KL(budget=FedEAS(6)),
    ],
    ids=lambda policy: policy.spec,
)
def test_so_it_is_for_a_larger_fleet_however_many_clients_stay_open(policy, open_clients, monkeypatch):
    monkeypatch.setattr(by_gain, "OPEN_CLIENTS", open_clients)
    monkeypatch.setattr(prices, "SAMPLED_CLIENTS", 20)
    assert_same(dirichlet_counts(300, 6, 0.2, 80, seed=1), policy, rows=70)


def rounded_at_once(samples, total):
    """Each number rounded down, and the largest rests rounded up, by sorting them."""
    rounded = np.floor(samples * (1 - 1e-12)).astype(np.int64)
    each, rest = divmod(total - int(rounded.sum()), samples.size)
    largest = np.argsort(rounded - samples, kind="stable")[:rest]
    rounded[largest] += 1
    return rounded + each


@settings(max_examples=50)
@given(st.lists(st.floats(0, 50), min_size=1, max_size=30), st.integers(0, 2000), st.integers(1, 7))
def test_rounding_in_parts_is_rounding_at_once(values, total, size):
    samples = np.array(values)
    parts = [samples[start : start + size] for start in range(0, len(samples), size)]
    rounding = Rounding(lambda: iter(parts), total)
    assert np.array_equal(np.concatenate([rounding.next_part(part) for part in parts]), rounded_at_once(samples, total))


@pytest.mark.parametrize("ending", ["parquet", "npy"])
def test_a_file_is_planned_with_its_names(ending, tmp_path, monkeypatch):
    monkeypatch.setattr(request, "PART_CELLS", 60)
    counts = LabelCounts(dirichlet_counts(40, 4, 0.3, 60).n, [f"site {k}" for k in range(40)])
    path = tmp_path / f"counts.{ending}"
    write_counts(path, counts) if ending == "parquet" else np.save(path, counts.n)
    parts = list(plan_in_parts(CountTable(path), KL(budget=500)))
    assert len(parts) > 1
    assert np.array_equal(np.concatenate([plan.n for _, plan in parts]), KL(budget=500).allocate(counts).n)
    if ending == "parquet":
        assert [name for chunk, _ in parts for name in chunk.names.to_pylist()] == list(counts.clients)


@pytest.mark.parametrize(
    "policy",
    [
        Pool(distinct=KL(budget=5)),
        KL(budget=Uniform(budget=FullBalance())),
    ],
    ids=lambda policy: policy.spec,
)
def test_other_policies_need_the_whole_table(policy):
    assert not policy.can_plan_in_parts


def test_the_command_line_plans_a_large_table_in_passes(tmp_path, monkeypatch):
    counts = dirichlet_counts(60, 4, 0.3, 60)
    write_counts(tmp_path / "counts.parquet", counts)
    monkeypatch.setattr(request, "WHOLE_CELLS", 100)
    monkeypatch.setattr(CountTable, "counts", None)  # the table is never read whole
    out = tmp_path / "plan.parquet"
    for limit, policy in (["--total", "300"], Greedy(budget=300)), (["--beta", "5"], Greedy(budget=FedEAS(5))):
        with pytest.raises(SystemExit) as stopped:
            main(["plan", str(tmp_path / "counts.parquet"), "--policy", "greedy", *limit, "--out", str(out)])
        assert not stopped.value.code
        assert np.array_equal(read_allocation(out).n, policy.allocate(counts).n)
