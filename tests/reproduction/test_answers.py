"""Answers follow from means over budgets, and only from those that seeds show."""

from dataclasses import replace
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import RecordedRun

from fedeas.runs.comparison import Difference, Verdict
from reproduction.answers import (
    MIXED,
    NOT_SHOWN,
    QUESTIONS,
    STEPS,
    answer,
    answers_markdown,
    mean_of,
    mean_of_datasets,
    mean_of_experiments,
    overall,
)
from reproduction.findings import Compared, Findings, findings_in
from reproduction.methods import FEDAVG, FEDEAS
from reproduction.published import setting
from reproduction.results import Results
from reproduction.studies import beyond_study, with_seeds

UNIFORM = next(question for question in QUESTIONS if question.methods == ("Uniform",))
POOLED = next(question for question in QUESTIONS if question.methods[0].endswith(STEPS))

seeds = st.dictionaries(st.integers(0, 5), st.floats(-9, 9), min_size=1)


@given(seeds)
def test_over_one_budget_the_mean_is_the_comparison_itself(values):
    assert mean_of([values]) == Difference.of([values[seed] for seed in sorted(values)])


@given(st.lists(seeds, min_size=1, max_size=3))
def test_only_seeds_that_all_budgets_have_count(budgets):
    shared = [seed for seed in range(6) if all(seed in each for each in budgets)]
    found = mean_of(budgets)
    assert (found.seeds if found else 0) == len(shared)
    if found:
        assert found.mean == pytest.approx(mean(each[seed] for each in budgets for seed in shared), abs=1e-9)


def experiment(dataset, method="Uniform", table="beta = 4", level=1.0, seeds=5):
    values = {seed: level + 0.01 * seed for seed in range(seeds)}
    difference = Difference.of(list(values.values()))
    compared = (Compared(table, method, difference, difference.verdict, values),)
    return Findings(dataset, "clean", compared, ((table, method),), 5)


def with_budget(found, table, level):
    """The same experiment with a further budget."""
    (more,) = experiment(found.dataset, table=table, level=level).compared
    return replace(found, compared=(*found.compared, more), planned=(*found.planned, (table, more.method)))


def test_an_answer_needs_an_experiment_that_shows_it_and_none_that_shows_the_opposite():
    lower, higher = experiment("one", level=-1.0), experiment("other")
    open_ones = [experiment("third", level=-0.02), experiment("fourth", level=-1.0, seeds=1)]
    for experiments, short in (
        ([lower, *open_ones], UNIFORM.if_lower),
        ([higher, *open_ones], UNIFORM.if_higher),
        ([lower, higher], MIXED),
        (open_ones, NOT_SHOWN),
    ):
        assert answer(UNIFORM, experiments) == short


def test_the_opposite_at_a_single_budget_makes_an_answer_depend():
    higher, both = experiment("one"), with_budget(experiment("other", level=5.0), "beta = 12", -5.04)
    assert overall(both)["Uniform"].verdict is Verdict.UNDECIDED
    assert answer(UNIFORM, [higher, both]) == MIXED
    row = row_of("Uniform", [higher, both])
    single = "(and at single budgets in 1)"
    assert row["verdicts"] == f"lower in 0 {single} and higher in 1 {single}, of 2"


def test_experiments_that_have_all_runs_are_counted():
    shown = [experiment(f"set-{number}", level=-1.0) for number in range(3)]
    more = [replace(experiment("other", level=-1.0), protocol="paper"), experiment("open", level=-0.02)]
    unfinished = experiment("unfinished", level=0.02, seeds=1)
    assert row_of("Uniform", [*shown, *more, unfinished])["verdicts"] == "lower in 4, of 5"
    assert row_of("Uniform", more[1:])["verdicts"] == "neither, of 1"


def row_of(method, experiments):
    """The cells of a method in the first table, by their heads."""
    lines = [line.split("|")[1:-1] for line in answers_markdown(experiments).split("\n\n")[1].splitlines()]
    heads, _, *rows = [[cell.strip() for cell in line] for line in lines]
    return next(each for row in rows if (each := dict(zip(heads, row, strict=True)))["instead of FedEAS"] == method)


def test_a_row_gives_the_means_over_clean_experiments_with_their_intervals():
    levels = [-1.0, -1.1, -1.2]
    shown = [experiment(f"set-{number}", level=level) for number, level in enumerate(levels)]
    found = mean_of_experiments(shown, "Uniform")
    assert found.verdict is Verdict.LOWER
    row = row_of("Uniform", [*shown, replace(experiment("leaks", level=-9.0), protocol="paper")])
    assert row["mean over experiments (95 %)"] == f"−{-found.mean:.2f} ({found.range_text(2)})"
    assert row["over datasets (95 %)"] == row["mean over experiments (95 %)"]  # each dataset has one experiment
    assert row_of("Uniform", shown[:1])["mean over experiments (95 %)"] == ""  # one experiment has no interval


