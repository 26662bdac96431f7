"""Clients that are trained together end with the same weights as in the reference engine."""

import time
from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch
from federation.engines.six_clients import (
    GPU,
    SHAPE,
    SIZES,
    assert_freed_by,
    assert_near,
    assert_same,
    normaliser,
    trained,
    worker,
)

from fedeas.algorithms import FedAvg, parse_algorithm
from fedeas.algorithms.base import Fleet
from fedeas.config import EngineConfig, TrainConfig
from fedeas.core.devices import torch_precision
from fedeas.core.errors import InputError, RunError
from fedeas.data.client import ClientData, Normaliser
from fedeas.fast import fused, gpu_engine, stacked_layers
from fedeas.fast import fusion as module
from fedeas.fast.fused import FusedSGD
from fedeas.fast.fusion import FusionEngine
from fedeas.fast.lanes import LanesEngine
from fedeas.federation.engines.base import Task
from fedeas.federation.rounds import Schedule, federate, set_up
from fedeas.federation.worker import LocalEngine, Worker
from fedeas.gpu import free_memory
from fedeas.models.build import build_model

LARGEST = max(SIZES)
STACKED = ["fedavg", "fedprox(mu=0.5)", "scaffold", "scaffold(option=I)", "moon"]
WAYS = [
    {},
    {"momentum": 0.9, "weight_decay": 1e-3},
    {"schedule": "cosine", "momentum": 0.5},
    {"augment": "crop-flip", "epochs": 3},
    {"batch_size": 64},
    {"steps": 3, "batch_size": 50, "augment": "flip"},
    {"loss": "balanced-softmax"},
]


def together(algorithm, clients=4, capacity=LARGEST, **settings):
    own = worker(algorithm, **settings)
    return FusionEngine(own, SHAPE, normaliser(own), capacity, clients)


def results_of(engine):
    try:
        return trained(engine), engine.client_states()
    finally:
        engine.close()


def both(spec, clients=4, **settings):
    algorithm = parse_algorithm(spec)
    plain = LocalEngine(worker(algorithm, **settings))
    return results_of(plain), results_of(together(algorithm, clients, **settings))


def assert_near_results(expected, found, tolerance=1e-4):
    assert_near(expected[0], found[0], tolerance)
    assert expected[1].keys() == found[1].keys()
    for client, state in expected[1].items():
        assert_near(state, found[1][client], tolerance)


@pytest.mark.parametrize(("spec", "norm"), [*product(STACKED, ["batch", "group", "none"])])
def test_every_algorithm_that_stacks_equals_the_reference(spec, norm):
    assert_near_results(*both(spec, norm=norm))


@pytest.mark.parametrize("train", WAYS, ids=str)
@pytest.mark.parametrize("spec", ["fedavg", "scaffold(option=I)"])
def test_every_training_setting_equals_the_reference(spec, train):
    settings = TrainConfig(**{"lr": 0.05, "batch_size": 8, "epochs": 2, **train})
    assert_near_results(*both(spec, train=settings))


@pytest.mark.parametrize("clients", [1, 2, 3])
def test_rounds_with_more_clients_than_are_trained_together_equal_the_reference(clients):
    assert_near_results(*both("moon", clients))


def test_the_same_clients_give_the_same_bits_again():
    algorithm = parse_algorithm("scaffold")
    one, other = (results_of(together(algorithm)) for _ in range(2))
    assert all(torch.equal(one[0][key], other[0][key]) for key in one[0])


def test_replies_come_in_the_order_of_client_ids_with_steps_and_images():
    engine = together(FedAvg(), 4)
    server = FedAvg().init(engine.worker.model, Fleet(np.array(SIZES), 3))
    replies = engine.map(Task.TRAIN, FedAvg().broadcast(server, 0), [5, 0, 3, 2, 1, 4], 0)
    engine.close()
    work = {reply.client: (reply.metrics["steps"], reply.metrics["samples"]) for reply in replies}
    assert list(work.items()) == [(0, (6, 42)), (1, (2, 16)), (2, (8, 64)), (3, (2, 4)), (4, (4, 32)), (5, (10, 80))]


@pytest.mark.parametrize("kind", ["fused", "lanes"])
def test_seconds_of_clients_that_work_at_the_same_time_add_up_to_those_of_the_round(kind):
    own = worker()
    engine = together(FedAvg(), 4) if kind == "fused" else LanesEngine(own, normaliser(own), LARGEST, lanes=3)
    server = FedAvg().init(engine.worker.model, Fleet(np.array(SIZES), 3))
    start = time.perf_counter()
    replies = engine.map(Task.TRAIN, FedAvg().broadcast(server, 0), list(range(6)), 0)
    whole = time.perf_counter() - start
    engine.close()
    assert 0 < sum(reply.metrics["train_seconds"] + reply.metrics["prepare_seconds"] for reply in replies) <= whole


def test_a_client_with_more_samples_than_the_capacity_is_trained():
    algorithm = FedAvg()
    expected = results_of(LocalEngine(worker(algorithm)))
    assert_near_results(expected, results_of(together(algorithm, capacity=10)))


class FailsForClientTwo(FedAvg):
    def objective(self, job):
        if job.client == 2:
            raise RunError("client 2 cannot train")
        return super().objective(job)


def test_a_client_that_fails_does_not_block_the_others():
    engine = together(FailsForClientTwo())
    server = FedAvg().init(engine.worker.model, Fleet(np.array(SIZES), 3))
    with pytest.raises(RunError, match="client 2 cannot train"):
        engine.map(Task.TRAIN, FedAvg().broadcast(server, 0), range(4), 0)
    replies = engine.map(Task.TRAIN, FedAvg().broadcast(server, 0), [0, 1, 3], 0)
    engine.close()
    assert [reply.client for reply in replies] == [0, 1, 3]


