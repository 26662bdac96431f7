"""Tensors in memory that processes share."""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from typing import NamedTuple

import torch
from torch import Tensor

from fedeas.algorithms.base import Arrays

ALIGNMENT = 64
"""Bytes; as for torch's own tensors, since the last bits of a product of matrices may depend on it."""


class Place(NamedTuple):
    """Where a tensor lies in a block."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int


Places = dict[str, Place]


class Block:
    """A file without a name, mapped into the memory of every process that has its descriptor.

    The system frees it with the last of these processes, even if all are killed: nothing can be left behind. And it
    does not lie in /dev/shm, where `multiprocessing` and torch keep theirs and many containers allow only 64 MB.

    >>> block = Block()
    >>> places = block.write({"weight": torch.eye(2)})
    >>> Block(os.dup(block.descriptor)).read(places)["weight"].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor = _nameless_file() if descriptor is None else descriptor
        self.map: mmap.mmap | None = None
        self.end = 0

    def write(self, arrays: Arrays, start: int = 0) -> Places:
        """Put tensors one after the other from `start` on; `end` is then where the next may begin."""
        places, self.end = {}, start
        for name, tensor in arrays.items():
            places[name] = Place(tensor.dtype, tuple(tensor.shape), self.end)
            self.end += math.ceil(tensor.numel() * tensor.itemsize / ALIGNMENT) * ALIGNMENT
        if self.end > os.fstat(self.descriptor).st_size:
            os.ftruncate(self.descriptor, 2 * self.end)  # what is never written to takes no memory
        for name, there in self.read(places).items():
            there.copy_(arrays[name].detach())
        return places

    def append(self, arrays: Arrays) -> Places:
        """Put tensors behind those that were written last."""
        return self.write(arrays, self.end)

    def read(self, places: Places) -> Arrays:
        """The tensors that lie there, without a copy."""
        return {name: self._tensor(*place) for name, place in places.items()}

    def _tensor(self, dtype: torch.dtype, shape: tuple[int, ...], start: int) -> Tensor:
        count = math.prod(shape)
        if count == 0:
            return torch.empty(shape, dtype=dtype)
        if self.map is None or start + count * dtype.itemsize > len(self.map):
            self.map = mmap.mmap(self.descriptor, 0)  # the whole file; earlier tensors keep the earlier map
        return torch.frombuffer(self.map, dtype=dtype, count=count, offset=start).view(shape)

    def __del__(self) -> None:
        os.close(self.descriptor)


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):  # Linux
        return os.memfd_create("fedeas")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
