"""Lanes compute what the reference engine computes, whichever lane trains a client."""

import copy
import gc
import weakref
from itertools import product

import numpy as np
import pytest
import torch
from federation.engines.six_clients import (
    GPU,
    SIZES,
    assert_freed_by,
    assert_near,
    assert_same,
    normaliser,
    trained,
    worker,
)
from hypothesis import given
from hypothesis import strategies as st

from fedeas.algorithms import FedAvg, parse_algorithm
from fedeas.algorithms.base import Fleet
from fedeas.config import TrainConfig
from fedeas.core.devices import torch_precision
from fedeas.core.errors import InputError, RunError
from fedeas.data.client import ClientData, Normaliser
from fedeas.fast import lanes as module
from fedeas.fast.captured import CapturedSGD
from fedeas.fast.fused_layers import norms_can_be_masked
from fedeas.fast.lanes import LanesEngine, fewest_useful, lanes_for
from fedeas.federation.engines.base import Task
from fedeas.federation.rounds import Schedule, federate, set_up
from fedeas.federation.worker import LocalEngine, Worker
from fedeas.models.build import build_model

LARGEST = max(SIZES)
ALGORITHMS = ["fedavg", "fedprox(mu=0.5)", "scaffold", "moon", "fedgen(ensemble_epochs=2)", "fedmix(lam=0.2, mash=4)"]


def both(spec, lanes, **settings):
    algorithm = parse_algorithm(spec)
    own = worker(algorithm, **settings)
    plain = LocalEngine(own)
    expected = trained(plain)
    own = worker(algorithm, **settings)
    fast = lanes_engine(own, lanes)
    return (expected, plain.client_states()), (trained(fast), fast.client_states())


def lanes_engine(own, lanes, capacity=LARGEST):
    return LanesEngine(own, normaliser(own), capacity, lanes)


@pytest.mark.parametrize(("spec", "lanes"), [*product(ALGORITHMS, [2]), ("scaffold", 1), ("moon", 5), ("fedavg", 0)])
def test_lanes_equal_the_reference_bit_for_bit(spec, lanes):
    (expected, states), (found, own) = both(spec, lanes)
    assert_same(expected, found)
    assert states.keys() == own.keys()
    for client in states:
        assert_same(states[client], own[client])


def test_closing_frees_the_recorded_steps_for_the_next_run(monkeypatch):
    engine = lanes_engine(worker(), 2)
    trained(engine)
    assert_freed_by(engine.close, [step for lane in engine.lanes for step in lane.trainer.steps.values()], monkeypatch)


@pytest.mark.parametrize(
    "train",
    [
        {"momentum": 0.9, "weight_decay": 1e-3},
        {"schedule": "cosine", "momentum": 0.5},
        {"augment": "flip"},
        {"augment": "crop-flip", "epochs": 3},
        {"batch_size": 64},
        {"steps": 5},
        {"steps": 3, "batch_size": 50, "augment": "flip"},
    ],
    ids=str,
)
def test_every_training_setting_equals_the_reference(train):
    settings = {"lr": 0.05, "batch_size": 8, "epochs": 2, **train}
    (expected, _), (found, _) = both("fedavg", 2, train=TrainConfig(**settings))
    assert_same(expected, found)


@pytest.mark.parametrize("spec", [*ALGORITHMS, "scaffold(option=I)"])
@pytest.mark.parametrize("train", [{"epochs": 2}, {"steps": 3}], ids=str)
def test_every_reply_counts_its_steps_and_images(spec, train):
    algorithm = parse_algorithm(spec)
    own = worker(algorithm, train=TrainConfig(batch_size=8, **train))
    engine = lanes_engine(own, lanes=2)
    server = set_up(algorithm, engine, algorithm.init(own.model, Fleet(np.array(SIZES), 3)), len(SIZES))
    work = {
        reply.client: (reply.metrics["steps"], reply.metrics["samples"])
        for reply in engine.map(Task.TRAIN, algorithm.broadcast(server, 0), range(len(SIZES)), 0)
    }
    by_epochs = {0: (6, 42), 1: (2, 16), 2: (8, 64), 3: (2, 4), 4: (4, 32), 5: (10, 80)}
    assert work == (dict.fromkeys(range(6), (3, 24)) if "steps" in train else by_epochs)


@pytest.mark.parametrize("spec", ALGORITHMS)
def test_with_equal_steps_lanes_equal_the_reference_for_every_algorithm(spec):
    train = TrainConfig(lr=0.05, batch_size=8, steps=3)
    (expected, states), (found, own) = both(spec, 2, train=train)
    assert_same(expected, found)
    for client in states:
        assert_same(states[client], own[client])


