"""Batches as large as memory allows: one that does not fit is tried again with half as many."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

Result = TypeVar("Result")


def as_memory_allows(work: Callable[[int], Result], size: int, go_on_with: Callable[[int], None]) -> Result:
    """What the work gives for a batch of this size, or of half of it, and so on; one that does not fit is an error.

    Args:
        work: told how many, does them at once.
        size: how many to begin with.
        go_on_with: told each smaller number before it is tried; lets go of what was made for the larger one.
    """
    while size > 1:
        try:
            return work(size)
        except torch.OutOfMemoryError:
            size //= 2
        # The error has ended here: as long as it lives, so do the tensors of the frames it came through.
        go_on_with(size)
        torch.cuda.empty_cache()  # nothing to do, and no error, without CUDA
    return work(size)
