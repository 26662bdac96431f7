"""What every message tells of the images, and how it carries its header and its tensors.

All float32 tensors travel as one array, one after the other, because Flower sends each array in its own request. It is
an array of numpy's, as Flower's own mods expect: to clip or to mask an update they take it as one long vector. Other
tensors, such as batch norm's counters, travel as bytes beside the header, where no mod takes them for weights.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.lib import format as npy
from torch import Tensor

from fedeas.algorithms.base import Arrays
from fedeas.data.dataset import Dataset

HEADER, TENSORS, PACKED = "fedeas", "tensors", "packed"
VECTOR = torch.float32
"""The type of the tensors in the array."""

FLOAT = np.dtype("<f4")
DTYPES = {str(each).removeprefix("torch."): each for each in vars(torch).values() if isinstance(each, torch.dtype)}
ALIGNMENT = 16
"""Bytes; alignment lets tensors be read in place."""

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
    record: ArrayRecord | None = None
    others: bytes = b""

    @property
    def size(self) -> int:
        """Bytes of all tensors, at least 1."""
        return max(1, len(self.others) + (0 if self.record is None else len(self.record[PACKED].data)))

    @staticmethod
    def of(arrays: Mapping[str, Tensor]) -> Parcel:
        """Pack all tensors one after the other, each aligned for any type."""
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in arrays.items()}
        index = json.dumps([[name, dtype_name(tensor), list(tensor.shape)] for name, tensor in tensors.items()])
        vector = [tensor for tensor in tensors.values() if tensor.dtype is VECTOR]
        others = [tensor for tensor in tensors.values() if tensor.dtype is not VECTOR]
        record = None
        if vector:
            count, head = sum(_room(tensor.nbytes) for tensor in vector) // FLOAT.itemsize, BytesIO()
            npy.write_array_header_1_0(head, {"descr": FLOAT.str, "fortran_order": False, "shape": (count,)})
            data = b"".join([head.getvalue(), *(piece for tensor in vector for piece in _bytes(tensor))])
            record = ArrayRecord({PACKED: Array("float32", (count,), "numpy.ndarray", data)})
        return Parcel(index, record, b"".join(piece for tensor in others for piece in _bytes(tensor)))


def _bytes(tensor: Tensor) -> tuple[memoryview, bytes]:
    """A tensor's bytes, and the padding that aligns the next one."""
    content = memoryview(tensor.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
    return content, bytes(_room(len(content)) - len(content))


def packed(header: Header, parcel: Parcel | None = None) -> RecordDict:
    """A header and a parcel as the content of a message."""
    parcel = parcel or Parcel()
    texts = {"json": json.dumps(dict(header)), "index": parcel.index}
    others = {"others": parcel.others} if parcel.others else {}
    content = RecordDict({HEADER: ConfigRecord({**texts, **others})})
    if parcel.record is not None:
        content[TENSORS] = parcel.record
    return content


def header_of(content: RecordDict) -> dict[str, Any]:
    """The header alone; empty if the content is not one that `packed` made."""
    header: dict[str, Any] = json.loads(str(content.config_records.get(HEADER, ConfigRecord()).get("json", "{}")))
    return header


def unpacked(content: RecordDict) -> tuple[dict[str, Any], Arrays]:
    """Unpack what `packed` packed, with every name, shape and type. The tensors must not be written to."""
    given = content.config_records[HEADER]
    others, vector = given.get("others", b""), b""
    if not isinstance(others, bytes):
        raise ValueError("the other tensors are no bytes")
    in_others = in_vector = 0  # where the next tensor begins
    if TENSORS in content.array_records:
        vector = content.array_records[TENSORS][PACKED].data
        stream = BytesIO(vector)  # shares the bytes
        if npy.read_magic(stream) != (1, 0):
            raise ValueError("the tensors are in an unknown version of numpy's format")
        shape, _, found = npy.read_array_header_1_0(stream)
        if found != FLOAT or len(shape) != 1:
            raise ValueError(f"the tensors are {found} of {len(shape)} dimensions, not one float32 vector")
        in_vector = stream.tell()
    arrays = {}
    for name, kind, shape in json.loads(str(given["index"])):
        dtype, count = DTYPES[kind], math.prod(shape)
        room = _room(count * dtype.itemsize)
        if dtype is VECTOR:
            arrays[name] = _read(vector, dtype, in_vector, count).reshape(shape)
            in_vector += room
        else:
            arrays[name] = _read(others, dtype, in_others, count).reshape(shape)
            in_others += room
    return header_of(content), arrays


def _read(data: bytes, dtype: torch.dtype, start: int, count: int) -> Tensor:
    with warnings.catch_warnings():  # torch warns that it has no read-only tensors
        warnings.simplefilter("ignore", UserWarning)
        return torch.frombuffer(data, dtype=dtype, count=count, offset=start) if count else torch.empty(0, dtype=dtype)


def _room(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def dtype_name(tensor: Tensor) -> str:
    """A tensor's type without the module's name, such as float32."""
    return str(tensor.dtype).removeprefix("torch.")