def test_a_loss_that_is_not_finite_names_client_and_round():
    engine = together(FedAvg(), train=TrainConfig(lr=1e30, batch_size=8, epochs=2), norm="none")
    with pytest.raises(RunError, match=r"client \d, round 1: the loss is"):
        results_of(engine)


class Short(FusedSGD):
    """Runs out of memory with more clients than this."""

    most = 1

    def __call__(self, jobs, objectives):
        if self.clients > self.most:
            raise torch.OutOfMemoryError("no more")
        return super().__call__(jobs, objectives)


def test_out_of_memory_halves_the_clients_at_once_with_the_same_result(monkeypatch, caplog):
    expected = results_of(LocalEngine(worker(FedAvg())))
    monkeypatch.setattr(module, "FusedSGD", Short)
    engine = together(FedAvg())
    found = trained(engine), engine.client_states()
    assert engine.fused.clients == 1
    engine.close()
    assert_near_results(expected, found)
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 2  # from 4 to 2 to 1


def test_closing_frees_the_recorded_steps_for_the_next_run(monkeypatch):
    engine = together(FedAvg())
    trained(engine)
    assert_freed_by(engine.close, list(engine.fused.steps.values()), monkeypatch)


def test_out_of_memory_with_a_single_client_is_an_error(monkeypatch):
    monkeypatch.setattr(module, "FusedSGD", Short)
    monkeypatch.setattr(Short, "most", 0)
    with pytest.raises(torch.OutOfMemoryError):
        results_of(together(FedAvg()))


def chosen(spec="fedavg", stem="imagenet", **settings):
    own = worker(parse_algorithm(spec))
    own.model = build_model("resnet18", (3, 32, 32), 10, seed=0, stem=stem)
    engine = gpu_engine(own, (3, 32, 32), normaliser(own), 100, EngineConfig(**settings), 10)
    engine.close()
    return type(engine)


def test_the_fast_engine_stacks_small_feature_maps_and_uses_lanes_elsewhere():
    assert chosen() is FusionEngine
    assert chosen(stem="3x3") is LanesEngine
    assert chosen("fedmix") is LanesEngine
    assert chosen("fedgen") is LanesEngine
    assert chosen(lanes=2) is LanesEngine
    assert chosen(name="lanes") is LanesEngine
    assert chosen(name="fused", stem="3x3") is FusionEngine


@pytest.mark.parametrize("spec", ["fedmix", "fedgen"])
def test_the_fused_engine_refuses_algorithms_that_cannot_be_stacked(spec):
    with pytest.raises(InputError, match="use fast or lanes"):
        chosen(spec, name="fused")


@GPU
@pytest.mark.gpu
@pytest.mark.parametrize(("spec", "norm"), [*product(STACKED, ["batch", "group"])])
def test_on_a_gpu_every_algorithm_that_stacks_equals_the_reference(spec, norm):
    assert_near_results(*both(spec, norm=norm, device="cuda"))


@GPU
@pytest.mark.gpu
@pytest.mark.parametrize("train", WAYS, ids=str)
def test_on_a_gpu_every_training_setting_equals_the_reference(train):
    settings = TrainConfig(**{"lr": 0.05, "batch_size": 8, "epochs": 2, **train})
    assert_near_results(*both("scaffold(option=I)", train=settings, device="cuda"))


@GPU
@pytest.mark.gpu
@pytest.mark.parametrize("spec", ["fedavg", "fedprox(mu=0.5)", "scaffold"])
def test_on_a_gpu_work_beside_the_main_chain_changes_no_bit(spec, monkeypatch):
    together = [trained_deep_network(spec) for _ in range(2)]
    monkeypatch.setattr(fused, "uses_of_leaves", lambda loss: Counter())
    monkeypatch.setattr(stacked_layers, "branch", lambda work, device: (work(), lambda: None))
    one_by_one = trained_deep_network(spec)
    for found in together:
        assert_same(found, one_by_one)


@GPU
@pytest.mark.gpu
@pytest.mark.parametrize("spec", ["fedavg", "moon"])
def test_on_a_gpu_a_second_run_leaves_no_more_memory_than_the_first(spec):
    left = []
    for _ in range(3):
        trained_deep_network(spec)
        free_memory()
        left.append(torch.cuda.memory_allocated())
    assert left[1:] == left[:1] * 2


def trained_deep_network(spec):
    """Two rounds of eight clients of different sizes."""
    algorithm, device, sizes = parse_algorithm(spec), torch.device("cuda"), [40 * client + 30 for client in range(8)]
    normalise = Normaliser.of((0.5,) * 3, (0.25,) * 3, device)

    def load(client):
        rng = np.random.default_rng(client)
        images = rng.integers(0, 256, (sizes[client], 3, 32, 32), dtype=np.uint8)
        return ClientData.of(images, rng.integers(0, 10, sizes[client]), normalise)

    model = build_model("resnet18", (3, 32, 32), 10, seed=0, stem="imagenet").to(device)
    train, nothing = TrainConfig(batch_size=64, epochs=3), np.zeros((8, 10), np.int64)
    own = Worker(algorithm, model, load, nothing, None, train, 0, 2, "bf16")
    engine = FusionEngine(own, (3, 32, 32), normalise, max(sizes), 8)
    try:
        with torch_precision("bf16", device):
            server = set_up(algorithm, engine, algorithm.init(model, Fleet(np.array(sizes), 10)), 8)
            return federate(algorithm, engine, server, Schedule(2, 8, 8, 0), lambda state: {})
    finally:
        engine.close()
