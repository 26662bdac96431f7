"""Where the server keeps the replies of a round until it can average them: in memory, and what exceeds that on disk.

The weights of an average depend on which clients have answered, so that replies are averaged when all are there, in the
order of client ids. Meanwhile the server's memory must not grow with their number.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from fedeas.core.files import writing

ROOM = 2**28
"""Bytes of replies that are kept in memory."""


class ReplyStore:
    """Keeps tensors of replies: the first `room` bytes in memory, the others in a file.

    The file has no name, so that nothing is left of it after a kill. It is in `folder`, or in the system's folder for
    temporary files.
    """

    def __init__(self, folder: Path | None, device: torch.device, room: int = ROOM) -> None:
        self.folder, self.device, self.room = folder, device, room
        self.scratch: Scratch | None = None

    def keep(self, arrays: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The same tensors, to be read as often as needed."""
        size = sum(tensor.nbytes for tensor in arrays.values())
        if size <= self.room:
            self.room -= size
            return {name: tensor.to(self.device) for name, tensor in arrays.items()}
        with writing(self.folder or tempfile.gettempdir()):
            self.scratch = self.scratch or Scratch(self.folder)
            return StoredArrays(self.scratch, arrays, self.device)


class Scratch:
    """A file without a name, which is closed when the last of its replies is gone."""

    def __init__(self, folder: Path | None) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (open as long as its replies are wanted)

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):  # it was not opened, or the disk is full
            self.file.close()


class StoredArrays(Mapping[str, Tensor]):
    """Tensors in a file; each is read from the file when it is used."""

    def __init__(self, scratch: Scratch, arrays: Mapping[str, Tensor], device: torch.device) -> None:
        self.scratch, self.device = scratch, device
        self.places: dict[str, tuple[int, torch.dtype, torch.Size]] = {}
        for name, tensor in arrays.items():
            self.places[name] = scratch.file.seek(0, os.SEEK_END), tensor.dtype, tensor.shape
            plain = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            scratch.file.write(memoryview(plain.numpy()))  # type: ignore[arg-type]
        scratch.file.flush()  # a full disk is noticed here, not when a tensor is read

    def __getitem__(self, name: str) -> Tensor:
        start, dtype, shape = self.places[name]
        found = torch.empty(math.prod(shape) * dtype.itemsize, dtype=torch.uint8)
        self.scratch.file.seek(start)
        self.scratch.file.readinto(found.numpy())  # type: ignore[attr-defined]
        return found.view(dtype).reshape(shape).to(self.device)

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)
