"""The one place where generators use `fedeas.gpu`; without that package they compute the same in plain torch."""

from collections.abc import Callable
from types import ModuleType

import torch
from torch import Tensor

try:
    from fedeas import gpu
except ImportError:
    gpu = None  # type: ignore[assignment]


def load_kernels(name: str) -> ModuleType | None:
    """A module of kernels for GPUs, or None if it cannot be loaded."""
    return None if gpu is None else gpu.load_kernels(name)


def captured(
    function: Callable[..., Tensor], device: torch.device, draws: tuple[torch.Generator, ...] = (), pure: bool = False
) -> Callable[..., Tensor]:
    """The function as a CUDA graph on a GPU; `gpu.Captured` says what it may do. `draws` are its random streams."""
    return function if gpu is None else gpu.Captured(function, device, draws, pure=pure)
