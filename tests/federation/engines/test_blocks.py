"""Shared memory: one process reads what another wrote, whatever the earlier content."""

import os

import torch
from hypothesis import given
from hypothesis import strategies as st

from fedeas.federation.engines import processes as module
from fedeas.federation.engines.processes import ALIGNMENT, Block

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool]


@st.composite
def arrays(draw):
    shapes = st.lists(st.integers(0, 5), max_size=3)
    kinds = draw(st.dictionaries(st.text(max_size=5), st.tuples(shapes, st.sampled_from(DTYPES)), max_size=5))
    stream = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    return {name: torch.randint(0, 200, shape, generator=stream).to(dtype) for name, (shape, dtype) in kinds.items()}


def assert_same(one, other):
    assert list(one) == list(other)
    for name in one:
        assert (one[name].dtype, one[name].shape) == (other[name].dtype, other[name].shape)
        assert torch.equal(one[name], other[name])


@given(st.lists(arrays(), max_size=5))
def test_appended_tensors_can_be_read_through_another_descriptor(written):
    mine = Block()
    other = Block(os.dup(mine.descriptor))
    places = []
    for each in written:
        places.append(mine.append(each))
        assert_same(other.read(places[-1]), each)
    for place, each in zip(places, written, strict=True):
        assert_same(other.read(place), each)


@given(arrays(), arrays())
def test_overwritten_tensors_are_read_with_their_new_values(first, second):
    mine = Block()
    other = Block(os.dup(mine.descriptor))
    assert_same(other.read(mine.write(first)), first)
    assert_same(other.read(mine.write(second)), second)


@given(arrays(), st.integers(0, 9))
def test_tensors_are_aligned_and_do_not_overlap(some, blocks):
    places = Block().write(some, blocks * ALIGNMENT)
    end = blocks * ALIGNMENT
    for name, (_, _, start) in places.items():
        assert start >= end
        assert start % ALIGNMENT == 0
        end = start + some[name].numel() * some[name].itemsize


def test_earlier_tensors_stay_when_a_block_grows():
    block = Block()
    first = block.read(block.write({"first": torch.ones(10)}))["first"]
    block.append({"second": torch.zeros(100_000)})
    assert first.tolist() == [1] * 10
    first.fill_(2)
    assert block.read({"first": (first.dtype, (10,), 0)})["first"].tolist() == [2] * 10


def test_a_place_that_was_read_shows_later_values_even_if_the_block_has_grown():
    mine = Block()
    other = Block(os.dup(mine.descriptor))
    places = mine.write({"first": torch.zeros(10)})
    assert other.read(places)["first"].sum() == 0
    mine.append({"second": torch.zeros(100_000)})
    assert mine.write({"first": torch.ones(10)}) == places
    assert other.read(places)["first"].sum() == 10


def test_a_block_forgets_tensors_before_it_remembers_too_many(monkeypatch):
    monkeypatch.setattr(module, "MOST_TENSORS", 3)
    block = Block()
    written = {str(number): torch.full((2,), number) for number in range(8)}
    places = block.write(written)
    assert len(block.tensors) <= 3
    assert_same(block.read(places), written)
    assert len(block.tensors) <= 3


def test_a_block_leaves_no_file_behind():
    assert os.fstat(Block().descriptor).st_nlink == 0
