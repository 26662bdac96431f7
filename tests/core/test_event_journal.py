"""Journals: no record is lost, whatever a kill leaves at the end."""

import pytest

from fedeas import InputError
from fedeas.core.records import Journal

RECORDS = [{"round": 0, "told": {"total": 3}}, {"round": 1, "name": "größe"}]
NEXT = {"round": 2}


@pytest.fixture
def journal(tmp_path):
    made = Journal(tmp_path / "state" / "answers.jsonl", "keep it")
    assert made.read() == []
    for record in RECORDS:
        made.add(record)
    return made


def test_records_are_read_in_the_order_in_which_they_were_added(journal):
    assert journal.read() == RECORDS
    assert journal.path.read_bytes().count(b"\n") == len(RECORDS)


def test_a_kill_at_any_byte_loses_no_record_but_the_one_that_was_being_added(journal):
    whole = journal.path.read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(first, len(whole) + 1):
        journal.path.write_bytes(whole[:length])
        kept = RECORDS if length >= len(whole) - 1 else RECORDS[:1]  # without its line end, the last one is whole
        assert journal.read() == kept
        journal.add(NEXT)
        assert journal.read() == [*kept, NEXT]
        assert journal.path.read_bytes().endswith(b"\n")


def test_zeros_after_a_power_failure_are_half_a_line(journal):
    journal.path.write_bytes(journal.path.read_bytes() + bytes(40))
    journal.add(NEXT)
    assert journal.read() == [*RECORDS, NEXT]


def test_a_damaged_line_is_refused_and_nothing_is_removed(journal):
    whole = journal.path.read_bytes()
    for damage in (whole.replace(b'"round": 0', b'"round": 7'), whole[9:], whole[:-9] + b"\n",
                   whole.replace(b'"round": 1', b'"round": 7').rstrip(b"\n"), b"\n" + whole):  # fmt: skip
        journal.path.write_bytes(damage)
        with pytest.raises(InputError, match=r"answers\.jsonl: damaged .*; keep it"):
            journal.read()
        assert journal.path.read_bytes() == damage
