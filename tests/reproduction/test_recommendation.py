"""Advice needs a method that is higher over all budgets with all seeds, and lower nowhere."""

from dataclasses import replace

import pytest

from fedeas.planning.advice import AT_CLIENTS, AT_SERVER
from fedeas.runs.comparison import Difference
from reproduction.answers import Advice, Shown, advice_markdown, advice_of, mean_of_experiments
from reproduction.findings import Compared, Findings
from reproduction.methods import FEDEAS
from reproduction.text import mean_cell

BETAS = 2
HIGHER, LOWER, OPEN = (1.0, 1.0), (-1.0, -1.0), (0.0, 0.0)
KL = Advice(clients=Shown("kl", ("digits",), 1, 1))


def compared(method, level, place, seeds):
    values = {seed: level + 0.01 * (seed - 2) for seed in range(seeds)}
    difference = Difference.of(list(values.values()))
    return Compared(f"beta = {place}", method, difference, difference.verdict, values)


def findings(dataset="digits", seeds=5, **levels):
    """An experiment in which methods differ from FedEAS by these levels, one for each budget."""
    made = [
        compared(name.replace("_", " "), level, place, seeds)
        for name, found in levels.items()
        for place, level in enumerate(found)
    ]
    planned = tuple((each.table, each.method) for each in made)
    return Findings(dataset, "clean", tuple(made), planned, planned_seeds=5, budgets=BETAS)


def test_what_is_higher_over_all_budgets_and_lower_at_none_is_recommended():
    assert advice_of([]) == Advice()
    assert advice_of([findings(KL=OPEN)]) == Advice()
    assert advice_of([findings(KL=HIGHER)]) == KL
    assert advice_of([findings(KL=(0.0, 1.0))]) == KL
    assert advice_of([findings(KL=(-1.0, 3.0))]) == Advice()  # higher in the mean, lower at one budget
    both = findings(KL=LOWER, Pool_to_the_mean=HIGHER)
    assert advice_of([both]) == Advice(server=Shown("pool", ("digits",), 1, 1))


def test_a_budget_or_a_seed_that_is_missing_is_waited_for_but_one_budget_is_enough_to_warn():
    better = findings(KL=HIGHER)
    assert advice_of([findings(KL=(1.0,))]) == Advice()
    assert advice_of([replace(better, planned_seeds=6)]) == Advice()
    assert advice_of([better, findings("other", KL=(-1.0,))]) == Advice()


def test_advice_counts_the_experiments_that_show_it_among_all_that_are_judged():
    first = findings(KL=HIGHER)
    for others, expected in (
        ([findings("other", KL=OPEN)], Shown("kl", ("digits",), 1, 2)),
        ([findings("other", seeds=4, KL=HIGHER)], Shown("kl", ("digits",), 1, 1)),
        ([first, findings(KL=OPEN)], Shown("kl", ("digits",), 2, 3)),
        ([findings("other", KL=HIGHER)], Shown("kl", ("digits", "other"), 2, 2)),
    ):
        found = advice_of([first, *others])
        mean = mean_of_experiments([first, *others], "KL")
        assert found.clients.gained.startswith(mean_cell(mean))
        assert bool(found.clients.gained) == bool(mean_cell(mean))
        assert found == Advice(clients=expected._replace(gained=found.clients.gained))
        assert all(dataset in "; ".join(found.clauses) for dataset in expected.datasets)
        assert f"{expected.higher} of {expected.judged} experiments" in "".join(found.clauses)


def test_the_policy_that_is_higher_on_more_datasets_is_recommended():
    first, second = findings(Greedy=HIGHER, KL=HIGHER), findings("other", Greedy=OPEN, KL=HIGHER)
    assert advice_of([first]).clients.policy == "greedy"  # among equals the first one
    assert advice_of([findings(Greedy=HIGHER, KL=(1.0, 1.1))]).clients.policy == "kl"  # its mean is higher
    assert advice_of([first, second]).clients.policy == "kl"


def test_a_loss_is_recommended_unless_it_is_lower_somewhere():
    def with_loss(dataset="digits", **levels):
        found = findings(dataset, **levels)
        made = tuple(each._replace(method=f"{each.method}, balanced softmax") for each in found.compared)
        return replace(found, compared=made, planned=tuple((each.table, each.method) for each in made))

    higher = with_loss(FedEAS=HIGHER)
    assert advice_of([higher, with_loss("open", FedEAS=OPEN)]).loss[1:4] == (("digits",), 1, 2)
    assert advice_of([with_loss(FedEAS=OPEN, KL=HIGHER)]).loss == Shown()  # that may be due to KL
    assert advice_of([higher, with_loss("other", FedEAS=LOWER)]).loss == Shown()


@pytest.mark.parametrize(("seeds", "made"), [(1, BETAS), (5, 1)])
def test_missing_seeds_or_budgets_recommend_nothing_and_leave_the_row_empty(seeds, made):
    found = findings(seeds=seeds, KL=HIGHER)
    found = replace(found, compared=found.compared[:made])
    assert advice_of([found]) == Advice()
    (row,) = (line for line in advice_markdown([found]).splitlines() if found.title in line and line.startswith("|"))
    assert found.seeds in row
    assert FEDEAS.title not in row


def test_the_advice_of_the_planner_is_what_the_results_show(packed):
    found = advice_of(packed)
    assert (found.server.policy, found.clients.policy) == (AT_SERVER, AT_CLIENTS)
    assert found.loss == Shown()
