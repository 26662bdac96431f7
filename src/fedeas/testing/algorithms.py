"""The laws of algorithms, on three clients with a few images and a small model."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from contextlib import closing

import numpy as np
import torch
from torch import Tensor

from fedeas.algorithms import FedAvg
from fedeas.algorithms.base import MODEL, Arrays, Fleet, Reply, model_arrays
from fedeas.config.sections import EngineConfig, TrainConfig
from fedeas.core.errors import FedEASError
from fedeas.data.client import ClientData, Normaliser
from fedeas.fast import gpu_engine
from fedeas.federation.engines.base import Task
from fedeas.federation.rounds import set_up
from fedeas.federation.worker import LocalEngine, Worker
from fedeas.models.build import build_model

SHAPE, CLASSES, SIZES, ROUNDS = (1, 8, 8), 3, (9, 14, 20), 2
TRAIN = TrainConfig(lr=0.05, batch_size=5, epochs=1)
FLEET, NORMALISE = Fleet(np.array(SIZES), CLASSES, seed=0), Normaliser.of((0.5,), (0.25,))
TOLERANCE = 1e-4
"""Of weights after a round; sums in another order differ by less."""


def check_algorithm(algorithm: FedAvg) -> None:
    """Check replies, state and repeatability; see `fedeas.testing.check_algorithm`."""
    try:
        assert isinstance(algorithm.spec, str), "an algorithm must have a spec"
        assert pickle.loads(pickle.dumps(algorithm)) == algorithm, "an algorithm must survive pickling"
        first, again = _federate(algorithm), _federate(algorithm)
        missing = set(model_arrays(_model())) - set(first)
        assert not missing, f"the server's state lacks {min(missing, default='')}; keep the model under {MODEL!r}"
        _check_tensors(first, "the server's state")
        for name, tensor in first.items():
            assert torch.equal(tensor, again[name]), f"{name} differs between two runs with the same seed"
        if algorithm.stacks:
            _check_stacked(algorithm)
    except FedEASError as error:
        raise AssertionError(str(error)) from error


def _federate(algorithm: FedAvg) -> Arrays:
    """The server's state after a set-up exchange and two rounds, in which each client keeps to the laws of replies."""
    worker = _worker(algorithm)
    server = set_up(algorithm, LocalEngine(worker), algorithm.init(_model(), FLEET), len(SIZES))
    states: dict[int, Arrays] = {}
    for number in range(ROUNDS):
        broadcast = algorithm.broadcast(server, number)
        before = copy.deepcopy(broadcast)
        replies = []
        for client, size in enumerate(SIZES):
            reply, states[client] = worker.run(Task.TRAIN, client, number, broadcast, states.get(client, {}))
            assert reply is not None  # only a set-up exchange may have none
            assert reply.client == client, f"the reply of client {client} names client {reply.client}"
            assert reply.weight == size, f"client {client} replies with weight {reply.weight}, but has {size} samples"
            _check_tensors(reply.arrays, f"the reply of client {client}")
            replies.append(reply)
        for name, tensor in before.items():
            same = torch.equal(tensor, broadcast[name])
            assert same, f"a client has changed {name} of the broadcast; work on a copy"
        server = algorithm.server_update(server, replies, number)
    return server


def _check_stacked(algorithm: FedAvg) -> None:
    """Clients that train as one stacked model reply as those that train one after the other."""
    worker = _worker(algorithm)
    stacked = gpu_engine(worker, SHAPE, NORMALISE, max(SIZES), EngineConfig(name="fused"), len(SIZES))
    answers: list[list[Reply]] = []
    with closing(LocalEngine(worker)) as one_by_one, closing(stacked):
        for engine in (one_by_one, stacked):
            server = set_up(algorithm, engine, algorithm.init(_model(), FLEET), len(SIZES))
            answers.append(engine.map(Task.TRAIN, algorithm.broadcast(server, 0), range(len(SIZES)), 0))
    for ours, theirs in zip(*answers, strict=True):
        for name, tensor in ours.arrays.items():
            same = torch.allclose(tensor.float(), theirs.arrays[name].float(), rtol=TOLERANCE, atol=TOLERANCE)
            assert same, f"stacks, but {name} of client {ours.client} differs; average with batch.mean in the loss"


def _check_tensors(arrays: Mapping[str, Tensor], whose: str) -> None:
    for name, tensor in arrays.items():
        assert isinstance(tensor, torch.Tensor), f"{name} in {whose} is a {type(tensor).__name__}, not a tensor"
        assert not tensor.requires_grad, f"{name} in {whose} still has a gradient; detach it"
        assert bool(torch.isfinite(tensor.float()).all()), f"{name} in {whose} is not finite"


def _worker(algorithm: FedAvg) -> Worker:
    def load_client(client: int) -> ClientData:
        rng = np.random.default_rng(client)
        images = rng.integers(0, 256, (SIZES[client], *SHAPE), dtype=np.uint8)
        return ClientData.of(images, rng.integers(0, CLASSES, SIZES[client]), NORMALISE)

    nothing = np.zeros((len(SIZES), CLASSES), dtype=np.int64)
    return Worker(algorithm, _model(), load_client, nothing, None, TRAIN, 0, ROUNDS)


def _model() -> torch.nn.Module:
    return build_model("small-cnn", SHAPE, CLASSES, seed=0)
