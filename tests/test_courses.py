"""Courses of runs, and what several seeds have in common."""

import pytest

from fedeas.config import RunConfig
from fedeas.courses import Course, mean_course
from fedeas.store import RunStore


def test_a_runs_course_has_its_evaluated_rounds_alone(tmp_path):
    run = RunStore(tmp_path).open(RunConfig())
    assert run.course() == Course([], [])
    for number, accuracy in ((1, 0.25), (2, None), (3, 0.0)):
        run.append_round({"round": number, "accuracy": accuracy})
    run.append_round({"round": 4})
    assert run.course() == Course([1, 3], [0.25, 0.0])


def test_seeds_have_a_mean_and_extremes_where_none_is_missing():
    found = mean_course([Course([1, 2, 3], [0.2, 0.4, 0.9]), Course([1, 2], [0.4, 0.6])])
    assert (found.rounds, found.seeds) == ([1, 2], 2)
    assert (found.low, found.high) == ([0.2, 0.4], [0.4, 0.6])
    assert found.middle == pytest.approx([0.3, 0.5])


def test_seeds_without_an_evaluated_round_do_not_count():
    assert mean_course([Course([], []), Course([5], [0.5])]).seeds == 1
    assert mean_course([]) == mean_course([Course([], [])]) == ([], [], [], [], 0)
