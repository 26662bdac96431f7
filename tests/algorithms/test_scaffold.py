"""SCAFFOLD on heterogeneous quadratics, where the right fixed point is known in closed form."""

import copy
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from fedeas.algorithms import SCAFFOLD, FedAvg
from fedeas.algorithms.base import ClientJob, Fleet, model_arrays
from fedeas.algorithms.local_sgd import Objective
from fedeas.config import TrainConfig
from fedeas.core.errors import InputError
from fedeas.data.client import ClientData, Normaliser
from fedeas.federation.rounds import Schedule, federate
from fedeas.federation.worker import LocalEngine, Worker

CLIENTS, DIMENSION = 10, 4
RNG = np.random.default_rng(0)
SIZES = RNG.integers(5, 60, CLIENTS)
CURVATURE = torch.from_numpy(np.stack([np.diag(RNG.uniform(0.5, 2.0, DIMENSION)) for _ in range(CLIENTS)]))
CENTRES = torch.from_numpy(RNG.normal(0, 3, (CLIENTS, DIMENSION)))
NORMALISE = Normaliser.of((0.5,), (0.25,))
TRAIN = TrainConfig(lr=0.1, batch_size=64, epochs=4)


class Point(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(DIMENSION, dtype=torch.float64))


def quadratic(job):
    """F_k(w) = 1/2 (w - a_k)' A_k (w - a_k), whatever the images."""

    def loss(model, batch, shared):
        way = model.w - CENTRES[job.client]
        return 0.5 * way @ CURVATURE[job.client] @ way

    return Objective(loss)


@dataclass(frozen=True)
class QuadraticSCAFFOLD(SCAFFOLD):
    def objective(self, job):
        return quadratic(job)


@dataclass(frozen=True)
class QuadraticFedAvg(FedAvg):
    def objective(self, job):
        return quadratic(job)


def optimum(weights):
    matrix = sum(float(w) * a for w, a in zip(weights, CURVATURE, strict=True))
    vector = sum(float(w) * a @ c for w, a, c in zip(weights, CURVATURE, CENTRES, strict=True))
    return torch.linalg.solve(matrix, vector)


def solve(algorithm, participants, rounds, train=TRAIN):
    def data(client):
        size = int(SIZES[client])
        return ClientData.of(np.zeros((size, 1, 2, 2), np.uint8), np.zeros(size, np.int64), NORMALISE)

    model, nothing = Point(), np.zeros((CLIENTS, 2), int)
    engine = LocalEngine(Worker(algorithm, copy.deepcopy(model), data, nothing, None, train, 0, rounds))
    server = algorithm.init(model, Fleet(SIZES, 2))
    server = federate(algorithm, engine, server, Schedule(rounds, CLIENTS, participants, 1), lambda state: {})
    return server, engine