@pytest.mark.parametrize(
    ("levels", "reached"), [((1.4, 1.5, 1.6), True), ((0.7, 0.8, 0.9), False), ((-9.0, 1.0, 30.0), False)]
)
def test_the_goal_is_a_point_more_with_an_interval_above_zero(levels, reached):
    found = answers_markdown([experiment(f"set-{number}", level=level) for number, level in enumerate(levels)])
    assert found.partition("\n\n")[0].endswith("**Yes**: Uniform." if reached else f"**{NOT_SHOWN}**.")


@given(st.lists(st.floats(-9, 9), min_size=2, max_size=6))
def test_the_mean_of_experiments_has_experiments_as_units(levels):
    found = mean_of_experiments([experiment("one", level=level) for level in levels], "Uniform")
    assert found == Difference.of([mean(level + 0.01 * seed for seed in range(5)) for level in levels])


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(-9, 9)), min_size=2, max_size=6))
def test_the_mean_of_datasets_has_datasets_as_units(levels):
    found = mean_of_datasets([experiment(name, level=level) for name, level in levels], "Uniform")
    own = {name: [level + 0.02 for other, level in levels if other == name] for name, _ in levels}
    expected = Difference.of([mean(each) for each in own.values()])
    assert found.seeds == len(own)
    assert found.mean == pytest.approx(expected.mean, abs=1e-9)
    assert found.spread == pytest.approx(expected.spread, abs=1e-9)


def test_the_mean_of_experiments_leaves_out_what_is_not_comparable():
    good, leaks, begun = experiment("one"), experiment("two", level=7.0), experiment("three", level=8.0)
    partly = replace(experiment("four", level=9.0), budgets=2)
    others = [replace(leaks, protocol="paper"), partly, experiment("five", seeds=1), experiment("six", method="KL")]
    assert mean_of_experiments([good, begun, *others], "Uniform") == mean_of_experiments([good, begun], "Uniform")
    assert mean_of_experiments(others, "Uniform") is None


def test_comparisons_at_equal_steps_are_apart():
    pool = POOLED.methods[0].removesuffix(STEPS)
    usual, control = experiment("one", pool), experiment("one", pool, "beta = 4, equal steps")
    assert [*overall(usual)] == [pool]
    assert [*overall(control)] == [POOLED.methods[0]]


def test_more_methods_widen_the_intervals():
    alone = experiment("one", level=0.005)
    (compared,) = alone.compared
    others = tuple((compared.table, name) for question in QUESTIONS for name in question.methods)
    assert overall(alone)["Uniform"].verdict is Verdict.HIGHER
    assert overall(replace(alone, planned=others))["Uniform"].verdict is Verdict.UNDECIDED


def test_a_mean_is_judged_when_all_its_budgets_have_all_their_seeds():
    found = experiment("one")
    assert overall(found)["Uniform"].verdict is Verdict.HIGHER
    assert overall(replace(found, planned_seeds=6))["Uniform"].verdict is Verdict.UNFINISHED
    later = (*found.planned, ("beta = 12", "Uniform"))
    assert overall(replace(found, planned=later))["Uniform"].verdict is Verdict.UNFINISHED


def cifar_findings(place, methods):
    results, chosen = Results([]), beyond_study("full", "clean")
    for config in (chosen.config(setting(place), method) for method in methods):
        for run in with_seeds(config, 1):
            results.add(RecordedRun.of(run, accuracy=0.5, final=0.5, steps=100, window=[181, 200]))
    return findings_in(chosen, setting(place), results)


@pytest.mark.parametrize("place", ["c10-k100-a0.1", "c10-k20-a0.1"])
def test_an_experiment_is_shown_with_its_first_paired_comparison(place):
    nothing = cifar_findings(place, [FEDAVG])
    assert nothing.compared == ()
    assert nothing.title not in answers_markdown([nothing])
    found = cifar_findings(place, [FEDAVG, FEDEAS])
    assert len(found.compared) == 1
    assert found.clients == setting(place).title.removeprefix("CIFAR-10, ")
    shown = answers_markdown([nothing, found])
    assert f"**{found.dataset}** ({found.setup})" in shown
    assert found.setting in shown
    assert found.seeds in shown
    assert f"1 of {found.budgets} budgets" in shown


@pytest.mark.parametrize(
    ("profile", "model", "held_out"), [("cifar100", "small-cnn", True), ("full", "resnet18", False)]
)
def test_an_experiment_names_its_network_and_its_images(profile, model, held_out):
    chosen = beyond_study(profile, "clean")
    setup = findings_in(chosen, chosen.beyond[0], Results([])).setup
    assert model in setup
    assert ("real" in setup) == held_out
