import gc
import weakref

import pytest
import torch

from fedeas.generators.memory import as_memory_allows


class Device:
    """Has memory for a limited batch; records the sizes tried and the tensors that failed tries made."""

    def __init__(self, room):
        self.room, self.tried, self.told, self.left = room, [], [], []

    def work(self, size):
        self.tried.append(size)
        tensor = torch.zeros(size)
        if size > self.room:
            self.left.append(weakref.ref(tensor))
            raise torch.OutOfMemoryError("a small device")
        return tensor

    def go_on_with(self, size):
        assert [left() for left in self.left] == [None] * len(self.left)  # before the next try there is room again
        self.told.append(size)


def test_a_batch_that_fits_is_done_at_once():
    device = Device(room=8)
    assert len(as_memory_allows(device.work, 8, device.go_on_with)) == 8
    assert (device.tried, device.told) == ([8], [])


def test_a_batch_that_does_not_fit_is_halved_until_it_does_and_its_memory_is_freed():
    device = Device(room=2)
    gc.disable()
    try:
        assert len(as_memory_allows(device.work, 13, device.go_on_with)) == 1
    finally:
        gc.enable()
    assert (device.tried, device.told) == ([13, 6, 3, 1], [6, 3, 1])


def test_a_batch_of_one_that_does_not_fit_is_an_error():
    device = Device(room=0)
    with pytest.raises(torch.OutOfMemoryError, match="a small device"):
        as_memory_allows(device.work, 2, device.go_on_with)
    assert device.tried == [2, 1]


def test_other_errors_are_not_tried_again():
    with pytest.raises(ZeroDivisionError):
        as_memory_allows(lambda size: size // 0, 4, lambda size: pytest.fail("tried again"))
