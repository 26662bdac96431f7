"""The ledger and the paragraph: runs with the paper's own numbers agree with the paper in every line."""

import re

import pytest

from fedeas.paper.headline import headline
from fedeas.paper.ledger import (
    LEVEL_POINTS,
    Standing,
    View,
    ledger,
    ledger_markdown,
    ledger_remarks,
    settings_without_runs,
)
from fedeas.paper.published import EXAMPLE, published, setting
from fedeas.paper.results import Results
from fedeas.paper.studies import FEDAVG, FEDEAS, GREEDY, HEADLINE, METHODS, MISSING_ONLY, UNIFORM, study, with_seeds

HERE = setting(HEADLINE)
STEPS = (-0.002, 0.0, 0.003)  # of three seeds


@pytest.fixture
def run_as_printed(finished):
    """A function that makes runs with the paper's numbers for these methods, with a small spread."""

    def make(where=HERE, protocol="paper", names=("fedavg", "uniform", "missing-only", "fedeas"), seeds=3, **changes):
        gamma = published().gamma_hat.median
        for place, name in enumerate(names):
            config = study("full", protocol).config(where, METHODS[name])
            level = float(published().printed(name, where)) / 100
            reached = changes.get(name, level)
            first = published().round_of(name, where)
            for run, step in zip(with_seeds(config, seeds), STEPS, strict=False):
                finished(
                    run,
                    accuracy=reached + step * (1 + place / 10),
                    rounds_to_threshold=None if first is None else int(first) + round(1000 * step * (1 + place / 4)),
                    gamma_hat=None if name not in gamma else float(gamma[name]) * (1 + step * (1 + place / 10)),
                )

    return make


def standings(folder, protocol="paper"):
    return {(line.says, line.where): line.found[protocol].standing for line in ledger(Results([folder]))}


def standing(folder, says, protocol="paper"):
    (found,) = {each for (name, _), each in standings(folder, protocol).items() if says in name}
    return found


@pytest.mark.parametrize("where", [HEADLINE, EXAMPLE])
def test_the_papers_own_numbers_agree_in_every_line(where, run_as_printed, tmp_path):
    run_as_printed(setting(where))
    found = standings(tmp_path)
    assert len(found) == 6 + 2  # of the setting, and of Gamma-hat
    assert set(found.values()) == {Standing.AGREES}
    assert set(standings(tmp_path, "clean").values()) == {Standing.NOT_RUN}


def test_a_uniform_policy_far_above_the_papers_is_a_disagreement(run_as_printed, tmp_path):
    run_as_printed(uniform=0.72)
    assert standing(tmp_path, "above Uniform") is Standing.DIFFERS
    assert standing(tmp_path, "level") is Standing.PARTLY
    assert standing(tmp_path, "order") is Standing.PARTLY  # Missing-only is below Uniform now
    assert standing(tmp_path, "above Missing-only") is Standing.AGREES


def test_levels_are_judged_by_the_points_that_the_page_names(run_as_printed, tmp_path):
    printed = float(published().printed("fedeas", HERE))
    run_as_printed(names=("fedeas",), fedeas=(printed + LEVEL_POINTS + 0.5) / 100)
    assert standing(tmp_path, "level") is Standing.DIFFERS


def test_one_seed_leaves_every_comparison_open(run_as_printed, tmp_path):
    run_as_printed(seeds=1)
    found = standings(tmp_path)
    compared = {name: each for (name, _), each in found.items() if "level" not in name and "Gamma-hat of" not in name}
    assert set(compared.values()) == {Standing.OPEN}


def test_an_interval_that_contains_both_zero_and_the_papers_number_leaves_it_open(finished, tmp_path):
    config = {method: study("full").config(HERE, method) for method in (FEDEAS, FEDAVG)}
    for seed, (own, base) in enumerate([(0.7, 0.5), (0.75, 0.7)]):
        finished(config[FEDEAS].model_copy(update={"seed": seed}), accuracy=own)
        finished(config[FEDAVG].model_copy(update={"seed": seed}), accuracy=base)
    assert standing(tmp_path, "above FedAvg") is Standing.OPEN


@pytest.mark.parametrize(
    ("missed", "expected"), [((), Standing.AGREES), ((1,), Standing.OPEN), ((0, 1, 2), Standing.OPEN)]
)
def test_a_seed_that_never_reaches_the_threshold_leaves_the_rounds_open(missed, expected, finished, tmp_path):
    for method, first in ((FEDEAS, 30), (MISSING_ONLY, 50)):
        for run in with_seeds(study("full").config(HERE, method), 3):
            late = method is MISSING_ONLY and run.seed in missed
            finished(run, rounds_to_threshold=None if late else first + run.seed * (2 if method is FEDEAS else 1))
    assert standing(tmp_path, "before Missing-only") is expected


def test_gamma_hat_of_another_setting_names_that_setting(run_as_printed, tmp_path):
    run_as_printed(HERE, "clean")
    (line,) = [line for line in ledger(Results([tmp_path])) if line.says.startswith("Gamma-hat of")]
    assert line.where == setting(EXAMPLE).title
    assert "K=100" in line.found["clean"].evidence


def test_a_line_without_runs_is_left_out_and_its_setting_is_named(run_as_printed, tmp_path):
    assert ledger(Results([tmp_path])) == []
    run_as_printed(names=("fedavg",))
    assert {line.where for line in ledger(Results([tmp_path]))} == {HERE.title, setting(EXAMPLE).title}
    empty = settings_without_runs(Results([tmp_path]))
    assert [each.id for each in empty] == [each.id for each in published().settings if each != HERE]
    assert empty[0].title in rendered(tmp_path)


def test_every_line_of_the_rendered_ledger_has_all_its_cells(run_as_printed, tmp_path):
    run_as_printed()
    table = [line for line in rendered(tmp_path).splitlines() if line.startswith("|")]
    assert len(table) == 2 + len(ledger(Results([tmp_path])))
    assert {line.count("|") for line in table} == {5}


def rendered(folder):
    found = Results([folder])
    lines = ledger(found)
    return ledger_markdown(lines, ledger_remarks(lines, found))


def words(folder, protocol="clean"):
    return headline(View(protocol, Results([folder])))


def numbers(text):
    return set(re.findall(r"\d+\.\d\d", text))


def test_the_paragraph_has_the_numbers_of_the_runs(finished, tmp_path):
    for method, values in ((FEDEAS, (0.70, 0.72, 0.74)), (UNIFORM, (0.68, 0.70, 0.71)), (GREEDY, (0.705,))):
        for run, value in zip(
            with_seeds(study("full", "clean").config(HERE, method), len(values)), values, strict=True
        ):
            finished(run, accuracy=value)
    # differences of Uniform: -2, -2, -3, with t = 4.3027 and deviation 1 / sqrt(3)
    assert {"72.00", "2.00", "2.33", "3.77", "0.90", "0.50"} <= numbers(words(tmp_path))
    assert "higher than Uniform" in words(tmp_path)
    assert "lower than" not in words(tmp_path)  # one seed of Greedy decides nothing


def test_the_paragraph_has_no_result_where_there_is_none(finished, tmp_path):
    finished(study("full", "clean").config(HERE, UNIFORM))
    assert not numbers(words(tmp_path))
