"""The ledger and the paragraph: runs with the paper's own numbers agree with the paper in every line."""

import re
from decimal import Decimal

import pytest

from fedeas.planning.policies import FedEAS
from reproduction.ledger import (
    COUNT_POINTS,
    LEVEL_POINTS,
    Standing,
    View,
    headline,
    judge_count,
    ledger,
    ledger_markdown,
)
from reproduction.methods import FEDAVG, FEDEAS, FULL_BALANCE, GREEDY, METHODS, MISSING_ONLY, SCAFFOLD, UNIFORM, Method
from reproduction.published import EXAMPLE, published, setting
from reproduction.results import Results
from reproduction.studies import HEADLINE, plan_of, study, with_seeds

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


SAVING = "makes fewer images"  # needs no runs


def judged(folder, protocol="paper"):
    """The standings of lines that runs have filled."""
    found = standings(folder, protocol).items()
    return {name: each for (name, _), each in found if SAVING not in name and each is not Standing.NOT_RUN}


@pytest.mark.parametrize(("where", "lines"), [(HEADLINE, 6), (EXAMPLE, 6 + 2)])  # and two of Gamma-hat
def test_the_papers_own_numbers_agree_in_every_line(where, lines, run_as_printed, tmp_path):
    run_as_printed(setting(where))
    assert list(judged(tmp_path).values()) == [Standing.AGREES] * lines
    assert not judged(tmp_path, "clean")


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
    compared = {name: each for name, each in judged(tmp_path).items() if "level" not in name}
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


def test_gamma_hat_is_compared_in_the_papers_setting_alone(run_as_printed, tmp_path):
    run_as_printed(HERE)
    assert not [name for name in judged(tmp_path) if "Gamma-hat" in name]
    run_as_printed(setting(EXAMPLE))
    assert len([name for name in judged(tmp_path) if "Gamma-hat" in name]) == 2


def test_a_line_without_runs_is_left_out_and_its_setting_is_named(run_as_printed, tmp_path):
    main = ledger(Results([tmp_path]))
    run_as_printed(names=("fedavg",))
    assert {line.where for line in ledger(Results([tmp_path]))[len(main) :]} == {HERE.title}
    (empty,) = re.findall(r"Not run under either protocol: (.*)\.$", rendered(tmp_path), re.MULTILINE)
    assert empty.split("; ") == [each.title for each in published().settings if each != HERE]


def test_the_main_claims_are_listed_without_any_run(tmp_path):
    found = standings(tmp_path)
    claims = ("Full-Balance's gain", "takes longer", "rises with the budget", "above FedEAS", "above SCAFFOLD")
    for says in claims:
        assert standing(tmp_path, says) is Standing.NOT_RUN
    assert standing(tmp_path, SAVING) is Standing.AGREES
    assert len(found) == len(claims) + 1


@pytest.mark.parametrize("points", [0.9, 1.1])
def test_a_number_from_counts_may_be_off_by_what_the_page_says(points):
    expected = Standing.AGREES if points <= COUNT_POINTS else Standing.DIFFERS
    assert judge_count(94.1 + points, Decimal("94.1")).standing is expected


def run_with(finished, where, method, values, name="accuracy"):
    """Runs of a method, one for each value; times are given in minutes."""
    for run, value in zip(with_seeds(study("full").config(where, method), len(values)), values, strict=True):
        finished(run, **({"seconds": {"total": 60 * value}} if name == "minutes" else {name: value}))


@pytest.mark.parametrize(
    ("reached", "expected"), [(0.66, Standing.AGREES), (0.54, Standing.DIFFERS), (0.6, Standing.OPEN)]
)
def test_most_of_a_gain_is_shown_to_be_more_than_half(reached, expected, finished, tmp_path):
    where = setting(EXAMPLE)  # from 50 % to 70 %: half the gain is at 60 %
    run_with(finished, where, FEDAVG, [0.50, 0.50, 0.50])
    run_with(finished, where, FULL_BALANCE, [0.70, 0.70, 0.70])
    run_with(finished, where, FEDEAS, [reached - 0.01, reached, reached + 0.01])
    assert standing(tmp_path, "Full-Balance's gain") is expected


