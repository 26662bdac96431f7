"""FedAvg and FedProx against plain PyTorch."""

import copy

import numpy as np
import pytest
import torch
from oracles import local_loss
from torch import nn

from fedeas.algorithms import FedAvg, FedProx, parse_algorithm
from fedeas.algorithms.base import ClientJob, Fleet, Reply, load_model, model_arrays, weighted_mean
from fedeas.algorithms.local_sgd import augmented, learning_rate, local_sgd, plan_batches
from fedeas.config import TrainConfig
from fedeas.core.arrays import stream
from fedeas.core.errors import InputError, RunError, SpecError
from fedeas.data.client import ClientData, Normaliser
from fedeas.federation.rounds import Schedule, federate
from fedeas.federation.worker import LocalEngine, Worker

NORMALISE = Normaliser.of((0.5,), (0.25,))


class Net(nn.Module):
    """Small, with BatchNorm, so that buffers matter."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4 * 16, 3)

    def forward(self, x):
        return self.head(self.norm(self.conv(x)).relu().flatten(1))


def client_data(seed, size=26):
    rng = np.random.default_rng(seed)
    return ClientData.of(rng.integers(0, 256, (size, 1, 4, 4), dtype=np.uint8), rng.integers(0, 3, size), NORMALISE)


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


def run_rounds(algorithm, net, rounds=3, clients=1, participants=1, train=None, seed=5, sizes=None):
    train = train or TrainConfig(lr=0.1, batch_size=8, epochs=2)
    datasets = {k: client_data(k, (sizes or {}).get(k, 26)) for k in range(clients)}
    worker = Worker(
        algorithm, copy.deepcopy(net), datasets.__getitem__, np.zeros((clients, 3), int), None, train, seed, rounds
    )
    server = algorithm.init(net, Fleet(np.array([len(d) for d in datasets.values()]), 3))
    records = []
    schedule = Schedule(rounds, clients, participants, seed)
    state = federate(
        algorithm, LocalEngine(worker), server, schedule, lambda state: {}, on_round=lambda r, s: records.append(r)
    )
    return state, records


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_one_client_fedavg_is_plain_sgd_bit_for_bit(net, momentum):
    train = TrainConfig(lr=0.1, batch_size=8, epochs=2, momentum=momentum, weight_decay=1e-3)
    state, _ = run_rounds(FedAvg(), net, rounds=3, train=train)
    plain, data = copy.deepcopy(net), client_data(0)
    plain.train()
    for round in range(3):
        optimiser = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=momentum, weight_decay=1e-3)
        rng = stream("batches", 5, round, 0)
        for _ in range(2):
            order = rng.permutation(26)
            for start in range(0, 26, 8):
                index = torch.from_numpy(order[start : start + 8])
                images = NORMALISE(data.images[index])
                optimiser.zero_grad()
                nn.functional.cross_entropy(plain(images), data.labels[index]).backward()
                optimiser.step()
    assert same(state, model_arrays(plain))


def test_fedprox_without_its_term_is_fedavg_bit_for_bit(net):
    kwargs = {"clients": 4, "participants": 2, "rounds": 3}
    assert same(run_rounds(FedProx(mu=0), net, **kwargs)[0], run_rounds(FedAvg(), net, **kwargs)[0])


def test_fedprox_gradient_is_mu_times_the_distance_from_the_global_model(net):
    """Half the squared norm times mu has the gradient mu (w - w_t)."""
    algorithm, data = FedProx(mu=0.7), client_data(0)
    job = ClientJob(0, 0, 0, 1, net, data, model_arrays(net), {}, TrainConfig())
    moved = copy.deepcopy(net)
    with torch.no_grad():
        for parameter in moved.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    images, labels = NORMALISE(data.images), data.labels
    gradients = []
    for loss in (local_loss(algorithm, job), local_loss(FedAvg(), job)):
        moved.zero_grad()
        for _ in range(2):  # a second batch must see the anchors too
            value = loss(moved, images, labels)
        value.backward()
        gradients.append([parameter.grad.clone() for parameter in moved.parameters()])
    for prox, plain, parameter, anchor in zip(*gradients, moved.parameters(), net.parameters(), strict=True):
        assert torch.allclose(prox - plain, 0.7 * (parameter - anchor).detach(), atol=1e-5)


def test_fedprox_stays_nearer_to_the_global_model(net):
    def way(algorithm):
        state, _ = run_rounds(algorithm, net, rounds=1)
        return sum((state["model/" + name] - p).norm().item() for name, p in net.named_parameters())

    assert way(FedProx(mu=10)) < 0.9 * way(FedAvg())


def test_models_are_averaged_by_real_sizes():
    replies = [
        Reply(0, 30, {"model/w": torch.tensor([1.0, 2.0]), "model/steps": torch.tensor(4)}),
        Reply(1, 10, {"model/w": torch.tensor([5.0, -2.0]), "model/steps": torch.tensor(9)}),
    ]
    mean = weighted_mean(replies, ["model/w", "model/steps"])
    assert mean["model/w"].tolist() == [2.0, 1.0]
    assert mean["model/steps"].item() == 9
    assert mean["model/steps"].dtype == torch.int64


@pytest.mark.parametrize("clients", [1, 2])
def test_the_mean_does_not_share_memory_with_a_reply(clients):
    arrays = [{"model/w": torch.ones(2), "model/steps": torch.tensor(3)} for _ in range(clients)]
    mean = weighted_mean([Reply(client, 5, each) for client, each in enumerate(arrays)], arrays[0])
    for each in arrays:
        for tensor in each.values():
            tensor.zero_()
    assert mean["model/w"].tolist() == [1, 1]
    assert mean["model/steps"] == 3


def test_running_statistics_are_averaged_too(net):
    kwargs = {"clients": 2, "participants": 2, "rounds": 1, "sizes": {0: 30, 1: 10}}
    state, _ = run_rounds(FedAvg(), net, **kwargs)
    singles = []
    for client in (0, 1):
        model, data = copy.deepcopy(net), client_data(client, kwargs["sizes"][client])
        local_sgd(ClientJob(client, 0, 5, 1, model, data, {}, {}, TrainConfig(lr=0.1, batch_size=8, epochs=2)))
        singles.append(model.norm.running_mean)
    assert torch.allclose(state["model/norm.running_mean"], 0.75 * singles[0] + 0.25 * singles[1], atol=1e-6)


def test_synthetic_samples_are_trained_on_but_carry_no_weight():
    data = client_data(0, 20)
    more = data.joined(np.zeros((15, 1, 4, 4), dtype=np.uint8), np.ones(15, dtype=np.int64))
    assert (len(more), more.num_real) == (35, 20)
    torch.manual_seed(0)
    net = Net()
    job = ClientJob(0, 0, 0, 1, net, more, model_arrays(net), {}, TrainConfig(batch_size=8, epochs=2))
    reply, _ = FedAvg().client_update(job)
    assert reply.weight == 20
    assert (reply.metrics["steps"], reply.metrics["samples"]) == (2 * 5, 2 * 35)


def test_the_cosine_schedule_falls_over_the_rounds(net):
    rates = [
        learning_rate(ClientJob(0, r, 0, 10, net, client_data(0), {}, {}, TrainConfig(lr=1.0, schedule="cosine")))
        for r in range(10)
    ]
    assert rates[0] == 1.0
    assert rates[5] == pytest.approx(0.5)
    assert rates == sorted(rates, reverse=True)


def test_augmentation_flips_and_shifts_but_keeps_the_pixels():
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.integers(1, 256, (200, 2, 16, 16), dtype=np.uint8))

    def draws(how):
        data = ClientData(images, torch.zeros(200, dtype=torch.int64), 200, Normaliser.of((0.5,), (0.25,)))
        train = TrainConfig(epochs=1, augment=how)
        return plan_batches(ClientJob(0, 0, 0, 1, None, data, {}, {}, train)).drawn

    assert augmented(images, draws("none")) is images
    flipped = augmented(images, draws("flip"))
    is_flipped = (flipped == images.flip(-1)).all(dim=(1, 2, 3))
    assert ((flipped == images).all(dim=(1, 2, 3)) | is_flipped).all()
    assert 60 < is_flipped.sum() < 140
    moved = augmented(images, draws("crop-flip"))
    assert moved.shape == images.shape
    hits = 0
    for before, after in zip(images, moved, strict=True):
        candidates = [
            torch.roll(side, (dy, dx), (1, 2))[:, 2:14, 2:14]
            for side in (before, before.flip(-1))
            for dy in range(-2, 3)
            for dx in range(-2, 3)
        ]
        hits += any(torch.equal(after[:, 2:14, 2:14], candidate) for candidate in candidates)
    assert hits == 200


def test_a_loss_that_is_not_finite_names_client_and_round(net):
    with pytest.raises(RunError, match=r"client 0, round \d: the loss is (nan|inf); lower train.lr"):
        run_rounds(FedAvg(), net, train=TrainConfig(lr=1e30, batch_size=8, epochs=2))


def test_the_clients_of_a_round_depend_on_seed_and_round_alone():
    schedule = Schedule(rounds=50, num_clients=20, participants=10, seed=3)
    again = Schedule(rounds=9, num_clients=20, participants=10, seed=3, start=4, eval_every=2)
    chosen = [schedule.clients(r) for r in range(9)]
    assert chosen == [again.clients(r) for r in range(9)]
    assert all(len(set(clients)) == 10 and clients == sorted(clients) for clients in chosen)
    assert len({tuple(clients) for clients in chosen}) > 5
    assert [r for r in range(9) if again.evaluates(r)] == [1, 3, 5, 7, 8]


def test_records_count_rounds_from_one_and_say_what_happened(net):
    _, records = run_rounds(FedAvg(), net, rounds=2, clients=3, participants=2)
    assert [record["round"] for record in records] == [1, 2]
    for record in records:
        assert (len(record["clients"]), record["steps"], record["samples"]) == (2, 2 * 2 * 4, 2 * 2 * 26)
        assert isinstance(record["steps"], int)
        assert isinstance(record["samples"], int)
    assert set(records[0]["seconds"]) == {"generate", "prepare", "train", "engine", "aggregate", "probe", "evaluate"}


def test_loading_a_model_replaces_all_its_tensors(net):
    other = Net()
    load_model(other, model_arrays(net))
    assert same(model_arrays(other), model_arrays(net))


def test_specs_name_algorithms():
    assert parse_algorithm("fedavg") == FedAvg()
    assert parse_algorithm("fedprox(mu=0.5)") == FedProx(0.5)
    assert FedProx().spec == "fedprox(mu=0.01)"
    with pytest.raises(SpecError, match="unknown algorithm 'fedsgd'; known are fedavg, fedprox, scaffold"):
        parse_algorithm("fedsgd")
    with pytest.raises(InputError, match=r"mu must be a number from 0 to 3\.4e\+38, not -1"):
        FedProx(mu=-1)
