import re
from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from scipy.sparse import csr_array
from strategies import label_counts

import fedeas
from fedeas import Allocation, InputError, LabelCounts
from fedeas.core import arrays


def test_entropy_is_shannons_over_log_c():
    counts = LabelCounts([[50, 25, 25, 0]])
    assert counts.entropy[0] == pytest.approx(1.5 * np.log(2) / np.log(4), rel=1e-15)


@given(label_counts())
def test_entropy_lies_between_its_exact_ends(counts):
    held = (counts.n > 0).sum(axis=1)
    level = counts.n.max(axis=1) == counts.n.min(axis=1)
    assert ((counts.entropy >= 0) & (counts.entropy <= 1)).all()
    assert ((counts.entropy == 0) == (held == 1)).all()
    assert counts.entropy[level] == pytest.approx(1)


def test_entropy_of_counts_beyond_the_logarithm_table():
    large = LabelCounts([[3_000_000, 1_000_000], [3, 1]])
    assert large.entropy[0] == pytest.approx(large.entropy[1], rel=1e-14)


def test_blocks_cover_every_row_once_and_do_not_change_the_result(monkeypatch):
    counts = LabelCounts(np.random.default_rng(0).integers(1, 50, (37, 4)))
    whole = counts.entropy
    monkeypatch.setattr(arrays, "BLOCK_CELLS", 12)
    again = LabelCounts(counts.n)
    assert np.concatenate([np.arange(37)[rows] for rows in again.blocks()]).tolist() == list(range(37))
    assert np.array_equal(again.entropy, whole)


def test_counts_cannot_be_changed_from_outside_or_inside():
    source = np.array([[1, 2], [3, 4]])
    counts = LabelCounts(source)
    source[0, 0] = 99
    assert counts.n[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        counts.n[0, 0] = 5


def test_a_read_only_table_is_shared_not_copied():
    source = np.array([[1, 2], [3, 4]])
    source.flags.writeable = False
    assert LabelCounts(source).n is source


def test_rows_keep_their_names():
    counts = LabelCounts([[1, 2], [3, 4], [5, 6]], clients=["a", "b", "c"], classes=["x", "y"])
    assert counts[[2, 0]] == LabelCounts([[5, 6], [1, 2]], clients=["c", "a"], classes=["x", "y"])
    assert counts[1].clients == ("b",)
    assert len(counts[np.array([True, False, True])]) == 2


def test_plus_adds_and_refuses_another_shape():
    counts = LabelCounts([[1, 2], [3, 4]])
    assert counts.plus(Allocation([[0, 1], [2, 0]])).n.tolist() == [[1, 3], [5, 4]]
    with pytest.raises(InputError, match="1 clients x 2 classes"):
        counts.plus(Allocation([[0, 1]]))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([[1, 2], [3, -4]], "row 2, class '1': negative count -4; give 0 or more"),
        ([[1.0, 2.5]], "row 1, class '1': fractional count 2.5; give whole numbers"),
        ([[1.0, float("nan")]], "row 1, class '1': missing count; write 0 for none"),
        ([[1, None]], "row 1, class '1': missing count; write 0 for none"),
        ([[float("inf"), 1]], "row 1, class '0': count inf is too large"),
        ([[1, 2], [0, 0]], "row 2: client with no samples; remove the row"),
        ([[2**50, 1]], "row 1, class '0': count 1125899906842624 is too large"),
        ([[2**31 - 1, 1]], "row 1: more than 2,147,483,647 samples in one client"),
        ([[1], [2]], "the table has 1 class; give at least two"),
        (np.empty((0, 3)), "the table of counts is empty; give at least one client"),
        ([1, 2, 3], "counts must be a table of clients x classes, not 1-dimensional"),
        (csr_array([[1, 2]]), "counts must be whole numbers, not object"),
        (np.array([[2**63, 1]], dtype=np.uint64), "row 1, class '0': count 9223372036854775808 is too large"),
        ([["a", "b"]], "counts must be whole numbers"),
        (np.array([["2020-01-01", "2020-01-02"]], dtype="datetime64[D]"), "counts must be whole numbers, not datetime"),
        (np.array([[1, 2]], dtype="timedelta64[s]"), "counts must be whole numbers, not timedelta"),
        ([[1 + 2j, 3]], "counts must be whole numbers, not complex128"),
        (np.zeros((2, 2), dtype="i4,i4"), "counts must be whole numbers"),
        ([[1, {}]], "counts must be whole numbers"),
        ([[1, 2], [3]], "counts must be a table with rows of one length"),
        ([[10**400, 1]], "counts must be whole numbers"),
    ],
)
def test_bad_tables_are_refused_in_one_line(table, message):
    with pytest.raises(InputError) as caught:
        LabelCounts(table)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_names_are_checked():
    with pytest.raises(InputError, match=r"duplicate client 'a' \(rows 1 and 3\)"):
        LabelCounts([[1, 2]] * 3, clients=["a", "b", "a"])
    with pytest.raises(InputError, match=r"duplicate class 'x' \(columns 1 and 2\)"):
        LabelCounts([[1, 2]], classes=["x", "x"])
    with pytest.raises(InputError, match="3 client names for 1"):
        LabelCounts([[1, 2]], clients=["a", "b", "c"])
    with pytest.raises(InputError, match=r"row 1 \(client 'bob'\), class 'cat': negative count -1"):
        LabelCounts([[1, -1]], clients=["bob"], classes=["dog", "cat"])