@pytest.mark.parametrize(
    ("participants", "rounds"),
    [(10, 60), pytest.param(5, 240, marks=pytest.mark.slow), pytest.param(2, 700, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("option", ["I", "II"])
def test_the_weighted_optimum_is_reached_at_any_participation(participants, rounds, option):
    server, _ = solve(QuadraticSCAFFOLD(option=option), participants, rounds)
    assert torch.allclose(server["model/w"], optimum(SIZES / SIZES.sum()), atol=1e-8)


def test_uniform_weighting_reaches_the_unweighted_optimum():
    server, _ = solve(QuadraticSCAFFOLD(weighting="uniform"), 5, rounds=120)
    assert torch.allclose(server["model/w"], optimum(np.full(CLIENTS, 0.1)), atol=1e-8)
    assert not torch.allclose(optimum(np.full(CLIENTS, 0.1)), optimum(SIZES / SIZES.sum()), atol=1e-2)


def test_fedavg_does_not_reach_the_weighted_optimum():
    server, _ = solve(QuadraticFedAvg(), 10, rounds=60)
    assert (server["model/w"] - optimum(SIZES / SIZES.sum())).norm() > 1e-2


@pytest.mark.parametrize("participants", [10, 3])
def test_the_servers_control_is_the_weighted_mean_of_the_clients(participants):
    server, engine = solve(QuadraticSCAFFOLD(), participants, rounds=7)
    states = engine.client_states()
    mean = sum(SIZES[k] / SIZES.sum() * state["control/w"] for k, state in states.items())
    assert torch.allclose(server["control/w"], mean, atol=1e-12)


def test_the_first_round_equals_fedavg():
    """Controls start at zero, so nothing is corrected yet."""
    ours, _ = solve(QuadraticSCAFFOLD(), 10, rounds=1)
    theirs, _ = solve(QuadraticFedAvg(), 10, rounds=1)
    assert torch.allclose(ours["model/w"], theirs["model/w"], atol=1e-14)


def test_controls_cover_trainable_parameters_only():
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    net[0].bias.requires_grad_(False)
    server = SCAFFOLD().init(net, Fleet(SIZES, 2))
    assert {key for key in server if key.startswith("control/")} == {
        "control/0.weight",
        "control/1.weight",
        "control/1.bias",
    }
    assert all(not server[key].any() for key in server if key.startswith("control/"))


def test_option_one_is_the_full_gradient_and_leaves_running_statistics_alone():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
    rng = np.random.default_rng(0)
    data = ClientData.of(rng.integers(0, 256, (20, 1, 4, 4), dtype=np.uint8), rng.integers(0, 3, 20), NORMALISE)
    train = TrainConfig(lr=0.01, batch_size=20, epochs=1)
    algorithm = SCAFFOLD(option="I")
    broadcast = algorithm.broadcast(algorithm.init(net, Fleet(np.array([20]), 3)), 0)
    twin = copy.deepcopy(net)
    reply, state = algorithm.client_update(ClientJob(0, 0, 0, 1, copy.deepcopy(net), data, broadcast, {}, train))
    twin.train()
    nn.functional.cross_entropy(twin(NORMALISE(data.images)), data.labels).backward()
    assert torch.allclose(state["control/3.weight"], twin[3].weight.grad, atol=1e-6)
    plain, _ = FedAvg().client_update(ClientJob(0, 0, 0, 1, copy.deepcopy(net), data, model_arrays(net), {}, train))
    assert torch.equal(reply.arrays["model/1.running_mean"], plain.arrays["model/1.running_mean"])


def plain_net(norm):
    torch.manual_seed(0)
    middle = nn.BatchNorm2d(2) if norm else nn.Identity()
    return nn.Sequential(nn.Conv2d(1, 2, 4), middle, nn.Flatten(), nn.Linear(2, 3))


def full_gradient(net, data, batch_size):
    algorithm = SCAFFOLD(option="I")
    broadcast = algorithm.broadcast(algorithm.init(net, Fleet(np.array([len(data)]), 3)), 0)
    train = TrainConfig(lr=0.01, batch_size=batch_size, epochs=1)
    return algorithm.client_update(ClientJob(0, 0, 0, 1, copy.deepcopy(net), data, broadcast, {}, train))[1]


@pytest.mark.parametrize("size", [1, 2, 16, 17, 20, 33])
def test_option_one_counts_every_image_once(size):
    """The gradient is the mean over all data; batch norm over 1x1 maps cannot take a last batch of one image."""
    rng = np.random.default_rng(size)
    data = ClientData.of(rng.integers(0, 256, (size, 1, 4, 4), dtype=np.uint8), rng.integers(0, 3, size), NORMALISE)
    net = plain_net(norm=False)
    nn.functional.cross_entropy(net(NORMALISE(data.images)), data.labels).backward()
    expected = net[3].weight.grad
    assert torch.allclose(full_gradient(plain_net(norm=False), data, 16)["control/3.weight"], expected, atol=1e-6)
    assert full_gradient(plain_net(norm=True), data, 16)["control/3.weight"].isfinite().all()


def test_option_one_does_not_depend_on_synthetic_samples_being_sorted():
    """Sorted batches hold one class each, and batch norm then removes the differences between classes."""
    images = np.repeat(np.arange(3, dtype=np.uint8) * 100, 16)[:, None, None, None] + np.zeros((1, 4, 4), np.uint8)
    labels = np.repeat(np.arange(3), 16)
    data, net = ClientData.of(images, labels, NORMALISE), plain_net(norm=True)
    whole, parts = (full_gradient(net, data, size)["control/3.weight"] for size in (48, 16))
    sorted_parts = sum(
        torch.autograd.grad(
            nn.functional.cross_entropy(net.train()(NORMALISE(data.images[rows])), data.labels[rows]), net[3].weight
        )[0]
        for rows in (slice(0, 16), slice(16, 32), slice(32, 48))
    )
    assert (parts - whole).norm() < 0.5 * (sorted_parts / 3 - whole).norm()


def test_momentum_is_refused_where_it_would_be_wrong():
    with pytest.raises(InputError, match="option II does not go with momentum"):
        solve(QuadraticSCAFFOLD(), 10, rounds=1, train=TrainConfig(lr=0.05, batch_size=64, epochs=2, momentum=0.9))


@pytest.mark.parametrize("arguments", [{"server_lr": 0}, {"option": "III"}, {"weighting": "none"}])
def test_hyperparameters_out_of_range_are_refused(arguments):
    with pytest.raises(InputError):
        SCAFFOLD(**arguments)
