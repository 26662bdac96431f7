"""A federation of a few small clients, and how to train it on an engine."""

import numpy as np
import torch

from fedeas.algorithms import FedAvg
from fedeas.algorithms.base import Fleet
from fedeas.config import TrainConfig
from fedeas.data.client import ClientData, Normaliser
from fedeas.federation.rounds import Schedule, federate
from fedeas.federation.worker import Worker
from fedeas.models.build import build_model

SIZES = [21, 8, 33, 1, 16, 40]


def worker(algorithm=None, lr=0.05, rounds=3):
    normalise = Normaliser.of((0.5,), (0.25,))

    def load(client):
        rng = np.random.default_rng(client)
        images = rng.integers(0, 256, (SIZES[client], 1, 8, 8), dtype=np.uint8)
        return ClientData.of(images, rng.integers(0, 3, SIZES[client]), normalise)

    model = build_model("small-cnn", (1, 8, 8), 3, seed=0)
    train = TrainConfig(lr=lr, batch_size=8, epochs=2)
    nothing = np.zeros((len(SIZES), 3), dtype=np.int64)
    return Worker(algorithm or FedAvg(), model, load, nothing, None, train, 0, rounds)


def trained(engine, rounds=2):
    server = FedAvg().init(engine.worker.model, Fleet(np.array(SIZES), 3))
    return federate(FedAvg(), engine, server, Schedule(rounds, len(SIZES), 5, 0), lambda state: {})


def assert_same(one, other):
    assert one.keys() == other.keys()
    for key in one:
        assert torch.equal(one[key], other[key]), key
