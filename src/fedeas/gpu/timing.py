"""Time a few calls, to estimate how long many will take."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch

MOST_CALLS, LONG_ENOUGH = 5, 0.3  # the measurement ends after this many calls or seconds, whichever comes first


def seconds_of(call: Callable[[], object], device: torch.device) -> float:
    """Median seconds of a call, without the first if there are several; torch's random streams stay as they are."""
    times = list[float]()
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        if on_gpu:
            call()  # loads kernels, which can take longer than all that is timed
        while len(times) <= MOST_CALLS and sum(times) < LONG_ENOUGH:
            start = time.perf_counter()
            call()
            if on_gpu:
                torch.cuda.synchronize(device)
            times.append(time.perf_counter() - start)
    return median(times[1:] or times)
