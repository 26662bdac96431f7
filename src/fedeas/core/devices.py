"""The device that a run computes on, its precision, its threads, and the seconds that work takes on it."""

import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from statistics import median

import torch
from torch import Tensor
from torch.nn import functional

from fedeas.core.errors import InputError, log, reason_of

COMPUTING = ("cpu", "cuda", "mps", "xpu")
MOST_CALLS, LONG_ENOUGH = 5, 0.5  # the measurement ends after this many calls or seconds, whichever comes first
LONGEST_START = 5.0  # torch starts within these seconds on a CPU, so that a first call that takes longer will do


def chosen_device(name: str, setting: str = "device") -> torch.device:
    """The device ``cpu`` or ``cuda``; ``auto`` is a GPU if there is one. Errors name it by `setting`."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    remedy = "use cpu or auto"
    try:
        device = torch.device(name)
        if device.type not in COMPUTING:
            raise RuntimeError("it computes nothing")
        if device.type == "cuda" and device.index:  # Triton launches on a thread's current GPU, which is the first one
            remedy = f"set CUDA_VISIBLE_DEVICES={device.index}, which makes this one the first, and use cuda"
            raise RuntimeError("only the first GPU can")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"{setting} {name!r} cannot be used ({reason_of(error)}); {remedy}") from None
    return device


def device_name(device: torch.device) -> str:
    """The name of a GPU, or CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


@contextmanager
def torch_precision(name: str, device: torch.device) -> Iterator[None]:
    """A context in which torch computes in ``fp32``, ``tf32`` (faster products on GPUs that have it) or ``bf16``.

    In ``fp32`` cuDNN must use deterministic kernels. For our networks its kernels of the shorter formats are so anyway.
    """
    if name != "fp32" and device.type != "cuda":
        raise InputError(f"engine.precision {name} needs a GPU; use fp32 on {device}")
    cudnn, shorter = torch.backends.cudnn, name != "fp32"
    before = torch.get_float32_matmul_precision(), cudnn.allow_tf32, cudnn.deterministic
    torch.set_float32_matmul_precision("high" if shorter else "highest")
    cudnn.allow_tf32, cudnn.deterministic = shorter, not shorter
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        cudnn.allow_tf32, cudnn.deterministic = before[1:]


@cache
def computes_in_bf16() -> bool:
    """Whether this processor computes in bf16, tried on a convolution and a product; logs a warning if it does not.

    Torch refuses with an error or a warning. After a warning it would compute without oneDNN from then on, which
    changes the bits of a run: oneDNN is switched on again.
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
        log.warning("this processor does not compute in bf16 (%s); using fp32 instead", reason_of(error))
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


def copy_all(targets: Iterable[Tensor], sources: Iterable[Tensor]) -> None:
    """Copy many tensors, all those of one type together."""
    by_type = defaultdict[torch.dtype, list[tuple[Tensor, Tensor]]](list)
    for target, source in zip(targets, sources, strict=True):
        by_type[target.dtype].append((target, source))
    for pairs in by_type.values():
        torch._foreach_copy_([target for target, _ in pairs], [source for _, source in pairs])


def seconds_of(call: Callable[[], object], device: torch.device) -> float:
    """Median seconds of a call, without the first, in which torch starts; random streams stay as they are."""
    on_gpu, times = device.type == "cuda", list[float]()
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        while len(times) <= MOST_CALLS and sum(times[1:]) < LONG_ENOUGH:
            start = time.perf_counter()
            call()
            if on_gpu:
                torch.cuda.synchronize(device)
            times.append(time.perf_counter() - start)
            if times[0] > LONGEST_START and not on_gpu:  # a GPU may take longer than that to load its kernels
                return times[0]
    return median(times[1:])
