"""What every message tells of the images, and how it carries its header and its tensors.

All float32 tensors travel as one array, one after the other, because Flower sends each array in its own request. It is
an array of numpy's, as Flower's own mods expect: to clip or to mask an update they take it as one long vector. Other
tensors, such as batch norm's counters, travel as bytes beside the header, where no mod takes them for weights.

The server keeps the replies of a round until it can average them: in memory, and what exceeds that on disk. The weights
of an average depend on which clients have answered, so that replies are averaged when all are there, in the order of
client ids. Meanwhile the server's memory must not grow with their number.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.lib import format as npy
from torch import Tensor

from fedeas.algorithms.base import Arrays
from fedeas.core.files import writing
from fedeas.data.dataset import Dataset

HEADER, TENSORS, PACKED = "fedeas", "tensors", "packed"
VECTOR = torch.float32  # the type of the tensors in the array

FLOAT = np.dtype("<f4")
DTYPES = {str(each).removeprefix("torch."): each for each in vars(torch).values() if isinstance(each, torch.dtype)}
ALIGNMENT = 16  # bytes; alignment lets tensors be read in place

ROOM = 2**28  # bytes of replies that are kept in memory

Header = Mapping[str, Any]


@dataclass(frozen=True)
class About:
    """The server's description of the images, for all clients: shape, classes, and normalisation of pixels."""

    shape: tuple[int, int, int]
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @staticmethod
    def of(dataset: Dataset) -> About:
        """The description of the server's dataset."""
        return About(dataset.shape, dataset.classes, dataset.channel_mean, dataset.channel_std)


@dataclass(frozen=True)
class Parcel:
    """Named tensors ready to be sent: an index of all, the float32 ones as one array, the others as bytes."""

    index: str = "[]"
    vector: Array | None = None
    others: bytes = b""

    @property
    def size(self) -> int:
        """Bytes of all tensors, at least 1."""
        return max(1, len(self.others) + (0 if self.vector is None else len(self.vector.data)))

    @staticmethod
    def of(arrays: Mapping[str, Tensor]) -> Parcel:
        """Pack all tensors one after the other, each aligned for any type."""
        index = json.dumps([[name, dtype_name(tensor), list(tensor.shape)] for name, tensor in arrays.items()])
        pieces: dict[bool, list[memoryview | bytes]] = {True: [], False: []}
        for tensor in arrays.values():
            content = bytes_of(tensor)
            pieces[tensor.dtype is VECTOR] += [content, bytes(_room(len(content)) - len(content))]
        others, vector = b"".join(pieces[False]), None
        if pieces[True]:
            count, head = sum(map(len, pieces[True])) // FLOAT.itemsize, BytesIO()
            npy.write_array_header_1_0(head, {"descr": FLOAT.str, "fortran_order": False, "shape": (count,)})
            vector = Array("float32", (count,), "numpy.ndarray", b"".join([head.getvalue(), *pieces[True]]))
        return Parcel(index, vector, others)


NOTHING = Parcel()


def bytes_of(tensor: Tensor) -> memoryview:
    """The bytes of a tensor, without a copy if it is on the CPU and contiguous."""
    plain = tensor.detach().cpu().contiguous().reshape(-1)
    return memoryview(plain.view(torch.uint8).numpy())  # type: ignore[arg-type]


def packed(header: Header, parcel: Parcel = NOTHING) -> RecordDict:
    """A header and a parcel as the content of a message."""
    texts = {"json": json.dumps(dict(header)), "index": parcel.index}
    others = {"others": parcel.others} if parcel.others else {}
    content = RecordDict({HEADER: ConfigRecord({**texts, **others})})
    if parcel.vector is not None:
        content[TENSORS] = ArrayRecord({PACKED: parcel.vector})
    return content


def header_of(content: RecordDict) -> dict[str, Any]:
    """The header alone; empty if the content is not one that `packed` made."""
    header: dict[str, Any] = json.loads(str(content.config_records.get(HEADER, ConfigRecord()).get("json", "{}")))
    return header


