"""Records on disk: they are read as they were written, and damage is noticed."""

import json
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedeas import InputError
from fedeas.core.records import (
    Journal,
    read_arrays,
    read_record,
    write_arrays,
    write_record,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
RECORDS = st.dictionaries(st.text().filter(lambda key: key != "digest"), VALUES, max_size=5)
RECORD = {"round": 3, "clients": [0, 12], "accuracy": 0.8125, "seconds": {"train": 1.5}, "name": "größe"}
NAMES = {"clients": np.array(["a", "b", "c"]), "classes": np.array(["cat", "dog"])}
ARRAYS = {"counts": np.arange(6).reshape(3, 2), "allocation": np.ones((3, 2), dtype=np.int64), **NAMES}


def flipped(whole):
    for place in range(8 * len(whole)):
        content = bytearray(whole)
        content[place // 8] ^= 1 << place % 8
        yield place, bytes(content)


@given(RECORDS)
def test_a_record_is_read_as_it_was_written(tmp_path_factory, record):
    path = tmp_path_factory.getbasetemp() / "record.json"
    write_record(path, record)
    assert read_record(path) == record
    journal = Journal(path.with_suffix(".jsonl"), "")
    journal.path.unlink(missing_ok=True)
    journal.add(record)
    assert journal.read() == [record]


def test_tuples_and_whole_keys_are_read_as_json_has_them(tmp_path):
    write_record(tmp_path / "r.json", {"pair": (1, 2), "by_client": {10: "a", 9: "b"}})
    assert read_record(tmp_path / "r.json") == {"pair": [1, 2], "by_client": {"10": "a", "9": "b"}}


def test_every_flipped_bit_of_a_record_is_noticed_or_changes_nothing(tmp_path):
    path = tmp_path / "r.json"
    write_record(path, RECORD)
    for _, content in flipped(path.read_bytes()):
        path.write_bytes(content)
        try:
            found = read_record(path)
        except InputError as error:
            assert str(error).startswith(f"{path}: damaged (")
        else:
            assert found == RECORD  # a flip between spaces and line ends


def test_every_flipped_bit_of_a_line_is_noticed(tmp_path):
    journal = Journal(tmp_path / "r.jsonl", "")
    journal.add(RECORD)
    for _, content in flipped(journal.path.read_bytes().removesuffix(b"\n")):
        journal.path.write_bytes(content + b"\n")
        try:
            found = journal.read()
        except InputError as error:
            assert "line 1" in str(error)
        else:
            assert found == [RECORD]


def test_records_without_a_digest_are_accepted(tmp_path):
    (tmp_path / "old.json").write_text(json.dumps(RECORD))
    assert read_record(tmp_path / "old.json") == RECORD


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"\xff\xfe", b"[" * 100_000, b'{"digest": 3}'])
def test_a_file_that_is_not_a_record_is_named(tmp_path, content):
    (tmp_path / "r.json").write_bytes(content)
    with pytest.raises(InputError, match=r"r\.json: damaged \(.*\); remove the folder"):
        read_record(tmp_path / "r.json", "remove the folder")


def all_arrays(path):
    """Two arrays that must be there, and two that may be missing."""
    return read_arrays(path, ("counts", "allocation"), optional=tuple(NAMES))


def check_damaged_arrays(path, contents):
    """Each content is refused in one line, or read as the arrays that were written."""
    for content in contents:
        path.write_bytes(content)
        try:
            found = all_arrays(path)
        except InputError as error:
            assert str(error).startswith(f"{path}: damaged (") and "\n" not in str(error)
        else:
            assert all(np.array_equal(*pair) for pair in zip(found, ARRAYS.values(), strict=True))


def test_every_flipped_bit_of_arrays_is_noticed_or_changes_nothing(tmp_path):
    path = tmp_path / "a.npz"
    write_arrays(path, **ARRAYS)
    directory = path.read_bytes().index(b"PK\1\2") * 8
    damages = flipped(path.read_bytes())  # only some of them, for time
    check_damaged_arrays(path, (content for place, content in damages if place % (3 if place >= directory else 9) == 0))


@pytest.mark.parametrize("length", [2, 12, 16, 40])
def test_zeros_anywhere_in_arrays_are_noticed_or_change_nothing(tmp_path, length):
    path = tmp_path / "a.npz"
    write_arrays(path, **ARRAYS)
    whole = path.read_bytes()
    starts = range(whole.index(b"PK\1\2"), len(whole) - length)
    check_damaged_arrays(path, (whole[:start] + bytes(length) + whole[start + length :] for start in starts))


def test_an_entry_that_is_not_an_array_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("counts.npy", b"")
    with pytest.raises(InputError, match=r"a\.npz: damaged \(counts is not an array\)"):
        read_arrays(tmp_path / "a.npz", ("counts",))


@pytest.mark.parametrize("make", ["directory", "loop", "missing"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, make):
    path = tmp_path / "r.json"
    if make == "directory":
        path.mkdir()
    elif make == "loop":
        path.symlink_to(path)
    for read in (read_record, lambda path: read_arrays(path, ("x",))):
        with pytest.raises(InputError, match=r"r\.json: "):
            read(path)
