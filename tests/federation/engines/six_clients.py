"""Six small clients, and a few rounds of training with them on any engine."""

import gc
import weakref

import numpy as np
import pytest
import torch

from fedeas.algorithms import FedAvg
from fedeas.algorithms.base import Fleet
from fedeas.config import TrainConfig
from fedeas.data.client import ClientData, Normaliser
from fedeas.federation.rounds import Schedule, federate, set_up
from fedeas.federation.worker import Worker
from fedeas.models.build import build_model

SIZES = [21, 8, 33, 1, 16, 40]  # whole batches, remainders, a remainder of one image, a single image
SHAPE = (1, 8, 8)
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
TRAIN = TrainConfig(lr=0.05, batch_size=8, epochs=2)


def worker(algorithm=None, device="cpu", train=TRAIN, norm="batch", precision="fp32"):
    normalise = Normaliser.of((0.5,), (0.25,), device)

    def load(client):
        rng = np.random.default_rng(client)
        images = rng.integers(0, 256, (SIZES[client], *SHAPE), dtype=np.uint8)
        return ClientData.of(images, rng.integers(0, 3, SIZES[client]), normalise)

    model = build_model("small-cnn", SHAPE, 3, seed=0, norm=norm).to(device)
    nothing = np.zeros((len(SIZES), 3), dtype=np.int64)
    return Worker(algorithm or FedAvg(), model, load, nothing, None, train, 0, 3, precision)


def normaliser(own):
    return own.load_client(0).normalise


def trained(engine, rounds=2, participants=4, start=0, server=None):
    own = engine.worker
    if server is None:
        server = own.algorithm.init(own.model, Fleet(np.array(SIZES), 3))
        server = set_up(own.algorithm, engine, server, len(SIZES))
    schedule = Schedule(rounds, len(SIZES), participants, 0, start=start)
    return federate(own.algorithm, engine, server, schedule, lambda state: {})


def assert_same(one, other):
    assert one.keys() == other.keys()
    for key in one:
        assert torch.equal(one[key], other[key]), key


def assert_near(expected, found, tolerance=1e-4):
    """The relative difference of each tensor."""
    assert expected.keys() == found.keys()
    for key, tensor in expected.items():
        off = (found[key].double() - tensor.double()).norm() / max(tensor.double().norm().item(), 1e-2)
        assert off <= tolerance, f"{key}: {off:.1e}"


def assert_freed_by(close, objects, monkeypatch):
    """As on a GPU, nothing refers to these objects after `close`, without a garbage collection of Python's own."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    held = [weakref.ref(each) for each in objects]
    objects.clear()
    gc.disable()
    try:
        close()
        assert held
        assert [each() for each in held] == [None] * len(held)
    finally:
        gc.enable()
