"""Start a GPU's libraries, copy tensors to it and from it, free its memory, and load the kernels of this room."""

from __future__ import annotations

import gc
import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from types import ModuleType

import torch
from torch import Tensor
from torch.nn import functional


@cache
def load_kernels(name: str) -> ModuleType | None:
    """A module of kernels beside this one, or None without Triton, which comes with torch for GPUs."""
    try:
        return importlib.import_module(f"fedeas.gpu.{name}")
    except ImportError:
        return None


@contextmanager
def waking(device: torch.device) -> Iterator[None]:
    """A context for work of the host while a GPU's libraries start: its first step would wait for them."""
    if device.type != "cuda":
        yield
        return

    def wake() -> None:  # uses cuBLAS, cuDNN and Triton once; the last one reads all its own files first
        # An error, such as a lack of memory, meets the first step again, which reports it. Triton launches on the
        # current device of the thread, wherever the tensors are.
        with suppress(Exception), torch.cuda.device(device):
            rows = torch.ones(64, 64, device=device, dtype=torch.bfloat16)
            torch.mm(rows, rows)
            images = torch.ones(8, 8, 8, 8, device=device, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
            functional.conv2d(images, images)
            kernels = load_kernels("norm_kernels")
            if kernels is not None:
                weight = torch.ones(8, device=device)
                kernels.evaluated(images, weight, weight, weight, weight, 1e-5)

    beside = threading.Thread(target=wake)
    beside.start()
    try:
        yield
    finally:
        beside.join()  # nothing may be loaded while steps are recorded


def values_of(tensor: Tensor) -> Callable[[], list[float]]:
    """A function that returns the values of a tensor with one axis, as soon as they are computed.

    It does not wait for work that a GPU is given later.
    """
    if not tensor.is_cuda:
        return tensor.tolist
    values, done = tensor.to("cpu", non_blocking=True), torch.cuda.Event()  # type: ignore[no-untyped-call]
    done.record()

    def read() -> list[float]:
        done.synchronize()
        numbers: list[float] = values.tolist()
        return numbers

    return read


def upload(tensor: Tensor, target: Tensor) -> None:
    """Copy a tensor to another place; the host does not wait for a GPU."""
    if target.is_cuda and not tensor.is_cuda:
        tensor = tensor.pin_memory()
    target.copy_(tensor, non_blocking=True)


def free_memory() -> None:
    """Release unused GPU memory, after a garbage collection: graphs and their functions refer to each other."""
    if torch.cuda.is_available():
        gc.collect()
        clear_workspaces()
        torch.cuda.empty_cache()


def clear_workspaces() -> None:
    """Free the workspaces of matrix products on the GPU; torch makes new ones when it needs them."""
    clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)  # builds of torch without CUDA do not have it
    if clear is not None:
        clear()
