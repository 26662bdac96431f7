"""Records as columns, read back as they were."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedeas.core.record_tables import FAULTS, read_table, write_table

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))
RECORDS = st.lists(st.dictionaries(st.text(), VALUES, max_size=4), max_size=6)


@given(RECORDS)
def test_records_are_read_back_with_their_order_of_keys(records):
    assert json.dumps(read_table(write_table(records))) == json.dumps(records)


def test_each_kind_of_value_has_one_line_however_many_records_there_are():
    records = [{"round": number, "seconds": {"train": 0.5, "test": 0.1}} for number in range(50)]
    _, *columns = map(json.loads, write_table(records).splitlines())
    assert {tuple(line["column"]): len(line["values"]) for line in columns} == {
        ("round",): 50,
        ("seconds", "train"): 50,
        ("seconds", "test"): 50,
    }


HEAD = b'{"shapes": [[0]], "rows": [0, 0]}\n'
NO_TABLES = {
    "nothing": b"",
    "no JSON": b"{\n",
    "a list": b"[1]\n",
    "a record": b'{"a": 1}\n',
    "no column": HEAD,
    "a value is missing": HEAD + b'{"column": ["a"], "values": [1]}\n',
    "a value too many": HEAD + b'{"column": ["a"], "values": [1, 2, 3]}\n',
    "no name": HEAD + b'{"column": [], "values": [1, 2]}\n',
}


@pytest.mark.parametrize("kind", NO_TABLES)
def test_a_text_that_is_not_a_table_is_refused(kind):
    with pytest.raises(FAULTS):
        read_table(NO_TABLES[kind])
