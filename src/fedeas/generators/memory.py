"""Batches as large as memory allows, in which one that does not fit is halved and tried again; number formats."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike

from fedeas.core.arrays import IntArray
from fedeas.core.devices import computes_in_bf16
from fedeas.core.errors import InputError
from fedeas.generators.base import Generator, Images, checked_address

Result = TypeVar("Result")


def chosen_precision(name: str, device: torch.device, known: Sequence[str], on_gpu: str) -> str:
    """The number format of this name; ``auto`` is that for GPUs on a GPU, and fp32 elsewhere.

    A processor without bf16 gets fp32 instead.
    """
    if name not in known:
        raise InputError(f"precision must be one of {', '.join(known)}, not {name!r}")
    if name == "auto":
        return on_gpu if device.type == "cuda" else "fp32"
    return "fp32" if name == "bf16" and device.type == "cpu" and not computes_in_bf16() else name


def as_memory_allows(work: Callable[[int], Result], size: int, go_on_with: Callable[[int], None]) -> Result:
    """The result of `work` for a batch of this size or, if memory runs out, half of it, and so on down to 1.

    Before a smaller size is tried, `go_on_with` is called with it, and frees what was made for the larger one.
    """
    while size > 1:
        try:
            return work(size)
        except torch.OutOfMemoryError:
            size //= 2
        # Outside the except block, since the error keeps the tensors of its frames alive.
        go_on_with(size)
        torch.cuda.empty_cache()  # does nothing without CUDA
    return work(size)


def in_batches(
    generator: Generator,
    make: Callable[[IntArray, IntArray], Images],
    go_on_with: Callable[[int], None],
    labels: ArrayLike,
    index: ArrayLike,
) -> Images:
    """The images of these addresses; `make` makes a batch, as large as the generator's batch size and memory allow."""
    classes, numbers = checked_address(labels, index, generator.num_classes)
    images = np.empty((classes.size, *generator.shape), dtype=np.uint8)
    start = 0

    def make_next(size: int) -> Images:
        return make(classes[start : start + size], numbers[start : start + size])

    while start < classes.size:
        made = as_memory_allows(make_next, generator.batch_size, go_on_with)
        images[start : start + len(made)] = made
        start += len(made)
    return images
