"""Torch's global random numbers while a client trains: dropout draws them, and so may a user's own code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedeas.algorithms.base import ClientJob
from fedeas.core.streams import stream_seed


@contextmanager
def random_numbers_of(job: ClientJob) -> Iterator[None]:
    """Take the global random numbers from the job's own stream; afterwards their state is as before.

    The stream depends on (seed, round, client) alone. Nothing is changed if an engine trains several clients at once:
    their threads share the global state.
    """
    if job.trainer is not None:
        yield
        return
    device = job.data.labels.device
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        torch.default_generator.manual_seed(stream_seed("training", job.seed, job.round, job.client))
        if on_gpu:
            torch.cuda.manual_seed(stream_seed("training-gpu", job.seed, job.round, job.client))
        yield
