"""Independent random streams: one for each use and each place in a run.

NumPy fills short seed tuples up with zeros, so that ``(seed, round)`` and ``(seed, round, 0)`` give the same numbers.
Here the seed of a stream is a hash of what it is used for and of all its numbers, so that no two uses in a run share
one. Splits over clients keep NumPy's plain seeds, and so do trainings of generators and classifiers.
"""

from __future__ import annotations

import hashlib
import json

import numpy as np


def stream_seed(use: str, *numbers: int) -> int:
    """The seed of the stream for this use, 63 bits long, so that NumPy and torch both take it.

    >>> stream_seed("clients", 0, 5) == stream_seed("clients", 0, 5, 0)
    False
    """
    digest = hashlib.sha256(json.dumps([use, *map(int, numbers)]).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def stream(use: str, *numbers: int) -> np.random.Generator:
    """NumPy's generator for this use, for example ``stream("batches", seed, round, client)``."""
    return np.random.default_rng(stream_seed(use, *numbers))