@pytest.mark.parametrize("missing", [float("nan"), None, np.datetime64("NaT")])
def test_a_missing_name_is_not_taken_for_a_name(missing):
    with pytest.raises(InputError, match=r"missing client name \(number 2\)"):
        LabelCounts([[1, 2]] * 2, clients=["a", missing])
    with pytest.raises(InputError, match=r"missing class name \(number 1\)"):
        LabelCounts([[1, 2]], classes=[missing, "x"])


@pytest.mark.parametrize("table", [[[0.5, 1]], [[float("nan")]], [[1e300]], [[1j]], [["2"]], [[1], [2, 3]], [[{}]]])
def test_an_allocation_takes_whole_numbers_only(table):
    with pytest.raises(InputError, match="an allocation must be"):
        Allocation(table)


def test_allocation_refuses_negative_entries():
    with pytest.raises(InputError, match="no negative entry"):
        Allocation([[1, -1]])


def test_a_bad_count_is_found_in_any_thread(monkeypatch):
    monkeypatch.setattr(arrays, "BLOCK_CELLS", 4)
    monkeypatch.setattr(arrays, "THREADED_CELLS", 1)
    monkeypatch.setattr(arrays, "cores", lambda: 3)
    table = np.ones((40, 2), dtype=int)
    table[33, 1] = -1
    with pytest.raises(InputError, match="row 34, class '1': negative count -1"):
        LabelCounts(table)


def frame():
    return pd.DataFrame({"cat": [8, 1], "dog": [0, 5]}, index=["ann", "bob"])


@pytest.mark.parametrize(
    "table",
    [
        frame(),
        frame().rename_axis("client").reset_index(),
        pa.table({"client": ["ann", "bob"], "cat": [8, 1], "dog": [0, 5]}),
        {"ann": {"cat": 8}, "bob": {"dog": 5, "cat": 1}},
        {"ann": Counter(cat=8), "bob": Counter(dog=5, cat=1)},
    ],
    ids=["frame", "column of names", "arrow", "dictionary", "counters"],
)
def test_data_frames_and_dictionaries_name_their_clients_and_classes(table):
    counts = LabelCounts(table)
    assert (counts.n.tolist(), counts.clients, counts.classes) == ([[8, 0], [1, 5]], ("ann", "bob"), ("cat", "dog"))


def test_a_frame_whose_rows_are_only_numbered_has_no_names_of_clients():
    assert LabelCounts(frame().reset_index(drop=True)).clients is None
    assert LabelCounts(frame(), clients=["x", "y"]).clients == ("x", "y")


def test_dictionaries_without_names_of_clients_have_none():
    rows = [Counter({10: 8}), Counter({10: 1, 9: 5})]
    for table in (rows, tuple(rows), dict(enumerate(rows))):
        counts = LabelCounts(table)
        assert (counts.n.tolist(), counts.clients, counts.classes) == ([[0, 8], [5, 1]], None, ("9", "10"))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"ann": [8, 0], "bob": [1, 5]}, "client: {class: count}"),
        ([{"cat": 8, "dog": 1}, [1, 5]], "client: {class: count}"),
        ({}, "empty"),
        ({"ann": {}}, "at least two"),
        ({"ann": {"cat": 1, "dog": 2.5}}, "client 'ann'), class 'dog': fractional"),
        ({"ann": {"cat": 1, "dog": None}}, "client 'ann'), class 'dog': missing"),
        ({"ann": {"cat": 1, "dog": 2}, "bob": {}}, "client 'bob'): client with no samples"),
        ({"ann": {1: 1, "1": 2}}, "duplicate class '1'"),
    ],
)
def test_dictionaries_that_hold_no_counts_are_refused(table, message):
    with pytest.raises(InputError, match=re.escape(message)):
        LabelCounts(table)


