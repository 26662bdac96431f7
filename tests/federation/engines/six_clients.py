"""Six small clients, and a few rounds of training with them on any engine."""

import numpy as np
import pytest
import torch

from fedeas.algorithms.base import Fleet
from fedeas.config import TrainConfig
from fedeas.data.client import ClientData, Normaliser
from fedeas.federation.rounds import Schedule, federate, set_up
from fedeas.federation.worker import Worker
from fedeas.models.build import build_model

SIZES = [21, 8, 33, 1, 16, 40]  # whole batches, remainders, a remainder of one image, a single image
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def worker(algorithm, device="cpu", train=None, norm="batch", sizes=SIZES, seed=0, precision="fp32"):
    normalise = Normaliser.of((0.5,), (0.25,), device)

    def load(client):
        rng = np.random.default_rng(client)
        images = rng.integers(0, 256, (sizes[client], 1, 8, 8), dtype=np.uint8)
        return ClientData.of(images, rng.integers(0, 3, sizes[client]), normalise)

    model = build_model("small-cnn", (1, 8, 8), 3, seed=seed, norm=norm).to(device)
    train = train or TrainConfig(lr=0.05, batch_size=8, epochs=2)
    nothing = np.zeros((len(sizes), 3), dtype=np.int64)
    return Worker(algorithm, model, load, nothing, None, train, seed, 3, precision), normalise


def trained(algorithm, engine, own, rounds=3, start=0, server=None):
    fleet = Fleet(np.array(SIZES), 3)
    server = set_up(algorithm, engine, algorithm.init(own.model, fleet), len(SIZES)) if server is None else server
    schedule = Schedule(rounds, len(SIZES), 4, 0, start=start)
    return federate(algorithm, engine, server, schedule, lambda state: {})
