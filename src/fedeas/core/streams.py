"""Independent random streams: one for each use and each place in a run.

NumPy pads short seed tuples with zeros, so that ``(seed, round)`` and ``(seed, round, 0)`` give the same numbers.
Here the seed of a stream is a hash of its use and all its numbers, so that no two uses in a run share a stream.
Splits over clients and trainings of generators and classifiers use NumPy's plain seeds.
"""

from __future__ import annotations

import hashlib
import json

import numpy as np


def stream_seed(use: str, *numbers: int) -> int:
    """The seed of the stream for this use; it has 63 bits, so that NumPy and torch both accept it.

    >>> stream_seed("clients", 0, 5) == stream_seed("clients", 0, 5, 0)
    False
    """
    digest = hashlib.sha256(json.dumps([use, *map(int, numbers)]).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def stream(use: str, *numbers: int) -> np.random.Generator:
    """NumPy's generator for this use, for example ``stream("batches", seed, round, client)``."""
    return np.random.default_rng(stream_seed(use, *numbers))
