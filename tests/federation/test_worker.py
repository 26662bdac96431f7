"""Images of clients are made in large requests, and a client's work depends on nothing but its place in the run."""

from dataclasses import replace

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedeas.algorithms import FedAvg, Reply
from fedeas.config import TrainConfig
from fedeas.data.client import ClientData, Normaliser
from fedeas.federation.engines.base import Task
from fedeas.federation.rounds import Schedule
from fedeas.federation.worker import BATCHES, Worker
from fedeas.models.build import build_model

MODEL = build_model("small-cnn", (1, 8, 8), 3, seed=0)
NORMALISE = Normaliser.of((0.5,), (0.25,), "cpu")


class Addressed:
    """Images that show their own address; notes how many images are asked for at once."""

    num_classes, shape = 3, (1, 8, 8)

    def __init__(self, batch_size):
        self.batch_size, self.requests = batch_size, []

    def sample(self, labels, index):
        self.requests.append(len(labels))
        codes = (100 * np.asarray(labels) + np.asarray(index) % 97).astype(np.uint8)
        return np.broadcast_to(codes[:, None, None, None], (len(codes), *self.shape)).copy()


def worker(allocation, batch_size, upcoming=()):
    def load(client):
        real = np.full((2, 1, 8, 8), client, dtype=np.uint8)
        return ClientData.of(real, np.array([0, 1]), NORMALISE)

    return Worker(
        FedAvg(), MODEL, load, allocation, Addressed(batch_size), TrainConfig(), 0, 5, upcoming=iter(upcoming)
    )


ALLOCATIONS = st.lists(st.lists(st.integers(0, 6), min_size=3, max_size=3), min_size=4, max_size=8).map(np.array)


@given(ALLOCATIONS, st.integers(1, 4), st.integers(0, 3), st.integers(1, 5))
def test_images_made_ahead_are_those_that_each_client_would_ask_for(allocation, participants, seed, batch_size):
    schedule = Schedule(5, len(allocation), participants, seed)
    plain, ahead = worker(allocation, batch_size), worker(allocation, batch_size, schedule.upcoming())
    for round in range(schedule.rounds):
        for each in (plain, ahead):
            each.prepare(schedule.clients(round))
    for client, expected in plain.clients.items():
        found = ahead.clients[client]
        assert torch.equal(found.images, expected.images)
        assert torch.equal(found.labels, expected.labels)
    assert sum(ahead.generator.requests) == sum(plain.generator.requests)
    assert all(size >= BATCHES * batch_size for size in ahead.generator.requests[:-1])  # the last may be smaller


class Drawing(FedAvg):
    """Replies with torch's random numbers."""

    def setup_client(self, job):
        return Reply(job.client, 1, {"drawn": torch.rand(4)})

    def client_update(self, job):
        return self.setup_client(job), {}


def test_random_numbers_of_torch_depend_on_seed_round_and_client_alone_and_stay_as_they_were():
    def drawn(before, **place):
        torch.manual_seed(before)
        own = replace(worker(np.zeros((4, 3), dtype=np.int64), 1), algorithm=Drawing(), seed=place.get("seed", 0))
        task, client, round = place.get("task", Task.TRAIN), place.get("client", 0), place.get("round", 0)
        reply, _ = own.run(task, client, round, {}, {})
        assert torch.initial_seed() == before
        assert torch.equal(torch.rand(4), torch.rand(4, generator=torch.Generator().manual_seed(before)))
        return reply.arrays["drawn"].tolist()

    with torch.random.fork_rng(devices=[]):
        places = [{}, {"seed": 1}, {"client": 1}, {"round": 1}, {"task": Task.SETUP, "round": -1}]
        first, again = ([drawn(before, **place) for place in places] for before in (1, 2))
    assert first == again
    assert len({tuple(numbers) for numbers in first}) == len(places)