@given(st.dictionaries(st.sampled_from([1, 2, 4, 6, 8]), st.floats(1, 1e4), min_size=1))
def test_the_fewest_lanes_near_the_highest_speed_are_kept(speeds):
    chosen, best = fewest_useful(speeds), max(speeds.values())
    assert speeds[chosen] * module.USEFUL >= best
    assert all(speeds[fewer] * module.USEFUL < best for fewer in speeds if fewer < chosen)


def test_the_largest_clients_start_first_and_each_is_trained_once(monkeypatch):
    own = worker(FedAvg())
    engine, started = lanes_engine(own, lanes=2), []
    one = engine._train_one
    monkeypatch.setattr(engine, "_train_one", lambda lane, *job: started.append((lane, job[1])) or one(lane, *job))
    engine.map(Task.TRAIN, FedAvg().init(own.model, Fleet(np.array(SIZES), 3)), range(6), 0)
    clients = [client for _, client in started]
    assert sorted(clients) == list(range(6))
    assert set(clients[:2]) == {5, 2}
    assert started[clients.index(5)][0] is engine.lanes[0]


@given(st.integers(1, 100), st.integers(0, 1000), st.integers(1, 1000))
def test_lanes_fit_the_memory_that_is_free(taken, free, whole):
    free = min(free, whole)
    lanes = lanes_for(taken, free, whole)
    assert 1 <= lanes <= module.MOST_LANES
    assert lanes == 1 or (lanes - 1) * taken <= free - module.RESERVE * whole + 1e-6


class Short(CapturedSGD):
    """Runs out of memory at its first client while there are more than two lanes."""

    lanes = 4

    def __call__(self, job, objective):
        if Short.lanes > 2:
            raise torch.OutOfMemoryError("no more")
        return super().__call__(job, objective)


def test_out_of_memory_halves_the_lanes_with_the_same_result(monkeypatch, caplog):
    algorithm = FedAvg()
    own = worker(algorithm)
    expected = trained(LocalEngine(own))
    monkeypatch.setattr(module, "CapturedSGD", Short)
    own = worker(algorithm)
    engine = lanes_engine(own, lanes=4)
    opens = engine._open
    monkeypatch.setattr(engine, "_open", lambda count: setattr(Short, "lanes", count) or opens(count))
    found = trained(engine)
    assert_same(expected, found)
    assert len(engine.lanes) == 2
    assert "continuing with 2 clients at once" in caplog.text


def test_after_out_of_memory_the_old_lanes_are_freed_before_new_ones_are_made(monkeypatch):
    monkeypatch.setattr(module, "CapturedSGD", Short)
    monkeypatch.setattr(Short, "lanes", 4)
    engine, alive = lanes_engine(worker(FedAvg()), lanes=4), []
    old, opens = [weakref.ref(lane) for lane in engine.lanes], engine._open

    def open_after_looking(lanes):
        gc.collect()
        alive.extend(lane() for lane in old if lane() is not None)
        Short.lanes = lanes
        opens(lanes)

    monkeypatch.setattr(engine, "_open", open_after_looking)
    trained(engine)
    assert len(engine.lanes) == 2
    assert not alive


def test_out_of_memory_with_one_lane_is_an_error(monkeypatch):
    monkeypatch.setattr(module, "CapturedSGD", Short)
    monkeypatch.setattr(Short, "lanes", 4)
    own = worker(FedAvg())
    engine = lanes_engine(own, lanes=1)
    with pytest.raises(torch.OutOfMemoryError):
        trained(engine)


def test_a_loss_that_is_not_finite_names_client_and_round():
    train = TrainConfig(lr=1e30, batch_size=8, epochs=2)
    own = worker(FedAvg(), train=train, norm="none")
    with pytest.raises(RunError, match=r"client \d, round 1: the loss is"):
        trained(lanes_engine(own, lanes=2))


def test_a_run_can_change_engines_in_the_middle():
    algorithm = parse_algorithm("scaffold")
    own = worker(algorithm)
    expected = trained(LocalEngine(own))
    own = worker(algorithm)
    first = lanes_engine(own, lanes=3)
    server = trained(first, rounds=1)
    own = worker(algorithm)
    second = LocalEngine(own)
    second.restore(copy.deepcopy(first.client_states()))
    assert_same(expected, trained(second, start=1, server=server))


