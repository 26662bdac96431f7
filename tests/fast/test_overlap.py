"""An engine that overlaps lets the host read a round's results while the next clients train; nothing else changes."""

import copy
import threading
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from federation.engines.six_clients import GPU, SHAPE, SIZES, assert_same, normaliser, worker
from waiting import LIMIT

from fedeas.algorithms import FedAvg, parse_algorithm
from fedeas.algorithms.base import Fleet, Reply
from fedeas.core.errors import RunError
from fedeas.data.client import Normaliser
from fedeas.fast import fused, overlap
from fedeas.fast.fused import FusedSGD
from fedeas.fast.fusion import FusionEngine, awaited
from fedeas.fast.overlap import federate
from fedeas.federation import rounds
from fedeas.federation.engines.base import Task
from fedeas.federation.metrics import Evaluation, gamma_hat
from fedeas.federation.rounds import Schedule, set_up
from fedeas.models.build import parameter_names

ROUNDS = 4
SCHEDULE = Schedule(ROUNDS, len(SIZES), 3, 0)


def told(loop, overlaps, end_after, device):
    """The record, the state and the clients' states at each call of `on_round`, and the loop's result."""
    own = worker(parse_algorithm("scaffold"), device=device)
    engine, model = FusionEngine(own, SHAPE, normaliser(own), max(SIZES), 3), copy.deepcopy(own.model)
    engine.overlaps = overlaps
    data = own.load_client(5)
    test = Evaluation(model, data.images, data.labels, 3, data.normalise)
    names, seen = parameter_names(model), []

    def on_round(record, state):
        states = {client: dict(arrays) for client, arrays in engine.client_states().items()}
        record.pop("seconds")
        seen.append((record, state, copy.deepcopy(states)))
        return record["round"] == end_after

    server = own.algorithm.init(own.model, Fleet(np.array(SIZES), 3))
    server = set_up(own.algorithm, engine, server, len(SIZES))
    try:
        probes = {"gamma_hat": partial(gamma_hat, trainable=names)}
        server = loop(own.algorithm, engine, server, SCHEDULE, test, probes, on_round)
    finally:
        engine.close()
    return seen, server


def assert_same_told(one, other):
    assert [record for record, *_ in one] == [record for record, *_ in other]
    for (_, state, clients), (_, its_state, its_clients) in zip(one, other, strict=True):
        assert_same(state, its_state)
        assert clients.keys() == its_clients.keys()
        for client, arrays in clients.items():
            assert_same(arrays, its_clients[client])


@pytest.mark.parametrize("end_after", [1, 2, ROUNDS])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
def test_records_states_and_result_are_the_same_to_the_bit(end_after, device):
    one, result = told(rounds.federate, False, end_after, device)
    assert len(one) == end_after
    for overlaps in (False, True):
        other, its_result = told(federate, overlaps, end_after, device)
        assert_same_told(one, other)
        assert_same(result, its_result)


class Grey:
    """A generator of grey images."""

    batch_size = 1

    def sample(self, labels, index):
        return np.full((len(labels), *SHAPE), 128, dtype=np.uint8)


class NoTest:
    """A test of the model that measures nothing."""

    def totals(self, state):
        return torch.zeros(1)

    def record(self, totals):
        return {}


def train_and_note(overlaps, note, load=lambda client, usual: usual(client), makes_images=False, lr=None):
    """Train for all rounds without states or tests; `note` gets each record."""
    own = worker(FedAvg())
    if makes_images:
        own.generator, own.allocation = Grey(), np.ones((len(SIZES), 3), dtype=np.int64)
    own.train = own.train.model_copy(update={"lr": lr} if lr else {})
    usual = own.load_client
    own.load_client = lambda client: load(client, usual)
    engine = FusionEngine(own, SHAPE, Normaliser.of((0.5,), (0.25,)), max(SIZES) + 3, 3)
    engine.overlaps = overlaps
    server = own.algorithm.init(own.model, Fleet(np.array(SIZES), 3))
    try:
        federate(FedAvg(), engine, server, SCHEDULE, NoTest(), {}, lambda record, _: note(record))
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("makes_images", "expected"),
    [
        (False, ["launch 1", "launch 2", "tell 1", "launch 3", "tell 2", "launch 4", "tell 3", "tell 4"]),
        (True, ["launch 1", "tell 1", "launch 2", "launch 3", "tell 2", "tell 3", "launch 4", "tell 4"]),
    ],
)
def test_a_round_is_told_when_the_next_one_has_been_launched_or_before_it_gets_new_images(
    monkeypatch, makes_images, expected
):
    order, launch = [], FusedSGD.__call__

    def noted(self, jobs, objectives):
        order.append(f"launch {jobs[0].round + 1}")
        return launch(self, jobs, objectives)

    monkeypatch.setattr(FusedSGD, "__call__", noted)
    train_and_note(True, lambda record: order.append(f"tell {record['round']}"), makes_images=makes_images)
    assert order == expected