@pytest.mark.parametrize(
    ("minutes", "expected"),
    [((30, 31, 33), Standing.AGREES), ((5, 6, 6), Standing.DIFFERS), ((10, 11, 12), Standing.OPEN)],
)
def test_times_are_compared_by_their_direction(minutes, expected, finished, tmp_path):
    run_with(finished, setting(EXAMPLE), FEDEAS, [10, 12, 11], "minutes")
    run_with(finished, setting(EXAMPLE), FULL_BALANCE, minutes, "minutes")
    assert standing(tmp_path, "takes longer") is expected


def test_a_time_with_images_from_the_bank_is_none(finished, tmp_path):
    run_with(finished, setting(EXAMPLE), FEDEAS, [10, 12, 11], "minutes")
    run_with(finished, setting(EXAMPLE), FULL_BALANCE, [{"found": 5}] * 3, "images")
    assert standing(tmp_path, "takes longer") is Standing.NOT_RUN


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ((0.50, 0.55, 0.60, 0.65, 0.70), Standing.AGREES),
        ((0.50, 0.55, 0.60), Standing.OPEN),  # two budgets are missing
        ((0.50, 0.55, 0.60, 0.65, 0.45), Standing.PARTLY),
        ((0.55, 0.50), Standing.DIFFERS),
    ],
)
def test_accuracy_rises_if_all_budgets_show_it(levels, expected, finished, tmp_path):
    for place, (beta, level) in enumerate(zip(published().beta_sweep.beta, levels, strict=False)):
        spread = [level + step * (1 + place / 10) for step in STEPS]
        run_with(finished, setting(EXAMPLE), Method("FedEAS", policy=FedEAS(float(beta)).spec), spread)
    assert standing(tmp_path, "rises with the budget") is expected


def test_the_combination_is_compared_by_its_peaks(finished, tmp_path):
    printed = published().combination
    where, both = setting(printed.setting), FEDEAS.combined(SCAFFOLD)
    for place, (method, level) in enumerate(
        ((both, printed.both), (FEDEAS, printed.fedeas), (SCAFFOLD, printed.both + 5))
    ):
        run_with(finished, where, method, [float(level) / 100 + step * (1 + place / 10) for step in STEPS], "peak")
    assert standing(tmp_path, "above FedEAS") is Standing.AGREES
    assert standing(tmp_path, "above SCAFFOLD") is Standing.DIFFERS


def test_every_line_of_the_rendered_ledger_has_all_its_cells(run_as_printed, tmp_path):
    run_as_printed()
    table = [line for line in rendered(tmp_path).splitlines() if line.startswith("|")]
    assert len(table) == 2 + len(ledger(Results([tmp_path])))
    assert {line.count("|") for line in table} == {5}


def rendered(folder):
    return ledger_markdown(Results([folder]))


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


def test_the_summary_has_the_papers_level_of_every_method_and_the_share_of_synthetic_data(run_as_printed, tmp_path):
    run_as_printed(protocol="clean", names=("fedeas",))
    names = ("fedavg", "uniform", "missing-only", "fedeas")
    assert {str(published().printed(name, HERE)) for name in names} <= numbers(words(tmp_path))
    config = study("full", "clean").config(HERE, FEDEAS)
    images, real = plan_of(config).total, plan_of(config).counts.total
    assert f"{images:,} synthetic images" in words(tmp_path)
    assert f"{100 * images / (images + real):.0f} % of the training data" in words(tmp_path)


NOT_REPRODUCED = "we do not reproduce it"


@pytest.mark.parametrize(
    ("clean", "paper", "missing"),
    [(None, None, False), (0.70, 0.70, True), (0.70, None, False), (None, 0.70, False)],
)
def test_a_gap_is_not_reproduced_if_every_interval_excludes_it(clean, paper, missing, run_as_printed, tmp_path):
    for protocol, uniform in (("clean", clean), ("paper", paper)):
        run_as_printed(protocol=protocol, **({} if uniform is None else {"uniform": uniform}))
    assert (NOT_REPRODUCED in words(tmp_path)) == missing
    assert str(published().printed("fedeas", HERE) - published().printed("uniform", HERE)) in numbers(words(tmp_path))


@pytest.mark.parametrize("seeds", [1, 3])
def test_one_seed_does_not_refute_the_paper(seeds, run_as_printed, tmp_path):
    run_as_printed(protocol="clean", uniform=0.70, seeds=seeds)
    assert (NOT_REPRODUCED in words(tmp_path)) == (seeds > 1)


def test_the_paragraph_has_no_result_where_there_is_none(finished, tmp_path):
    finished(study("full", "clean").config(HERE, UNIFORM))
    assert not numbers(words(tmp_path))
