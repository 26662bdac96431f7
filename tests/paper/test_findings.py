"""Verdicts with all comparisons in mind, and the advice that follows from them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedeas.paper.findings import Compared, Findings, findings_markdown
from fedeas.paper.results import Results
from fedeas.paper.studies import study
from fedeas.paper.workbook import Workbook
from fedeas.planning.advice import SHOWN, Advice
from fedeas.runs.comparison import Difference, Verdict

RESULTS = Path(__file__).parents[2] / "results" / "beyond"


@given(st.floats(-5, 5), st.floats(0.01, 3), st.integers(2, 12), st.integers(1, 50))
def test_more_comparisons_widen_the_interval_and_never_turn_a_verdict(mean, spread, seeds, comparisons):
    difference = Difference(mean, spread, seeds)
    low, high = difference.interval
    wider = difference.interval_among(comparisons)
    assert wider[0] <= low
    assert wider[1] >= high
    assert difference.verdict_among(comparisons) in (difference.verdict, Verdict.UNDECIDED)


def findings(**verdicts):
    compared = [
        Compared(f"beta = {place}", name.replace("_", " "), Difference(1.0, 0.1, 5), verdict, 1.0)
        for name, found in verdicts.items()
        for place, verdict in enumerate(found)
    ]
    return Findings(("beta = 0", "beta = 1"), tuple(compared))


def test_what_is_higher_somewhere_and_lower_nowhere_is_recommended():
    higher, lower, open_ = Verdict.HIGHER, Verdict.LOWER, Verdict.UNDECIDED
    assert findings(KL=(open_, open_)).advice == Advice("fedeas", "fedeas", False)
    assert findings(KL=(higher, open_)).advice == Advice("fedeas", "kl", False)
    assert findings(KL=(higher, lower), Pool_to_the_mean=(open_, higher)).advice == Advice("pool", "fedeas", False)


@pytest.mark.parametrize("protocol", ["clean", "paper"])
def test_the_advice_of_the_planner_is_what_the_results_show(protocol):
    found = Findings.of(Workbook(study("digits", protocol), Results([RESULTS])))
    assert found.advice == SHOWN
    assert {each.difference.seeds for each in found.compared} == {10}


def test_without_runs_nothing_is_claimed(tmp_path):
    found = Findings.of(Workbook(study("digits", "clean"), Results([tmp_path])))
    assert found.compared == ()
    assert found.advice == Advice("fedeas", "fedeas", False)
    assert "|" not in findings_markdown(found)
