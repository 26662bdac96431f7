"""Tensors in shared memory."""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from fedeas.algorithms.base import Arrays

ALIGNMENT = 64
"""Alignment in bytes, the same as torch's, since the last bits of a matrix product may depend on it."""

MOST_TENSORS = 1000
"""A block remembers so many tensors: those of a model are read in every round, those of a client's data rarely."""


class Place(NamedTuple):
    """Type, shape and position of a tensor in a block."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int


Places = dict[str, Place]


class Block:
    """A file without a name, mapped into the memory of every process that has its descriptor.

    The system frees it with the last of these processes, even if all are killed, so that nothing is left behind. It is
    not in /dev/shm, which `multiprocessing` and torch use and which many containers limit to 64 MB.

    >>> block = Block()
    >>> places = block.write({"weight": torch.eye(2)})
    >>> Block(os.dup(block.descriptor)).read(places)["weight"].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    def __init__(self, descriptor: int | None = None) -> None:
        if descriptor is None and hasattr(os, "memfd_create"):  # Linux
            descriptor = os.memfd_create("fedeas")
        elif descriptor is None:
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        self.descriptor = descriptor
        self.map: mmap.mmap | None = None
        self.tensors: dict[Place, Tensor] = {}
        self.end = 0

    def write(self, arrays: Mapping[str, Tensor], start: int = 0) -> Places:
        """Write tensors one after the other from `start` on; sets `end` to the first free byte."""
        places, self.end = {}, start
        for name, tensor in arrays.items():
            places[name] = Place(tensor.dtype, tuple(tensor.shape), self.end)
            self.end += math.ceil(tensor.numel() * tensor.itemsize / ALIGNMENT) * ALIGNMENT
        if self.end > os.fstat(self.descriptor).st_size:
            os.ftruncate(self.descriptor, 2 * self.end)  # parts that are never written take no memory
        for name, there in self.read(places).items():
            there.copy_(arrays[name].detach())
        return places

    def append(self, arrays: Arrays) -> Places:
        """Write tensors after those that were written last."""
        return self.write(arrays, self.end)

    def read(self, places: Places) -> Arrays:
        """The tensors at these places, without a copy."""
        return {name: self._tensor(place) for name, place in places.items()}

    def _tensor(self, place: Place) -> Tensor:
        if place in self.tensors:
            return self.tensors[place]
        (dtype, shape, start), count = place, math.prod(place.shape)
        if count == 0:
            return torch.empty(shape, dtype=dtype)
        if self.map is None or start + count * dtype.itemsize > len(self.map):
            self.map = mmap.mmap(self.descriptor, 0)  # the whole file; earlier tensors keep the earlier map
        if len(self.tensors) >= MOST_TENSORS:
            self.tensors.clear()
        self.tensors[place] = torch.frombuffer(self.map, dtype=dtype, count=count, offset=start).view(shape)
        return self.tensors[place]

    def __del__(self) -> None:
        os.close(self.descriptor)
