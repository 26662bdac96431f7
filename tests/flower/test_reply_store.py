"""Replies on disk are the replies that came, and the server's memory does not grow with them."""

import os
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedeas[flower]'", exc_type=ImportError)

from fedeas.algorithms.base import Reply, weighted_mean
from fedeas.core.errors import InputError, RunError
from fedeas.flower import engine
from fedeas.flower.wire import ReplyStore, StoredArrays

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import measure
import server_memory

CPU = torch.device("cpu")
KINDS = [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool]


def some_arrays(kinds):
    return {f"t{place}": (torch.rand(shape) * 9 - 3).to(kind) for place, (shape, kind) in enumerate(kinds)}


@given(
    st.lists(
        st.lists(st.tuples(st.lists(st.integers(0, 3), max_size=3), st.sampled_from(KINDS)), max_size=4), max_size=4
    ),
    st.integers(0, 200),
)
def test_tensors_are_read_as_they_were_kept(replies, room):
    store = ReplyStore(None, CPU, room)
    given = [some_arrays(kinds) for kinds in replies]
    kept = [store.keep(arrays) for arrays in given]
    for _ in range(2):
        for arrays, found in zip(given, kept, strict=True):
            assert list(found) == list(arrays)
            assert len(found) == len(arrays)
            for name, tensor in arrays.items():
                assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
                assert torch.equal(found[name], tensor)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_an_error_when_a_reply_is_kept_however_small_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda dir: Path("/dev/full").open("r+b"))  # noqa: SIM115
    with pytest.raises(RunError, match="No space left"):
        ReplyStore(tmp_path, CPU, room=0).keep({"w": torch.rand(3)})


def test_what_exceeds_the_room_is_on_disk_and_averages_to_the_same_bits(tmp_path):
    arrays = [{"w": torch.rand(100), "steps": torch.tensor(client)} for client in range(5)]
    store = ReplyStore(tmp_path, CPU, room=2 * 408)
    kept = [store.keep(each) for each in arrays]
    assert [isinstance(each, StoredArrays) for each in kept] == [False, False, True, True, True]
    assert not list(tmp_path.iterdir())  # the file has no name
    here, there = (weighted_mean([Reply(c, 10 + c, each) for c, each in enumerate(some)], ["w", "steps"])
                   for some in (arrays, kept))  # fmt: skip
    assert all(torch.equal(here[name], there[name]) for name in here)


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    with pytest.raises(InputError, match="nowhere: cannot be written"):
        ReplyStore(tmp_path / "nowhere", CPU, room=0).keep({"w": torch.rand(3)})


def peak_of(work):
    """How much memory more than before the process had during `work`, in bytes."""
    Path("/proc/self/clear_refs").write_text("5")  # begin a new peak
    before = measure.peak_resident_bytes()
    work()
    return measure.peak_resident_bytes() - before


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="needs Linux's peak of memory")
def test_the_servers_memory_does_not_grow_with_its_clients(monkeypatch):
    """The round of benchmarks/server_memory.py, smaller."""
    monkeypatch.setattr(engine, "IN_FLIGHT", 4_000_000)
    monkeypatch.setattr(engine, "ReplyStore", partial(ReplyStore, room=4_000_000))
    server_memory.one_round(4, 2.0)
    assert peak_of(lambda: server_memory.one_round(100, 2.0)) < 60e6  # 200 MB have come
