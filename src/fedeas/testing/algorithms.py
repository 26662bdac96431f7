"""The laws of algorithms, on three clients with the images of digits and a small model."""

import copy
import pickle
from collections.abc import Mapping
from contextlib import closing

import numpy as np
import torch
from torch import Tensor

from fedeas.algorithms import FedAvg
from fedeas.algorithms.base import MODEL, Arrays, Fleet, Reply, model_arrays
from fedeas.config import load_config
from fedeas.core.errors import FedEASError
from fedeas.fast import gpu_engine
from fedeas.federation.engines.base import Task
from fedeas.federation.parts import Parts
from fedeas.federation.rounds import set_up
from fedeas.federation.worker import LocalEngine, Worker

CLIENTS, ROUNDS = 3, 2
SETTINGS = (
    f"partition.clients={CLIENTS}", "partition.alpha=1", "train.lr=0.05", "train.batch_size=100", "train.epochs=1",
    "engine.name=fused", "policy=no-generation",
)  # fmt: skip
TOLERANCE = 1e-4
"""Of weights after a round; sums in another order differ by less."""


def check_algorithm(algorithm: FedAvg) -> None:
    """Check replies, state and repeatability; see `fedeas.testing.check_algorithm`."""
    try:
        assert isinstance(algorithm.spec, str), "an algorithm must have a spec"
        assert pickle.loads(pickle.dumps(algorithm)) == algorithm, "an algorithm must survive pickling"
        (first, replies), (again, _) = _federate(algorithm), _federate(algorithm)
        _check_tensors(first, "the server's state")
        for name, tensor in first.items():
            assert torch.equal(tensor, again[name]), f"{name} differs between two runs with the same seed"
        for reply in _federate(algorithm, stacked=True)[1] if algorithm.stacks else ():
            for name, tensor in replies[reply.client].arrays.items():
                same = torch.allclose(tensor.float(), reply.arrays[name].float(), rtol=TOLERANCE, atol=TOLERANCE)
                assert same, f"stacks, but {name} of client {reply.client} differs; average with batch.mean in the loss"
    except FedEASError as error:
        raise AssertionError(str(error)) from error


def _federate(algorithm: FedAvg, stacked: bool = False) -> tuple[Arrays, list[Reply]]:
    """The server's state after a set-up exchange and some rounds, and the replies of the first one.

    Clients train one after the other, or as one stacked model, and must keep to the laws of replies.
    """
    parts = Parts.of(load_config(None, SETTINGS), torch.device("cpu"))
    config, sizes, dataset = parts.config, parts.data.counts.sizes, parts.data.dataset
    server = algorithm.init(parts.model, Fleet(sizes, dataset.num_classes, config.seed))
    nothing = np.zeros((CLIENTS, dataset.num_classes), dtype=np.int64)
    worker = Worker(algorithm, parts.model, parts.load_client, nothing, None, config.train, config.seed, ROUNDS)
    engine: LocalEngine = LocalEngine(worker)
    if stacked:
        engine = gpu_engine(worker, dataset.shape, parts.normalise, int(sizes.max()), config.engine, CLIENTS)
    first = list[Reply]()
    with closing(engine):
        server = set_up(algorithm, engine, server, CLIENTS)
        for number in range(ROUNDS):
            broadcast = algorithm.broadcast(server, number)
            before = copy.deepcopy(broadcast)
            replies = engine.map(Task.TRAIN, broadcast, range(CLIENTS), number)
            for client, (reply, size) in enumerate(zip(replies, sizes.tolist(), strict=True)):
                assert reply.client == client, f"the reply of client {client} names client {reply.client}"
                weight = f"replies with weight {reply.weight}, but has {size} samples"
                assert reply.weight == size, f"client {client} {weight}"
                _check_tensors(reply.arrays, f"the reply of client {client}")
            for name, tensor in before.items():
                same = torch.equal(tensor, broadcast[name])
                assert same, f"a client has changed {name} of the broadcast; work on a copy"
            server, first = algorithm.server_update(server, replies, number), first or replies
    missing = set(model_arrays(parts.model)) - set(server)
    assert not missing, f"the server's state lacks {min(missing, default='')}; keep the model under {MODEL!r}"
    return server, first


def _check_tensors(arrays: Mapping[str, Tensor], whose: str) -> None:
    for name, tensor in arrays.items():
        assert isinstance(tensor, torch.Tensor), f"{name} in {whose} is a {type(tensor).__name__}, not a tensor"
        assert not tensor.requires_grad, f"{name} in {whose} still has a gradient; detach it"
        assert bool(torch.isfinite(tensor.float()).all()), f"{name} in {whose} is not finite"
