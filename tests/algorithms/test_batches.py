"""Which samples make up a client's batches, as laws over sizes and settings."""

from collections import Counter
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedeas.algorithms import FedAvg
from fedeas.algorithms.base import ClientJob, model_arrays
from fedeas.algorithms.local_sgd import plan_batches
from fedeas.config import TrainConfig
from fedeas.core.errors import InputError
from fedeas.data.client import ClientData, Normaliser
from fedeas.federation.worker import Worker
from fedeas.models.build import build_model

SIZES, BATCHES = st.integers(1, 70), st.integers(1, 24)
NORMALISE = Normaliser.of((0.5,), (0.25,))


def plan_of(labels, train):
    images = torch.zeros(len(labels), 1, 8, 8, dtype=torch.uint8)
    return plan_batches(ClientJob(0, 0, 0, 1, None, ClientData(images, labels, len(labels), NORMALISE), {}, {}, train))


def batches_of(size, train):
    plan = plan_of(torch.arange(size) % 3, train)
    batches = [plan.index[rows].tolist() for rows in plan.batches()]
    assert [*chain(*batches)] == plan.index.tolist()  # no gaps: recorded steps read consecutive rows
    assert all(len(drawn) == len(plan.index) for drawn in plan.drawn.values())
    return batches


def data_of(size, shape=(1, 8, 8)):
    rng = np.random.default_rng(size)
    return ClientData.of(rng.integers(0, 256, (size, *shape), dtype=np.uint8), rng.integers(0, 3, size), NORMALISE)


def job_of(size, train, model=None, shape=(1, 8, 8)):
    broadcast = {} if model is None else model_arrays(model)
    return ClientJob(2, 1, 0, 3, model, data_of(size, shape), broadcast, {}, train)


@given(SIZES, BATCHES, st.integers(1, 3))
def test_an_epoch_holds_every_image_once_except_a_single_last_one(size, batch, epochs):
    batches = batches_of(size, TrainConfig(batch_size=batch, epochs=epochs))
    alone = size > batch > 1 and size % batch == 1
    in_epoch = len(batches) // epochs
    assert in_epoch * epochs == len(batches)
    for epoch in range(epochs):
        part = batches[epoch * in_epoch : (epoch + 1) * in_epoch]
        assert all(len(each) == batch for each in part[:-1])
        seen = Counter(chain(*part))
        if size == 1 < batch:
            assert part == [[0, 0]]
        else:
            assert set(seen.values()) == {1}
            assert len(seen) == size - alone
    assert batch == 1 or min(map(len, batches)) > 1


def test_another_image_is_left_out_in_each_epoch():
    batches = batches_of(9, TrainConfig(batch_size=4, epochs=20))
    left_out = {(set(range(9)) - set(one + two)).pop() for one, two in zip(batches[::2], batches[1::2], strict=True)}
    assert len(left_out) > 5


@given(SIZES, BATCHES, st.integers(1, 9), st.integers(1, 3))
def test_equal_steps_give_every_client_the_same_work(size, batch, steps, epochs):
    batches = batches_of(size, TrainConfig(batch_size=batch, steps=steps, epochs=epochs))
    assert list(map(len, batches)) == [batch] * steps
    seen = list(chain(*batches))
    times = [seen.count(place) for place in range(size)]
    assert max(times) - min(times) <= 1
    for start in range(0, len(seen), size):  # passes, one after the other
        assert len(set(seen[start : start + size])) == len(seen[start : start + size])


@given(SIZES, BATCHES, st.integers(1, 3), st.integers(0, 4), st.sampled_from(["none", "flip", "crop-flip"]))
def test_a_job_counts_what_its_plan_holds(size, batch, epochs, steps, augment):
    job = job_of(size, TrainConfig(batch_size=batch, epochs=epochs, steps=steps, augment=augment))
    plan = plan_batches(job)
    assert job.steps == len(list(plan.batches()))
    assert job.samples_seen == len(plan.index) == sum(rows.stop - rows.start for rows in plan.batches())


@pytest.mark.parametrize("size", [1, 65])
def test_batch_norm_over_single_pixels_trains_on_every_size_of_client(size):
    """The last feature maps of this network are 1x1, and 65 samples leave one over after a batch of 64."""
    model = build_model("resnet18", (1, 8, 8), 3, seed=0, stem="imagenet")
    job = job_of(size, TrainConfig(batch_size=64, epochs=1), model)
    reply, _ = FedAvg().client_update(job)
    assert all(tensor.isfinite().all() for tensor in reply.arrays.values())


def test_batches_of_one_image_are_refused_with_batch_norm_and_trained_without():
    train, nothing = TrainConfig(batch_size=1, epochs=1), np.zeros((1, 3), int)
    nets = {norm: build_model("small-cnn", (1, 8, 8), 3, seed=0, norm=norm) for norm in ("batch", "group")}
    with pytest.raises(InputError, match=r"train\.batch_size=1: .* model\.norm"):
        Worker(FedAvg(), nets["batch"], lambda client: data_of(5), nothing, None, train, 0, 1)
    Worker(FedAvg(), nets["group"], lambda client: data_of(5), nothing, None, train, 0, 1)
    reply, _ = FedAvg().client_update(job_of(5, train, nets["group"]))
    assert reply.metrics["steps"] == 5


@given(st.lists(st.sampled_from([0, 0, 0, 0, 1, 5]), min_size=2, max_size=60), BATCHES, st.integers(1, 3),
       st.sampled_from([0, 4]))  # fmt: skip
def test_balanced_sampling_shows_each_class_equally_often_in_as_many_batches(labels, batch, epochs, steps):
    usual = TrainConfig(batch_size=batch, epochs=epochs, steps=steps)
    balanced = usual.model_copy(update={"sampling": "balanced"})
    table, plans = np.array(labels), []
    for train in (usual, balanced):
        plans.append(plan_of(torch.tensor(labels), train))
    assert plans[0].sizes == plans[1].sizes
    for part in np.split(plans[1].index.numpy(), 1 if steps else epochs):
        seen = np.array([(table[part] == label).sum() for label in np.unique(table)])
        assert seen.max() - seen.min() <= 1
        for label in np.unique(table):  # no sample comes again before all others of its class
            times = np.bincount(part, minlength=table.size)[table == label]
            assert times.max() - times.min() <= 1
