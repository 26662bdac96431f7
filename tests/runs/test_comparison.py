"""Paired differences over seeds, against SciPy's test and by laws; marks and sentences depend on intervals alone."""

from statistics import mean

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from fedeas.runs.comparison import (
    BEST,
    SECOND,
    Difference,
    Measured,
    Verdict,
    conclusion,
    paired_difference,
    ranks,
)

NUMBERS = st.floats(-100, 100).map(lambda value: round(value, 3))
PAIRS = st.dictionaries(st.integers(0, 50), st.tuples(NUMBERS, NUMBERS), min_size=2, max_size=12)
OPPOSITE = {Verdict.HIGHER: Verdict.LOWER, Verdict.LOWER: Verdict.HIGHER}


def split(pairs):
    return ({seed: pair[side] for seed, pair in pairs.items()} for side in (0, 1))


def by_seed(values):
    return dict(enumerate(values))


def differ_unequally(pairs):
    return np.subtract(*(list(each.values()) for each in split(pairs))).std() > 1e-6


UNEQUAL = PAIRS.filter(differ_unequally)


@given(UNEQUAL)
def test_the_interval_equals_that_of_scipys_paired_test(pairs):
    one, other = split(pairs)
    differences = np.subtract(list(one.values()), list(other.values()))
    expected = stats.ttest_rel(list(one.values()), list(other.values())).confidence_interval(0.95)
    found = paired_difference(one, other)
    assert found.interval == pytest.approx((expected.low, expected.high), rel=1e-9, abs=1e-9)
    assert found.mean == pytest.approx(differences.mean(), abs=1e-9)
    assert found.spread == pytest.approx(differences.std(ddof=1), abs=1e-9)


@given(UNEQUAL)
def test_the_interval_of_one_more_value_is_the_textbooks_prediction_interval(pairs):
    found = paired_difference(*split(pairs))
    wider = found.spread * np.sqrt(1 + 1 / found.seeds)
    expected = stats.t.interval(0.95, found.seeds - 1, loc=found.mean, scale=wider)
    assert found.interval_of_another == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(UNEQUAL)
def test_exchanging_the_methods_changes_the_sign_and_nothing_else(pairs):
    one, other = split(pairs)
    there, back = paired_difference(one, other), paired_difference(other, one)
    assert (back.mean, back.spread, back.seeds) == (-there.mean, there.spread, there.seeds)
    assert back.interval == (-there.interval[1], -there.interval[0])
    assert back.verdict is OPPOSITE.get(there.verdict, there.verdict)


@given(UNEQUAL, NUMBERS)
def test_a_shift_of_one_method_shifts_the_interval(pairs, shift):
    one, other = split(pairs)
    before = paired_difference(one, other)
    after = paired_difference({seed: value + shift for seed, value in one.items()}, other)
    assert after.interval == pytest.approx([end + shift for end in before.interval], abs=1e-6)


@given(UNEQUAL, st.floats(0.01, 100))
def test_a_scale_scales_the_interval(pairs, scale):
    one, other = split(pairs)
    before = paired_difference(one, other)
    after = paired_difference(*({seed: scale * value for seed, value in each.items()} for each in (one, other)))
    assert after.interval == pytest.approx([scale * end for end in before.interval], abs=1e-6)


@given(PAIRS, st.dictionaries(st.integers(51, 60), NUMBERS))
def test_seeds_that_one_method_lacks_do_not_count(pairs, more):
    one, other = split(pairs)
    assert paired_difference({**one, **more}, other) == paired_difference(one, other)


def test_one_shared_seed_has_no_interval_and_none_has_no_difference():
    alone = paired_difference({0: 5.0, 1: 6.0}, {1: 4.0})
    assert (alone.mean, alone.spread, alone.interval, alone.verdict) == (2.0, None, None, Verdict.ONE_SEED)
    assert paired_difference({0: 5.0}, {1: 4.0}) is None


@given(st.lists(st.integers(0, 359), min_size=2, max_size=6), st.integers(1, 50))
def test_seeds_that_differ_by_the_same_images_have_no_interval_and_no_rank(right, more):
    ours, base = (by_seed([100 * (each + extra) / 359 for each in right]) for extra in (more, 0))
    found = paired_difference(ours, base)
    assert (found.interval, found.verdict, found.verdict_among(9)) == (None, *[Verdict.NO_SPREAD] * 2)
    assert ranks({"ours": ours, "base": base}) == {}


@given(st.lists(NUMBERS, min_size=2, max_size=6))
def test_methods_that_do_not_differ_at_all_show_no_difference(values):
    same = by_seed(values)
    found = paired_difference(same, {seed: value + 1e-13 for seed, value in same.items()})
    assert (found.interval, found.verdict) == ((0, 0), Verdict.UNDECIDED)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [((1.0, 1.2, 0.9), "higher"), ((-1.0, -1.2, -0.9), "lower"), ((1.0, -1.2, 0.9), "no difference shown")],
)
def test_a_verdict_needs_an_interval_without_zero(values, verdict):
    assert Difference.of(values).verdict == verdict


@given(UNEQUAL)
def test_the_verdict_equals_that_of_a_test_at_five_percent(pairs):
    one, other = split(pairs)
    p = stats.ttest_rel(list(one.values()), list(other.values())).pvalue
    assume(abs(p - 0.05) > 1e-9)
    assert (paired_difference(one, other).verdict is not Verdict.UNDECIDED) == (p < 0.05)


def test_marks_need_intervals_that_exclude_a_tie_with_all_lower_methods():
    apart = {"a": by_seed([9.0, 9.1, 9.2]), "b": by_seed([7.0, 7.2, 7.1]), "c": by_seed([5.0, 5.1, 5.0])}
    assert ranks(apart) == {"a": BEST, "b": SECOND}
    assert ranks({**apart, "b": by_seed([8.0, 9.9, 9.0])}) == {}  # neither best nor second is shown
    assert ranks({**apart, "c": by_seed([3.0, 9.0, 5.0])}) == {}  # a tie with the third is not excluded
    assert ranks({name: apart[name] for name in "ab"}) == {"a": BEST}  # of two there is no second


def test_one_seed_is_never_marked():
    assert ranks({"a": {0: 90.0}, "b": {0: 10.0}, "c": {}}) == {}


@given(st.dictionaries(st.sampled_from("abcde"), st.dictionaries(st.integers(0, 5), NUMBERS), min_size=1))
def test_marked_methods_have_the_highest_means(methods):
    found = ranks(methods)
    order = sorted((name for name in methods if methods[name]), key=lambda name: -mean(methods[name].values()))
    assert list(found) == order[: len(found)]
    assert list(found.values()) == [BEST, SECOND][: len(found)]


def test_sentences_name_every_method_once_under_its_verdict():
    shown = {
        "a": Difference(-3.0, 0.1, 5), "b": Difference(3.0, 0.1, 5), "c": Difference(0.0, 1.0, 5),
        "d": Difference(-3.0, None, 1), "e": Difference(-3.0, 0.0, 2),
    }  # fmt: skip
    sentences = [set(sentence.strip(".").split()) for sentence in conclusion("ours", shown).split(". ")]
    assert [words & shown.keys() for words in sentences] == [{"a"}, {"b"}, {"c"}, {"d"}, {"e"}]
    assert conclusion("ours", {}) == ""


def test_without_values_there_is_no_measure():
    assert Measured.of([]) is None
