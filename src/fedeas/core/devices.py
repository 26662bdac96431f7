"""Devices, precision, threads and memory."""

from __future__ import annotations

import gc
import importlib
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from types import ModuleType

import torch
from torch import Tensor
from torch.nn import functional

from fedeas.core.errors import InputError
from fedeas.core.log import log

COMPUTING = ("cpu", "cuda", "mps", "xpu")


@cache
def load_kernels(name: str) -> ModuleType | None:
    """A module of kernels beside this one, or None without Triton, which comes with torch for GPUs."""
    try:
        return importlib.import_module(f"fedeas.gpu.{name}")
    except ImportError:
        return None


def chosen_device(name: str, setting: str = "device") -> torch.device:
    """The device ``cpu`` or ``cuda``; ``auto`` is a GPU if there is one. Errors name it by `setting`."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        if device.type not in COMPUTING:
            raise InputError(f"{setting} {name!r} cannot be used (it computes nothing); use cpu, cuda or auto")
        if device.type == "cuda" and device.index:  # Triton launches on a thread's current GPU, which is the first one
            raise InputError(
                f"{setting} {name!r} cannot be used, only the first GPU; set CUDA_VISIBLE_DEVICES={device.index}, "
                "which makes this one the first, and use cuda"
            )
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{setting} {name!r} cannot be used ({reason}); use cpu or auto") from None
    return device


@contextmanager
def waking(device: torch.device) -> Iterator[None]:
    """A context for work of the host, beside which a GPU's libraries start: its first step would wait for them."""
    if device.type != "cuda":
        yield
        return
    beside = threading.Thread(target=_wake, args=(device,))
    beside.start()
    try:
        yield
    finally:
        beside.join()  # nothing may be loaded while steps are recorded


def _wake(device: torch.device) -> None:
    """Use cuBLAS, cuDNN and Triton once; the last one reads all its own files first."""
    # An error, such as a lack of memory, meets the first step again, which reports it. Triton launches on the current
    # device of the thread, wherever the tensors are.
    with suppress(Exception), torch.cuda.device(device):
        rows = torch.ones(64, 64, device=device, dtype=torch.bfloat16)
        torch.mm(rows, rows)
        images = torch.ones(8, 8, 8, 8, device=device, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
        functional.conv2d(images, images)
        kernels = load_kernels("norm_kernels")
        if kernels is not None:
            weight = torch.ones(8, device=device)
            kernels.evaluated(images, weight, weight, weight, weight, 1e-5)


def check_precision(name: str, device: torch.device) -> None:
    """Refuse a precision that the device does not have: all but ``fp32`` need a GPU."""
    if name != "fp32" and device.type != "cuda":
        raise InputError(f"engine.precision {name} needs a GPU; use fp32 on {device}")


@contextmanager
def torch_precision(name: str, device: torch.device) -> Iterator[None]:
    """A context in which torch computes in ``fp32``, ``tf32`` (faster products on GPUs that have it) or ``bf16``.

    In ``fp32`` cuDNN must use deterministic kernels, which are not its fastest. For our networks its kernels of the
    shorter formats are deterministic anyway.
    """
    check_precision(name, device)
    cudnn, shorter = torch.backends.cudnn, name != "fp32"
    before = torch.get_float32_matmul_precision(), cudnn.allow_tf32, cudnn.deterministic
    torch.set_float32_matmul_precision("high" if shorter else "highest")
    cudnn.allow_tf32, cudnn.deterministic = shorter, not shorter
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        cudnn.allow_tf32, cudnn.deterministic = before[1:]


def available_precision(name: str, device: torch.device) -> str:
    """The given precision, or ``fp32`` in place of ``bf16`` on a processor without it."""
    return "fp32" if name == "bf16" and device.type == "cpu" and not computes_in_bf16() else name


@cache
def computes_in_bf16() -> bool:
    """Whether this processor computes in bf16, tried on a convolution and a product; logs a warning if it does not.

    Torch refuses with an error, or with a warning that it computes in another way; both count as a refusal. After such
    a warning torch would compute without oneDNN from then on, which changes the bits of a run: oneDNN is switched on
    again.
    """
    images, weight = torch.ones(1, 4, 8, 8), torch.ones(4, 4, 3, 3)
    one_dnn = torch.backends.mkldnn.enabled
    try:
        with warnings.catch_warnings(), torch.no_grad(), autocast("bf16", torch.device("cpu")):
            warnings.simplefilter("error")
            functional.linear(functional.conv2d(images, weight), torch.ones(4, 6))
            functional.conv2d(images.bfloat16(), weight.bfloat16())
            rows = torch.ones(64, 64)  # smaller products take another path
            functional.linear(rows, rows, rows[0])
    except (RuntimeError, Warning) as error:
        log.warning("this processor does not compute in bf16 (%s); using fp32 instead", str(error).partition("\n")[0])
        return False
    finally:
        torch.backends.mkldnn.enabled = one_dnn
    return True


def autocast(name: str, device: torch.device) -> AbstractContextManager[object]:
    """The autocast context of this precision; without a weight cache, so that it can be recorded."""
    if name != "bf16":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)


@contextmanager
def torch_threads(number: int | None) -> Iterator[None]:
    """A context in which torch computes with this many threads; with None, as many as before."""
    if number is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def copy_all(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy many tensors; on a GPU those of one type are copied together, in a few kernels instead of one for each."""
    by_type: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for target, source in zip(targets, sources, strict=True):
        pair = by_type.setdefault(target.dtype, ([], []))
        pair[0].append(target)
        pair[1].append(source)
    for group in by_type.values():
        torch._foreach_copy_(*group)


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


class Awaited:
    """A number that a GPU may still compute; ``float`` waits for it."""

    def __init__(self, read: Callable[[], float]) -> None:
        self.read = read

    def __float__(self) -> float:
        return self.read()


def upload(tensor: Tensor, target: Tensor) -> None:
    """Copy a tensor to another place; the host does not wait for a GPU."""
    if target.is_cuda and not tensor.is_cuda:
        tensor = tensor.pin_memory()
    target.copy_(tensor, non_blocking=True)


def uploaded(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on a device; the host does not wait for a GPU."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


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
