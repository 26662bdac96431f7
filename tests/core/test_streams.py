"""Every use of randomness in a run has its own stream."""

import ast
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import torch

import fedeas
from fedeas.core.arrays import stream, stream_seed

ROOT = Path(fedeas.__file__).parent
GRID = (0, 1, 2, 41)  # of seeds, rounds and clients alike


def called(node):
    return getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""


def calls(names, *patterns):
    """All calls of these functions in the package's source."""
    for path in (path for pattern in patterns for path in ROOT.glob(pattern)):
        for node in ast.walk(ast.parse(path.read_text())):
            if called(node) in names:
                yield path, node


@cache
def uses():
    """The uses in the source, each with how many numbers it is called with."""
    found = [
        (node.args[0].value, len(node.args) - 1)
        for path, node in calls({"stream", "stream_seed"}, "**/*.py")
        if path.name != "arrays.py"
        and isinstance(node.args[0], ast.Constant)  # torch's own streams have another meaning
    ]
    names = [name for name, _ in found]
    assert len(names) == len(set(names)), "two places draw from one stream"
    return dict(found)


def test_no_two_uses_share_a_stream():
    first = {}
    for use, numbers in uses().items():
        for place in product(GRID, repeat=numbers):
            first[use, place] = tuple(stream(use, *place).integers(0, 2**63, 2).tolist())
    assert {"clients", "batches", "fedmix-partners", "model", "projection"} <= uses().keys()
    assert len(set(first.values())) == len(first)


def test_torch_streams_differ_as_numpys_do():
    keys = [(use, place) for use, numbers in uses().items() for place in product(GRID, repeat=numbers)]
    first = {tuple(torch.randn(2, generator=_torch(stream_seed(use, *place))).tolist()) for use, place in keys}
    assert len(first) == len(keys)


def _torch(seed):
    return torch.Generator().manual_seed(seed)


def test_training_draws_from_streams_alone():
    own = ("algorithms/*.py", "engines/*.py", "federate.py", "worker.py", "models/*.py")
    for path, node in calls({"default_rng", "manual_seed"}, *own):
        assert called(node.args[0]) == "stream_seed", f"{path.name}, line {node.lineno}"


def test_a_stream_is_the_same_each_time():
    assert np.array_equal(stream("batches", 3, 2, 1).permutation(9), stream("batches", 3, 2, 1).permutation(9))