def unpacked(content: RecordDict) -> tuple[dict[str, Any], Arrays]:
    """Unpack what `packed` packed, with every name, shape and type. The tensors must not be written to."""
    given, vector, start = content.config_records[HEADER], b"", 0
    others = given.get("others", b"")
    if not isinstance(others, bytes):
        raise ValueError("the other tensors are no bytes")
    if TENSORS in content.array_records:
        vector = content.array_records[TENSORS][PACKED].data
        stream = BytesIO(vector)  # shares the bytes
        if npy.read_magic(stream) != (1, 0):
            raise ValueError("the tensors are in an unknown version of numpy's format")
        shape, _, found = npy.read_array_header_1_0(stream)
        if found != FLOAT or len(shape) != 1:
            raise ValueError(f"the tensors are {found} of {len(shape)} dimensions, not one float32 vector")
        start = stream.tell()
    sources, at = {True: vector, False: others}, {True: start, False: 0}  # at: where the next tensor begins
    arrays = {}
    for name, kind, shape in json.loads(str(given["index"])):
        dtype, count = DTYPES[kind], math.prod(shape)
        in_vector = dtype is VECTOR
        arrays[name] = tensor_in(sources[in_vector], dtype, at[in_vector], count).reshape(shape)
        at[in_vector] += _room(count * dtype.itemsize)
    return header_of(content), arrays


def tensor_in(data: bytes, dtype: torch.dtype, start: int, count: int) -> Tensor:
    """So many numbers of a type in bytes, without a copy; the tensor must not be written to."""
    with warnings.catch_warnings():  # torch warns that it has no read-only tensors
        warnings.simplefilter("ignore", UserWarning)
        return torch.frombuffer(data, dtype=dtype, count=count, offset=start) if count else torch.empty(0, dtype=dtype)


def _room(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def dtype_name(tensor: Tensor) -> str:
    """A tensor's type without the module's name, such as float32."""
    return str(tensor.dtype).removeprefix("torch.")


class ReplyStore:
    """Keeps tensors of replies: the first `room` bytes in memory, the others in a file.

    The file has no name, so that nothing is left of it after a kill. It is in `folder`, or in the system's folder for
    temporary files.
    """

    def __init__(self, folder: Path | None, device: torch.device, room: int = ROOM) -> None:
        self.folder, self.device, self.room = folder, device, room

    @cached_property
    def file(self) -> IO[bytes]:
        """The file, which is closed when the store and all replies in it are gone."""
        return tempfile.TemporaryFile(dir=self.folder)

    def __del__(self) -> None:
        if "file" in vars(self):
            with suppress(OSError):  # the disk is full
                self.file.close()

    def keep(self, arrays: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The same tensors, to be read as often as needed."""
        size = sum(tensor.nbytes for tensor in arrays.values())
        if size <= self.room:
            self.room -= size
            return {name: tensor.to(self.device) for name, tensor in arrays.items()}
        with writing(self.folder or tempfile.gettempdir()):
            return StoredArrays(self, arrays)


class StoredArrays(Mapping[str, Tensor]):
    """Tensors in the file of a store; each is read from it when it is used."""

    def __init__(self, store: ReplyStore, arrays: Mapping[str, Tensor]) -> None:
        self.store = store
        self.places: dict[str, tuple[int, torch.dtype, torch.Size]] = {}
        for name, tensor in arrays.items():
            self.places[name] = store.file.seek(0, os.SEEK_END), tensor.dtype, tensor.shape
            store.file.write(bytes_of(tensor))
        store.file.flush()  # a full disk is noticed here, not when a tensor is read

    def __getitem__(self, name: str) -> Tensor:
        start, dtype, shape = self.places[name]
        self.store.file.seek(start)
        content = self.store.file.read(math.prod(shape) * dtype.itemsize)
        return tensor_in(content, dtype, 0, math.prod(shape)).reshape(shape).to(self.store.device)

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)
