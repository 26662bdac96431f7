"""Hashes: digests, which identify content, and the seeds of independent random streams.

NumPy pads short seed tuples with zeros, so that ``(seed, round)`` and ``(seed, round, 0)`` give the same numbers.
Here the seed of a stream is a hash of its use and all its numbers, so that no two uses in a run share a stream.
"""

from __future__ import annotations

import hashlib
import json

import numpy as np


def json_digest(content: object, *, sort_keys: bool = False) -> str:
    """The SHA-256 of what JSON can hold; with `sort_keys` the order of keys makes no difference."""
    return hashlib.sha256(json.dumps(content, sort_keys=sort_keys).encode()).hexdigest()


def stream_seed(use: str, *numbers: int) -> int:
    """The seed of the stream for this use; it has 63 bits, so that NumPy and torch both accept it."""
    return int(json_digest([use, *map(int, numbers)])[:16], 16) >> 1


def stream(use: str, *numbers: int) -> np.random.Generator:
    """NumPy's generator for this use, for example ``stream("batches", seed, round, client)``."""
    return np.random.default_rng(stream_seed(use, *numbers))
