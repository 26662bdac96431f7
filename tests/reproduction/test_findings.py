"""Verdicts with all comparisons in mind."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import RecordedRun
from rich.console import Console
from rich.markdown import Markdown

from fedeas.runs.comparison import Difference, Verdict
from reproduction.answers import advice_markdown, answers_markdown, contrasts_markdown, overall
from reproduction.artefacts import artefacts
from reproduction.beyond import ASIDE, EVERYWHERE, LARGEST, comparisons_in
from reproduction.costs import economies_markdown
from reproduction.findings import findings_in, findings_markdown, findings_of
from reproduction.results import Results
from reproduction.studies import study, with_seeds

RESULTS = Path(__file__).parents[2] / "reproduction" / "results"


@given(st.floats(-5, 5), st.floats(0.01, 3), st.integers(2, 12), st.integers(1, 50))
def test_more_comparisons_widen_the_interval_and_never_turn_a_verdict(mean, spread, seeds, comparisons):
    difference = Difference(mean, spread, seeds)
    low, high = difference.interval
    wider = difference.interval_among(comparisons)
    assert wider[0] <= low
    assert wider[1] >= high
    assert difference.verdict_among(comparisons) in (difference.verdict, Verdict.UNDECIDED)


@pytest.mark.parametrize(
    ("dataset", "experiments"), [("digits", 5), ("fashion-mnist", 5), ("cifar10", 3), ("cifar100", 1)]
)
def test_experiments_have_all_their_comparisons_and_seeds(packed, dataset, experiments):
    found = [each for each in packed if each.dataset == dataset]
    assert len(found) == experiments
    assert all(each.is_finished for each in found)


def test_on_fashion_mnist_generated_images_give_the_verdicts_of_real_ones(packed):
    places = ("K=100, alpha=0.1", "K=100, alpha=0.1, generated images")
    real, generated = (overall(each) for each in packed if each.dataset == "fashion-mnist" and each.clients in places)
    assert len(generated) == len(EVERYWHERE | {LARGEST}) - 1  # all but FedEAS itself
    assert {name: each.verdict for name, each in generated.items()} == {name: real[name].verdict for name in generated}


def test_no_cell_is_cut_off_in_a_window_of_80_columns(packed, kept):
    datasets = ("digits", "fashion-mnist", "cifar10", "cifar100")
    by_profile = [[each for each in packed if each.dataset == name] for name in datasets]
    whole = answers_markdown(packed), advice_markdown(packed), contrasts_markdown(packed), economies_markdown(kept)
    for text in (*whole, *(findings_markdown(*each) for each in by_profile)):
        console = Console(width=80, file=StringIO())
        console.print(Markdown(text))
        assert "…" not in console.file.getvalue()


def smoke_results(seeds_of):
    """Results in which each method of the profile smoke has some seeds, and FedEAS's accuracy is lowest."""
    results = Results([])
    for config in artefacts("beyond")[0].configs(study("smoke", "clean")):
        for run in with_seeds(config, seeds_of(config)):
            accuracy = 0.5 + 0.01 * (config.policy != "fedeas(beta=2)") + 0.001 * run.seed
            results.add(packed_run(run, accuracy))
    return results


def packed_run(config, accuracy):
    return RecordedRun.of(config, accuracy=accuracy, final=accuracy, steps=100, window=[3, 3])


def smoke_findings(seeds_of):
    return findings_of(study("smoke", "clean"), smoke_results(seeds_of))[0]


@pytest.mark.parametrize("profile", ["fashion", "digits"])
def test_side_questions_change_no_verdict_answer_or_advice(profile):
    chosen = study(profile, "clean")
    where = chosen.beyond[0]
    pairs = [(title, run) for each in comparisons_in(chosen, where) for title, run in each.runs.items()]
    configs = {run.fingerprint: (title, run) for title, run in pairs}.values()
    without = of_runs([run for title, run in configs if title not in ASIDE], chosen, where)
    beside = of_runs([run for _, run in configs], chosen, where)
    assert without.is_finished
    assert not without.aside
    assert {each.method for each in beside.aside} == {title for title, _ in configs} & ASIDE.keys()
    assert (beside.compared, beside.planned) == (without.compared, without.planned)
    for told in (findings_markdown, lambda each: answers_markdown([each]), lambda each: advice_markdown([each])):
        assert told(beside) == told(without)


def of_runs(configs, chosen, where):
    """What runs of all planned seeds show, whose accuracy depends on policy and generator."""
    results = Results([])
    for config in configs:
        level = 0.5 + 0.01 * (len(config.policy) % 7) + 0.01 * (len(config.generator) % 5)
        for run in with_seeds(config, chosen.profile.planned_seeds):
            results.add(packed_run(run, level + 0.001 * (run.seed % 3) * (1 + len(config.policy) % 4)))
    return findings_in(chosen, where, results)


def test_an_experiment_is_finished_when_all_comparisons_have_their_seeds():
    found = smoke_findings(lambda config: 2)
    assert found.is_finished
    assert found.seeds == "2 of 1"
    assert not replace(found, planned_seeds=3).is_finished
    some = smoke_findings(lambda config: 0 if config.policy.startswith("kl") else 2)
    assert not some.is_finished
    assert 0 < len(some.compared) < len(some.planned)
    assert some.planned == found.planned


def test_an_unfinished_experiment_says_how_many_seeds_it_has():
    found = replace(smoke_findings(lambda config: 2 if "pool" in config.policy else 3), planned_seeds=5)
    assert found.seeds == "2 to 3 of 5"
    assert found.seeds in findings_markdown(found)


def test_one_seed_shows_nothing():
    found = smoke_findings(lambda config: 1)
    assert {each.verdict for each in found.compared} == {Verdict.ONE_SEED}
    assert findings_markdown(found).count("(one seed)") == len(found.compared)


def test_a_verdict_does_not_depend_on_how_many_other_comparisons_have_been_made():
    whole = smoke_findings(lambda config: 3)
    part = smoke_findings(lambda config: 3 * (not config.policy.startswith("kl")))
    assert 0 < len(part.compared) < len(whole.compared)
    assert {each[:4] for each in part.compared} < {each[:4] for each in whole.compared}
    number = len(whole.planned)
    assert all(each.verdict is each.difference.verdict_among(number) for each in whole.compared)


@pytest.mark.parametrize("seeds", [1, 2, 4])
def test_without_all_its_seeds_a_comparison_shows_nothing(seeds):
    chosen = study("smoke", "clean")
    planned = replace(chosen, profile=replace(chosen.profile, planned_seeds=5))
    (found,) = findings_of(planned, smoke_results(lambda config: seeds))
    assert {each.verdict for each in found.compared} == {Verdict.UNFINISHED}
    assert not set("▲▼△▽") & set(findings_markdown(found).partition("Differences")[0])


def test_without_runs_nothing_is_claimed():
    (found,) = findings_of(study("digits", "paper"), Results([]))
    assert found.compared == ()
    assert "|" not in findings_markdown(found)