@pytest.mark.parametrize("table", [[[8, 0], [1, 5]], np.array([[8, 0], [1, 5]]), frame()])
def test_policies_and_scores_take_whatever_holds_counts(table):
    counts = LabelCounts([[8, 0], [1, 5]])
    plan = fedeas.FedEAS(4).allocate(table)
    assert np.array_equal(plan.n, fedeas.FedEAS(4).allocate(counts).n)
    for score in (fedeas.imbalance, fedeas.imbalance_removed, fedeas.synthetic_share):
        assert score(table, plan) == score(counts, plan)
    assert np.array_equal(fedeas.marginal_gain(table), fedeas.marginal_gain(counts))


@pytest.mark.parametrize("table", [[[8, 0], [1, 5]], np.array([[8, 0], [1, 5]]), frame()])
def test_a_choice_of_beta_takes_whatever_holds_counts(table):
    counts, policy = LabelCounts([[8, 0], [1, 5]]), fedeas.FedEAS()
    assert fedeas.select_beta(table, max_share=0.6) == fedeas.select_beta(counts, max_share=0.6)
    assert fedeas.images_for_share(table, 0.3) == fedeas.images_for_share(counts, 0.3)
    assert np.array_equal(fedeas.beta_path(policy, table, 4).total, fedeas.beta_path(policy, counts, 4).total)
    for choose, limit in ((fedeas.beta_for_total, 3), (fedeas.beta_for_removed, 0.2), (fedeas.shortened_beta, 2.345)):
        assert choose(policy, table, limit) == choose(policy, counts, limit)


def test_scores_take_a_plan_as_they_take_its_allocation():
    counts = LabelCounts([[8, 0], [1, 5]])
    plan = fedeas.plan(counts, beta=4)
    for score in (fedeas.imbalance, fedeas.imbalance_removed, fedeas.imbalance_split, fedeas.synthetic_share):
        assert score(counts, plan) == score(counts, plan.allocation)
    for score in (fedeas.client_imbalance, fedeas.marginal_gain):
        assert np.array_equal(score(counts, plan), score(counts, plan.allocation))
    shown, expected = (fedeas.concentration(counts, each) for each in (plan, plan.allocation))
    assert np.array_equal(shown.budget, expected.budget)


def test_an_allocation_becomes_a_frame_with_the_names_of_its_counts():
    counts = LabelCounts(frame())
    plan = fedeas.FullBalance().allocate(counts)
    assert plan.to_frame().to_dict() == {"cat": {"ann": 0, "bob": 4}, "dog": {"ann": 8, "bob": 0}}
    assert Allocation([[0, 3]]).to_frame().columns.tolist() == [0, 1]


def test_counts_become_a_frame_and_are_shown_with_their_names():
    counts = LabelCounts([[8, 0], [1, 5000]], ["<b>", "bob"], ["cat", "dog"])
    assert LabelCounts(counts.to_frame()) == counts
    html = counts._repr_html_()
    assert "&lt;b&gt;" in html
    assert "<td>5000</td>" in html


@pytest.mark.parametrize("table", [LabelCounts, Allocation])
def test_what_has_no_name_is_called_by_its_number(table):
    assert table([[1, 2], [3, 4]]).client_names == table([[1, 2], [3, 4]]).class_names == ("0", "1")
    named = table([[1, 2], [3, 4]], clients=["ann", "bob"], classes=["cat", "dog"])
    assert (named.client_name(1), named.class_names) == ("bob", ("cat", "dog"))


def test_a_number_is_a_row_and_a_text_is_a_name():
    plan = Allocation(np.eye(3, dtype=int), clients=["5", "3", "0"])
    assert [plan.row_of(row) for row in (0, 1, 2)] == [0, 1, 2]
    assert [plan.row_of(name) for name in ("5", "3", "0")] == [0, 1, 2]
    assert Allocation(np.eye(3, dtype=int)).row_of("2") == 2
    for nobody in (5, -1, "1"):
        with pytest.raises(InputError, match="no client"):
            plan.row_of(nobody)


def test_the_package_shows_its_public_names_only():
    assert set(fedeas.__all__) <= set(dir(fedeas))
    assert not {"planning", "core", "Any", "TYPE_CHECKING"} & set(dir(fedeas))
