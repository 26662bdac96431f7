"""Files of tensors: they are read as they were written, and damage is noticed."""

import json
import logging
import os

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from fedeas import InputError
from fedeas.core.weight_files import read_tensors, write_tensors

TENSORS = {
    "a/b": torch.arange(6, dtype=torch.float32).reshape(2, 3),
    "count": torch.tensor(7),
    "half": torch.linspace(-1, 1, 9).half(),
    "none": torch.zeros(0, 3),
}
ABOUT = {"fedeas": json.dumps({"rounds": 3, "name": 'größe "x"\n'}), "format": "test"}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("tensors") / "t.safetensors"
    write_tensors(path, TENSORS, ABOUT)
    return path


def test_tensors_are_read_as_they_were_written(path):
    about, tensors = read_tensors(path)
    assert about == ABOUT
    assert tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[name], tensor) for name, tensor in TENSORS.items())


def test_a_file_of_tensors_can_be_read_by_whoever_can_read_other_files(path):
    (path.parent / "other").touch()
    assert path.stat().st_mode == (path.parent / "other").stat().st_mode


def test_the_file_is_plain_safetensors(path):
    assert torch.equal(load_file(path)["half"], TENSORS["half"])


def test_numpy_arrays_are_written_and_read_without_torch_tensors(tmp_path):
    write_tensors(tmp_path / "n.safetensors", {"x": np.arange(4.0)}, {}, "numpy")
    (_, tensors) = read_tensors(tmp_path / "n.safetensors", "numpy")
    assert tensors["x"].tolist() == [0, 1, 2, 3]


def test_the_same_content_gives_the_same_bytes(path, tmp_path):
    for number in range(5):  # safetensors writes metadata in a random order
        write_tensors(tmp_path / f"{number}.safetensors", TENSORS, dict(reversed(ABOUT.items())))
    assert {file.read_bytes() for file in tmp_path.iterdir()} == {path.read_bytes()}


@pytest.mark.parametrize(
    "bits_of",
    [lambda byte: [byte % 8], pytest.param(lambda byte: range(8), marks=pytest.mark.slow)],
    ids=["one of each byte", "all"],
)
def test_a_flipped_bit_is_noticed(path, tmp_path, bits_of):
    whole, damaged = path.read_bytes(), tmp_path / "d.safetensors"
    places = [(byte, bit) for byte in range(len(whole)) for bit in bits_of(byte)]
    for byte, bit in places:
        content = bytearray(whole)
        content[byte] ^= 1 << bit
        damaged.write_bytes(content)
        with pytest.raises(InputError, match=r"d\.safetensors: not a readable"):
            read_tensors(damaged)


@given(st.data())
def test_cut_overwritten_and_lengthened_files_are_noticed(path, tmp_path_factory, data):
    whole, damaged = path.read_bytes(), tmp_path_factory.getbasetemp() / "d.safetensors"
    start = data.draw(st.integers(0, len(whole) - 1))
    stop = data.draw(st.integers(start, len(whole)))
    content = whole[:start] + data.draw(st.binary(max_size=20)) + data.draw(st.sampled_from([whole[stop:], b""]))
    if content == whole:
        return
    damaged.write_bytes(content)
    with pytest.raises(InputError, match=r"d\.safetensors: not a readable"):
        read_tensors(damaged)


def test_a_file_without_a_digest_is_accepted_and_that_is_logged(tmp_path, caplog):
    save_file(TENSORS, tmp_path / "old.safetensors", ABOUT)
    with caplog.at_level(logging.INFO, "fedeas"):
        assert read_tensors(tmp_path / "old.safetensors")[0] == ABOUT
    assert [record.levelname for record in caplog.records] == ["INFO"]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"w\.safetensors: no such file"):
        read_tensors(tmp_path / "w.safetensors")


def test_a_kill_while_safetensors_writes_leaves_nothing_after_the_next_write(tmp_path, monkeypatch):
    """safetensors puts a file of its own beside the one it writes; a killed process cannot remove it."""

    def die(tensors, file, metadata):
        (file.parent / ".tmpAbCdEf").write_bytes(b"half a file")
        os._exit(9)

    path = tmp_path / "t.safetensors"
    killed = os.fork()
    if not killed:
        monkeypatch.setattr("safetensors.torch.save_file", die)
        write_tensors(path, TENSORS, ABOUT)
    assert os.waitstatus_to_exitcode(os.waitpid(killed, 0)[1]) == 9
    assert any(tmp_path.iterdir())
    write_tensors(path, TENSORS, ABOUT)
    assert list(tmp_path.iterdir()) == [path]