def test_a_client_with_more_samples_than_the_capacity_is_trained():
    algorithm = FedAvg()
    own = worker(algorithm)
    expected = trained(LocalEngine(own))
    own = worker(algorithm)
    assert_same(expected, trained(lanes_engine(own, lanes=2, capacity=5)))


def test_replies_come_in_the_order_of_clients():
    own = worker(FedAvg())
    engine = lanes_engine(own, lanes=3)
    broadcast = FedAvg().broadcast(FedAvg().init(own.model, Fleet(np.array(SIZES), 3)), 0)
    replies = engine.map(Task.TRAIN, broadcast, [5, 0, 3, 2], 0)
    assert [reply.client for reply in replies] == [0, 2, 3, 5]
    assert [reply.weight for reply in replies] == [SIZES[client] for client in (0, 2, 3, 5)]


@pytest.mark.parametrize(
    ("spec", "norm", "train"),
    [
        ("fedavg", "none", {}),
        ("fedavg", "group", {"loss": "balanced-softmax"}),
        ("fedavg", "group", {"augment": "crop-flip"}),
        ("fedprox(mu=0.5)", "group", {}),
        ("scaffold(option=I)", "group", {}),
        ("moon", "group", {}),
    ],
    ids=str,
)
def test_batches_that_are_filled_up_give_the_same_training(spec, norm, train):
    settings = {"train": TrainConfig(lr=0.05, batch_size=8, epochs=2, **train), "norm": norm}
    algorithm = parse_algorithm(spec)
    expected = trained(LocalEngine(worker(algorithm, **settings)))
    engine = lanes_engine(worker(algorithm, **settings), 2)
    for lane in engine.lanes:
        assert norms_can_be_masked(lane.model)
        lane.trainer.fills = True
    found = trained(engine)
    kinds = {key for lane in engine.lanes for key in lane.trainer.steps}  # a lane may get clients of one kind only
    assert len(kinds) == 2  # one for whole batches, one for all others
    for key, tensor in expected.items():
        torch.testing.assert_close(found[key], tensor, rtol=1e-4, atol=1e-5, msg=key)


@pytest.mark.parametrize("spec", ["fedmix(lam=0.2, mash=4)", "fedgen(ensemble_epochs=2)"])
def test_rows_that_an_algorithm_draws_are_refused_if_batches_are_filled_up(spec):
    engine = lanes_engine(worker(parse_algorithm(spec), norm="group"), 1)
    engine.lanes[0].trainer.fills = True
    with pytest.raises(InputError, match="stacks = False"):
        trained(engine)


def test_norms_of_batches_that_are_not_in_our_kernels_cannot_be_masked():
    assert not norms_can_be_masked(build_model("small-cnn", (1, 8, 8), 3, seed=0, norm="batch"))


@pytest.mark.gpu
@GPU
@pytest.mark.parametrize("spec", ALGORITHMS)
def test_on_a_gpu_lanes_equal_the_reference_up_to_rounding(spec):
    with torch_precision("fp32", torch.device("cuda")):  # PyTorch's default rounds convolutions to tf32
        (expected, _), (found, _) = both(spec, 3, device="cuda")
    assert_near(expected, found)


@pytest.mark.gpu
@GPU
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_on_a_gpu_two_runs_agree_bit_for_bit(precision):
    found = [both("fedavg", 3, device="cuda", precision=precision)[1][0] for _ in range(2)]
    assert_same(*found)


@pytest.mark.gpu
@GPU
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_on_a_gpu_eight_lanes_of_a_deep_network_begin_at_once(precision):
    """All lanes warm up and record at the same time, each for full batches and its own last batch."""
    device, sizes = torch.device("cuda"), [70 + client for client in range(8)]
    normalise = Normaliser.of((0.5,) * 3, (0.25,) * 3, device)

    def load(client):
        rng = np.random.default_rng(client)
        images = rng.integers(0, 256, (sizes[client], 3, 32, 32), dtype=np.uint8)
        return ClientData.of(images, rng.integers(0, 10, sizes[client]), normalise)

    found, train = [], TrainConfig(batch_size=64, epochs=6)
    for lanes in (8, 0):
        model = build_model("resnet18", (3, 32, 32), 10, seed=0).to(device)
        own = Worker(FedAvg(), model, load, np.zeros((8, 10), np.int64), None, train, 0, 2, precision)
        server = FedAvg().init(model, Fleet(np.array(sizes), 10))
        engine = LanesEngine(own, normalise, max(sizes), lanes)
        with torch_precision(precision, device):
            found.append(federate(FedAvg(), engine, server, Schedule(2, 8, 8, 0), lambda state: {}))
    assert_same(*found)
