"""What docs/results.md says in words about the runs in results/: rendering its tables anew would not notice."""

from pathlib import Path

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


def test_the_order_on_cifar_10_is_the_papers_and_its_distances_are_not(cifar):
    assert cifar["FedEAS"] > cifar["Missing-only"] > cifar["Uniform"] > cifar["FedAvg"] + 15
    place = [each.id for each in published().settings].index(WHERE.id)
    paper = {name: float(row[place]) for name, row in published().accuracy.items()}
    assert cifar["FedEAS"] - cifar["Missing-only"] == pytest.approx(paper["fedeas"] - paper["missing-only"], abs=0.5)
    assert cifar["Missing-only"] - cifar["Uniform"] < 0.5
    assert paper["missing-only"] - paper["uniform"] > 10
    names = {"FedAvg": "fedavg", "Missing-only": "missing-only", "FedEAS": "fedeas"}
    assert all(paper[name] - cifar[title] > 10 for title, name in names.items())


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


@pytest.mark.parametrize("protocol", ["paper", "clean"])
@pytest.mark.parametrize("other", [FEDAVG, UNIFORM, MISSING_ONLY], ids=lambda method: method.title)
def test_on_digits_fedeas_is_above_with_every_seed(protocol, other):
    own, others = (accuracies(RESULTS / "digits", study("digits", protocol), method) for method in (FEDEAS, other))
    assert len(own) == len(others) == 10
    assert all(own[seed] > others[seed] for seed in own)


@pytest.mark.parametrize(("protocol", "sign"), [("paper", 1), ("clean", -1)])
@pytest.mark.parametrize("reference", [GREEDY, OPTIMAL], ids=lambda method: method.title)
def test_on_digits_it_depends_on_the_partition_whether_less_imbalance_is_better(protocol, sign, reference):
    chosen = study("digits", protocol)
    own, others = (accuracies(RESULTS / "digits", chosen, method) for method in (FEDEAS, reference))
    gain = sum(others[seed] - own[seed] for seed in own) / len(own)
    assert 0 < sign * gain < 1
    configs = [chosen.config(WHERE, method) for method in (FEDEAS, reference)]
    less, more = (scores.removed(counts_of(config), plan_of(config)) for config in configs)
    assert more > less
