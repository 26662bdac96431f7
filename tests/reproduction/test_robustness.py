"""How far gains carry, against the experiments that are behind them."""

from dataclasses import replace
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from test_answers import experiment, with_budget

from fedeas.runs.comparison import Difference, fixed
from reproduction.answers import at_end, robustness_markdown, sign_test
from reproduction.beyond import WHOLE
from reproduction.findings import NOTHING
from reproduction.text import signed

levels = st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=2, max_size=5)


@given(levels)
def test_each_end_is_the_mean_over_experiments_at_this_budget_alone(pairs):
    found = [replace(with_budget(experiment("one", level=low), "beta = 12", high), budgets=2) for low, high in pairs]
    for end in (0, -1):
        expected = Difference.of([pair[end] + 0.02 for pair in pairs])
        assert at_end(found, "Uniform", end).mean == pytest.approx(expected.mean, abs=1e-9)
        assert at_end(found, "Uniform", end).spread == pytest.approx(expected.spread, abs=1e-9)


def test_an_experiment_that_misses_runs_and_the_papers_protocol_do_not_count():
    whole = with_budget(experiment("one", level=1.0), "beta = 12", 2.0)
    missing = replace(whole, compared=whole.compared[:1])
    leaking = replace(with_budget(experiment("one", level=9.0), "beta = 12", 9.0), protocol="paper")
    for end in (0, -1):
        assert at_end([whole, missing, leaking], "Uniform", end).seeds == 1


def tables(experiments):
    """The cells of both tables."""
    elsewhere, without, _ = robustness_markdown(experiments).split("\n\n")
    return [
        [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()]
        for table in (elsewhere, without)
    ]


def test_a_dataset_is_left_out_with_all_its_experiments():
    gains = {"a": [1.0, 2.0], "b": [4.0], "c": [-1.0]}
    found = [experiment(dataset, level=level) for dataset, values in gains.items() for level in values]
    elsewhere, without = tables(found)
    heads, _, (_, *cells) = without
    for head, cell in zip(heads[1:], cells, strict=True):
        left = [value + 0.02 for dataset, values in gains.items() if head != f"without {dataset}" for value in values]
        assert len(left) < 4
        assert cell == f"{signed(mean(left), 2)} ({Difference.of(left).range_text(2)})"
    assert elsewhere[-1][1] == "3 of 4 (p = 0.62)"


def test_nothing_is_shown_without_runs():
    assert robustness_markdown([]) == NOTHING
    assert robustness_markdown([experiment("one", seeds=1)]) == NOTHING


def test_the_kept_results_give_what_their_comparisons_give(packed):
    gains = []
    for found in packed:
        own = [each for each in found.compared if each.method == WHOLE and not each.is_control]
        if found.protocol == "clean" and len(own) == found.budgets:
            gains.append(mean(mean(each.by_seed[seed] for each in own) for seed in range(found.planned_seeds)))
    elsewhere, _ = tables(packed)
    (row,) = (row for row in elsewhere if row[0] == WHOLE)
    assert row[1].startswith(f"{sum(gain > 0 for gain in gains)} of {len(gains)} ")
    assert row[2] == " to ".join(fixed(end, 2) for end in Difference.of(gains).interval_of_another)


@given(st.lists(st.sampled_from([-2.0, -1.0, 0.0, 0.5, 3.0]), max_size=30))
def test_the_sign_test_equals_scipys_binomial_test(values):
    signs = [value > 0 for value in values if value]
    expected = stats.binomtest(sum(signs), len(signs)).pvalue if signs else 1.0
    assert sign_test(values) == pytest.approx(expected)
