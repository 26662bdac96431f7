"""Accuracy of runs over rounds, and the mean over several seeds."""

from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedeas.config import RunConfig
from fedeas.runs.accuracy_curves import AccuracyCurve, RoundRange, mean_curve, summarise
from fedeas.runs.store import RunStore


def test_a_runs_curve_has_only_its_evaluated_rounds(tmp_path):
    run = RunStore(tmp_path).open(RunConfig())
    assert AccuracyCurve.of(run.rounds()) == AccuracyCurve([], [])
    for number, accuracy in ((1, 0.25), (2, None), (3, 0.0)):
        run.append_round({"round": number, "accuracy": accuracy})
    run.append_round({"round": 4})
    assert AccuracyCurve.of(run.rounds()) == AccuracyCurve([1, 3], [0.25, 0.0])


def test_mean_and_extremes_cover_rounds_that_all_seeds_have():
    found = mean_curve([AccuracyCurve([1, 2, 3], [0.2, 0.4, 0.9]), AccuracyCurve([1, 2], [0.4, 0.6])])
    assert (found.rounds, found.seeds) == ([1, 2], 2)
    assert (found.low, found.high) == ([0.2, 0.4], [0.4, 0.6])
    assert found.middle == pytest.approx([0.3, 0.5])


def test_seeds_without_an_evaluated_round_do_not_count():
    assert mean_curve([AccuracyCurve([], []), AccuracyCurve([5], [0.5])]).seeds == 1
    assert mean_curve([]) == mean_curve([AccuracyCurve([], [])]) == ([], [], [], [], 0)


@given(st.integers(1, 10_000))
def test_the_window_is_the_smallest_whole_number_of_last_rounds_that_makes_a_tenth(rounds):
    first, last = RoundRange.of(rounds)
    size = last - first + 1
    assert last == rounds
    assert 10 * (size - 1) < rounds <= 10 * size


@pytest.mark.parametrize(
    ("rounds", "window"), [(200, (181, 200)), (60, (55, 60)), (15, (14, 15)), (10, (10, 10)), (1, (1, 1))]
)
def test_windows_of_the_paper_and_of_other_numbers_of_rounds(rounds, window):
    assert RoundRange.of(rounds) == window


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.integers(1, 70))
def test_accuracy_is_the_mean_of_the_evaluations_in_the_last_tenth_or_the_last_one(accuracies, every):
    rounds = len(accuracies)
    evaluated = [number for number in range(1, rounds + 1) if number % every == 0] or [1]
    records = [
        {"round": number, **({"accuracy": value} if number in evaluated else {})}
        for number, value in enumerate(accuracies, 1)
    ]
    late = [number for number in evaluated if number > rounds - rounds / 10] or evaluated[-1:]
    found = summarise(records, 0.5)
    assert found["accuracy"] == pytest.approx(mean(accuracies[number - 1] for number in late))
    assert found["window"][0] <= late[0] <= late[-1] <= found["window"][1]
    assert found["final"] == accuracies[evaluated[-1] - 1]
    assert found["peak"] == max(accuracies[number - 1] for number in evaluated)


def test_the_untrained_start_of_a_short_run_does_not_count():
    records = [{"round": number, "accuracy": number / 20} for number in range(1, 16)]
    assert summarise(records, 0.5)["accuracy"] == pytest.approx((14 + 15) / 2 / 20)


def test_work_is_summed_over_all_rounds_and_unknown_if_a_record_lacks_it():
    records = [{"round": number, "accuracy": 0.5, "steps": 3 * number, "samples": 7} for number in (1, 2)]
    assert (summarise(records, 0.5)["steps"], summarise(records, 0.5)["samples"]) == (9, 14)
    del records[0]["samples"]
    assert (summarise(records, 0.5)["steps"], summarise(records, 0.5)["samples"]) == (9, None)