@pytest.mark.parametrize(("overlaps", "waits"), [(False, ROUNDS), (True, 1)])
def test_the_seconds_of_all_rounds_add_up_to_those_of_the_loop(monkeypatch, overlaps, waits):
    """The clock advances by one at each reading; `on_round` belongs to no round if the loop waits for it."""
    times = []

    def look():
        times.append(float(len(times)))
        return times[-1]

    for module in (rounds, overlap):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=look))
    told = []
    train_and_note(overlaps, lambda record: told.append(record["seconds"]))
    assert sum(sum(seconds.values()) for seconds in told) == pytest.approx(times[-1] - waits)
    looks = 1 if overlaps else 2  # while clients still train, the start of a test is part of their time
    assert all((seconds["evaluate"], seconds["probe"]) == (looks, looks) for seconds in told)


@pytest.mark.parametrize("overlaps", [False, True])
def test_if_clients_fail_the_round_before_is_told_nevertheless(overlaps):
    numbers = []

    def load(client, usual):
        if client not in SCHEDULE.clients(0):
            raise RunError("no data")
        return usual(client)

    with pytest.raises(RunError, match="no data"):
        train_and_note(overlaps, lambda record: numbers.append(record["round"]), load)
    assert numbers == [1]


class Idle(FedAvg):
    """Its clients send nothing and do not train."""

    def client_update(self, job):
        return Reply(job.client, weight=1, arrays={}), {}


@pytest.mark.parametrize("overlaps", [False, True])
def test_an_engine_that_overlaps_does_not_wait_for_the_losses(monkeypatch, overlaps):
    """The losses can be read only after `known`, as if a GPU still computed them."""
    asked, known, returned = threading.Event(), threading.Event(), threading.Event()

    def read(values):
        asked.set()
        assert known.wait(LIMIT)
        return values.tolist()

    monkeypatch.setattr(fused, "values_of", lambda values: partial(read, values))
    engine, replies = FusionEngine(worker(FedAvg()), SHAPE, Normaliser.of((0.5,), (0.25,)), max(SIZES), 3), []
    engine.overlaps = overlaps
    broadcast = FedAvg().init(engine.worker.model, Fleet(np.array(SIZES), 3))

    def train():
        replies.extend(engine.map(Task.TRAIN, broadcast, [0, 1, 2], 0))
        returned.set()

    training = threading.Thread(target=train, daemon=True)
    training.start()
    assert (returned if overlaps else asked).wait(LIMIT)
    assert (asked.is_set(), returned.is_set()) == (not overlaps, overlaps)
    known.set()
    training.join(LIMIT)
    engine.close()
    assert all(np.isfinite(float(awaited(reply).metrics["loss"])) for reply in replies)
    assert len(replies) == 3


def test_a_loss_that_is_not_finite_ends_the_run_also_if_it_is_read_later():
    told = []
    with pytest.raises(RunError, match=r"round \d: the loss is"):
        train_and_note(True, told.append, lr=1e30)
    assert told == []


def test_clients_that_do_not_train_keep_nobody_waiting():
    engine = FusionEngine(worker(Idle()), SHAPE, Normaliser.of((0.5,), (0.25,)), max(SIZES), 3)
    done, replies = [], []
    engine.meanwhile = lambda: done.append("meanwhile")
    mapping = threading.Thread(target=lambda: replies.extend(engine.map(Task.TRAIN, {}, [0, 1, 2], 0)), daemon=True)
    mapping.start()
    mapping.join(LIMIT)
    assert [reply.client for reply in replies] == [0, 1, 2]
    assert done == ["meanwhile"]
    engine.close()
