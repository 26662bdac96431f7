"""Seconds of work on a device."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch

MOST_CALLS, LONG_ENOUGH = 5, 0.5  # the measurement ends after this many calls or seconds, whichever comes first
LONGEST_START = 5.0  # torch starts within these seconds on a CPU, so that a first call that takes longer will do


def seconds_of(call: Callable[[], object], device: torch.device) -> float:
    """Median seconds of a call, without the first, in which torch starts; random streams stay as they are."""
    on_gpu = device.type == "cuda"

    def timed() -> float:
        start = time.perf_counter()
        call()
        if on_gpu:
            torch.cuda.synchronize(device)
        return time.perf_counter() - start

    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        first, times = timed(), list[float]()
        if first > LONGEST_START and not on_gpu:  # a GPU may take longer than that to load its kernels
            return first
        while len(times) < MOST_CALLS and sum(times) < LONG_ENOUGH:
            times.append(timed())
    return median(times)
