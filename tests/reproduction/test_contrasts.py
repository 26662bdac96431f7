"""Contrasts pair two methods by seed, whatever FedEAS does, and wait for all runs."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedeas.runs.comparison import Difference
from reproduction.answers import contrast_in, contrasts_markdown
from reproduction.beyond import DISJOINT
from reproduction.findings import NOTHING, Compared, Findings

SEEDS = 4
LOSS = ("KL, balanced softmax", "KL")
levels = st.lists(st.floats(-9, 9), min_size=SEEDS, max_size=SEEDS)


def compared(method, values, table="beta = 4"):
    difference = Difference.of(values)
    return Compared(table, method, difference, difference.verdict, dict(enumerate(values)))


def experiment(*made, **more):
    planned = tuple((each.table, each.method) for each in made)
    return Findings("digits", "clean", made, planned, planned_seeds=SEEDS, **more)


def difference_in(found, pair):
    whole, _ = contrast_in(found, pair)
    return whole


@given(levels, levels)
def test_a_contrast_is_the_paired_difference_of_its_methods(with_loss, without):
    found = difference_in(experiment(compared(LOSS[0], with_loss), compared("KL", without)), LOSS)
    expected = Difference.of([own - other for own, other in zip(with_loss, without, strict=True)])
    assert (found.mean, found.spread) == pytest.approx((expected.mean, expected.spread), abs=1e-9)


@given(levels, levels)
def test_against_fedeas_it_is_the_comparison_itself_and_budgets_are_averaged(first, second):
    made = compared("KL", first), compared("KL", second, "beta = 12")
    found = difference_in(experiment(*made, budgets=2), ("KL", "FedEAS"))
    expected = Difference.of([(one + other) / 2 for one, other in zip(first, second, strict=True)])
    assert (found.mean, found.spread) == pytest.approx((expected.mean, expected.spread), abs=1e-9)


@given(levels, levels)
@pytest.mark.parametrize("pair", [(LOSS[0], "KL"), ("FedEAS", "KL")])
def test_the_other_way_round_a_contrast_changes_its_sign(pair, with_loss, without):
    found = experiment(compared(LOSS[0], with_loss), compared("KL", without))
    one, other = difference_in(found, pair), difference_in(found, pair[::-1])
    assert (one.mean, one.spread) == pytest.approx((-other.mean, other.spread), abs=1e-9)


def test_a_contrast_waits_for_all_seeds_and_budgets_and_leaves_controls_out():
    made = [compared(LOSS[0], [1.0] * SEEDS), compared("KL", [0.0] * SEEDS)]
    whole = experiment(*made)
    assert difference_in(whole, LOSS).mean == 1.0
    assert difference_in(replace(whole, planned_seeds=SEEDS + 1), LOSS) is None
    assert difference_in(replace(whole, budgets=2), LOSS) is None
    controls = [each._replace(table="beta = 4, equal steps") for each in made]
    assert difference_in(experiment(*controls), LOSS) is None
    assert difference_in(experiment(made[0]), LOSS) is None


def test_the_ceiling_is_told_without_being_a_comparison():
    central = compared("Central training", [5.0, 6.0, 5.0, 6.0])
    shown = contrasts_markdown([replace(experiment(), aside=(central,))])
    assert "+5.50" in shown
    assert "+5.50" not in contrasts_markdown([replace(experiment(), aside=(central,), protocol="paper")])


def test_a_side_question_is_told_at_each_budget_that_has_all_its_seeds():
    whole, part = [1.25] * (SEEDS - 1) + [1.5], [3.0] * (SEEDS - 1)
    first = compared(DISJOINT, whole)
    shown = contrasts_markdown([replace(experiment(budgets=2), aside=(first, compared(DISJOINT, part, "beta = 12")))])
    assert "beta = 4" in shown
    assert "beta = 12" not in shown
    assert contrasts_markdown([replace(experiment(budgets=2), aside=(compared(DISJOINT, part),))]) == NOTHING
    both = replace(experiment(budgets=2), aside=(first, compared(DISJOINT, whole, "beta = 12")))
    assert contrasts_markdown([both]).count("+1.31") == 3  # at each budget, and their mean
