"""What docs/results.md says in words about the runs in results/: rendering its tables anew would not notice."""

from pathlib import Path

import numpy as np
import pytest

from fedeas import scores
from fedeas.paper.plans import counts_of, plan_of
from fedeas.paper.published import published, setting
from fedeas.paper.results import Results
from fedeas.paper.studies import FEDAVG, FEDEAS, GREEDY, MISSING_ONLY, OPTIMAL, UNIFORM, study

RESULTS = Path(__file__).parents[2] / "results"
WHERE = setting("c10-k100-a0.1")
RISING = (FEDAVG, UNIFORM, MISSING_ONLY, FEDEAS, OPTIMAL)


def accuracies(folder, chosen, method):
    """By seed, in percent."""
    found = Results([folder]).seeds(chosen.config(WHERE, method))
    return {seed: 100 * run.summary()["accuracy"] for seed, run in sorted(found.items())}


@pytest.fixture(scope="module")
def cifar():
    methods = (*RISING, GREEDY)
    return {method.title: accuracies(RESULTS, study("full"), method)[0] for method in methods}


@pytest.fixture(scope="module")
def courses():
    found = Results([RESULTS])
    methods = (UNIFORM, MISSING_ONLY, FEDEAS, GREEDY, OPTIMAL)
    runs = {method.title: found.seeds(study("full").config(WHERE, method))[0] for method in methods}
    return {title: np.array(run.course().accuracy) for title, run in runs.items()}


def test_fedeas_is_ahead_on_cifar_10_as_in_the_paper_but_missing_only_is_not(cifar):
    assert cifar["FedEAS"] > max(cifar["Missing-only"], cifar["Uniform"])
    assert min(cifar["Missing-only"], cifar["Uniform"]) > cifar["FedAvg"] + 15
    place = [each.id for each in published().settings].index(WHERE.id)
    paper = {name: float(row[place]) for name, row in published().accuracy.items()}
    assert cifar["FedEAS"] - cifar["Missing-only"] == pytest.approx(paper["fedeas"] - paper["missing-only"], abs=0.5)
    assert abs(cifar["Missing-only"] - cifar["Uniform"]) < 0.5
    assert paper["missing-only"] - paper["uniform"] > 10
    names = {"FedAvg": "fedavg", "Missing-only": "missing-only", "FedEAS": "fedeas"}
    assert all(paper[name] - cifar[title] > 10 for title, name in names.items())


def test_uniform_is_ahead_of_missing_only_in_most_rounds_but_the_last_ones(courses):
    ahead = courses["Uniform"] - courses["Missing-only"]
    assert 0.5 < (ahead > 0).mean() < 0.7
    assert ahead[:-20].mean() > 0 > ahead[-20:].mean()


@pytest.mark.parametrize("reference", ["Greedy", "Optimal"])
def test_the_lead_over_fedeas_is_almost_everywhere_shrinks_and_is_gone_at_the_end(courses, reference):
    lead = courses[reference] - courses["FedEAS"]
    assert (lead > 0).mean() > 0.95
    assert lead[:50].mean() > 1.5 * lead[-50:].mean() > 0
    assert lead[-1] < 0


def test_accuracy_on_cifar_10_follows_the_imbalance_removed(cifar):
    configs = {method.title: study("full").config(WHERE, method) for method in RISING}
    removed = {title: scores.removed(counts_of(config), plan_of(config)) for title, config in configs.items()}
    assert sorted(removed, key=removed.__getitem__) == sorted(removed, key=cifar.__getitem__)


def test_greedy_and_optimal_are_almost_one_plan_and_above_fedeas_on_cifar_10(cifar):
    greedy, optimal = (plan_of(study("full").config(WHERE, method)).n for method in (GREEDY, OPTIMAL))
    assert 0 < abs(greedy - optimal).sum() / 2 < 100
    assert cifar["Greedy"] == pytest.approx(cifar["Optimal"], abs=0.1)
    assert 0.5 < cifar["Optimal"] - cifar["FedEAS"] < 2


def test_fedavg_reaches_the_same_level_in_both_protocols(cifar):
    clean = accuracies(RESULTS, study("full", "clean"), FEDAVG)[0]
    assert clean == pytest.approx(cifar["FedAvg"], abs=0.5)


def gains_over_fedeas(protocol, method):
    """In points, paired by seed."""
    own, others = (accuracies(RESULTS / "digits", study("digits", protocol), each) for each in (FEDEAS, method))
    assert len(own) == len(others) == 10
    return np.array([others[seed] - own[seed] for seed in own])


@pytest.mark.parametrize("protocol", ["paper", "clean"])
def test_on_digits_the_means_stand_in_the_papers_order(protocol):
    fedavg, uniform, missing_only = (gains_over_fedeas(protocol, each) for each in (FEDAVG, UNIFORM, MISSING_ONLY))
    assert fedavg.mean() < uniform.mean() < missing_only.mean() < 0
    assert (fedavg < 0).all()
    for other in (uniform, missing_only):
        assert (other < 0).sum() >= 8
        assert other.mean() > -1


@pytest.mark.parametrize("reference", [GREEDY, OPTIMAL], ids=lambda method: method.title)
def test_on_digits_less_imbalance_is_better_in_one_protocol_and_makes_no_difference_in_the_other(reference):
    paper, clean = (gains_over_fedeas(protocol, reference) for protocol in ("paper", "clean"))
    assert (paper > 0).sum() >= 8
    error = clean.std(ddof=1) / len(clean) ** 0.5
    assert abs(clean.mean()) < error
