"""Clients that send their sums fit the generator of their pooled images, bit for bit, however they share the images."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedeas import InputError
from fedeas.algorithms.base import ClientJob, Fleet, Reply
from fedeas.config.generators import Gaussian
from fedeas.config.sections import TrainConfig
from fedeas.core.provenance import Seen
from fedeas.data.client import ClientData, Normaliser
from fedeas.data.sources import load_dataset
from fedeas.federation.gaussian_sums import SUMS, GaussianSums
from fedeas.federation.rounds import Schedule, federate
from fedeas.federation.worker import LocalEngine, Worker
from fedeas.generators import GaussianGenerator
from fedeas.generators.gaussian import SumNoise
from fedeas.generators.kinds import GeneratorContext, parse_generator

NAMES, SHAPE = ("cat", "dog", "frog"), (3, 4, 2)
ALGORITHM = GaussianSums(Gaussian(components=5, basis="dct"), SHAPE, NAMES)


def some(count, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(3), rng.integers(0, 3, count - 3)])
    return rng.integers(0, 256, (count, *SHAPE), dtype=np.uint8), labels


def pooled(images, labels, **settings):
    return GaussianGenerator.fit(images, labels, len(NAMES), class_names=NAMES, basis="dct", **settings)


def data_of(images, labels):
    channels = images.shape[1]
    return ClientData.of(images, labels, Normaliser.of((0.5,) * channels, (0.2,) * channels, "cpu"))


def fitted(algorithm, clients):
    """The generator after a round of the reference engine; each client is a pair of images and labels."""
    data, nothing = [data_of(*own) for own in clients], np.zeros((len(clients), 1), np.int64)
    model, sizes = nn.Identity(), np.array([len(own) for own in data])
    worker = Worker(algorithm, model, data.__getitem__, nothing, None, TrainConfig(), 0, 1)
    server = algorithm.init(model, Fleet(sizes, len(algorithm.class_names)))
    schedule = Schedule(1, len(clients), len(clients), seed=0)
    return algorithm.result(federate(algorithm, LocalEngine(worker), server, schedule, lambda server: {}))


@settings(max_examples=25, deadline=None)
@given(st.integers(3, 30), st.lists(st.integers(0, 6), min_size=30, max_size=30))
def test_any_split_over_clients_gives_the_generator_of_the_pooled_images(count, owners):
    images, labels = some(count)
    owner = np.array(owners[:count])
    clients = [(images[owner == client], labels[owner == client]) for client in np.unique(owner)]
    assert fitted(ALGORITHM, clients).fingerprint == pooled(images, labels, components=5).fingerprint


@pytest.mark.parametrize("by", ["class", "image"])
def test_clients_that_hold_one_class_or_one_image(by):
    images, labels = some(12)
    owner = labels if by == "class" else np.arange(12)
    clients = [(images[owner == client], labels[owner == client]) for client in np.unique(owner)]
    assert fitted(ALGORITHM, clients).fingerprint == pooled(images, labels, components=5).fingerprint


def test_digits_of_ten_clients_give_the_pooled_generator():
    data = load_dataset("digits")
    algorithm = GaussianSums(Gaussian(shrinkage=0.3), data.shape, data.classes)
    parts = np.array_split(np.argsort(data.labels, kind="stable"), 10)
    made = fitted(algorithm, [(data.images[part], data.labels[part]) for part in parts])
    whole = GaussianGenerator.fit(data.images, data.labels, 10, shrinkage=0.3, basis="dct")
    assert made.fingerprint == whole.fingerprint
    assert made.class_names == data.classes


def sums(seed):
    rng = np.random.default_rng(seed)
    return Reply(seed, 1, {SUMS: torch.from_numpy(rng.integers(-(2**40), 2**40, (3, 21)))})


@given(st.permutations(range(6)), st.integers(1, 5))
def test_adding_is_commutative_and_associative(order, cut):
    def added(replies):
        return ALGORITHM.server_update({}, replies, 0)[SUMS]

    replies = [sums(seed) for seed in order]
    parts = [Reply(9, 1, {SUMS: added(part)}) for part in (replies[:cut], replies[cut:])]
    assert torch.equal(added(parts), added([sums(seed) for seed in range(6)]))


def job(images, labels, **more):
    data = data_of(images, labels)
    nothing = {"broadcast": {}, "state": {}, "train": TrainConfig(), **more}
    return ClientJob(client=4, round=0, seed=0, total_rounds=1, model=nn.Identity(), data=data, **nothing)


def test_a_client_sends_sums_of_its_real_images_alone():
    images, labels = some(9)
    own = job(images, labels)
    both = replace(own, data=own.data.joined(*some(5, seed=1)))
    replies = [ALGORITHM.client_update(each)[0] for each in (own, both)]
    assert list(replies[0].arrays) == [SUMS]
    assert torch.equal(replies[0].arrays[SUMS], replies[1].arrays[SUMS])
    assert [reply.weight for reply in replies] == [9, 9]
    sent = ALGORITHM.init(nn.Identity(), Fleet(np.array([9]), 3))[SUMS]
    assert (sent.shape, sent.dtype) == (replies[0].arrays[SUMS].shape, replies[0].arrays[SUMS].dtype)


def test_noise_of_a_node_is_in_its_sums_and_new_in_each():
    images, labels = some(9)
    private = replace(ALGORITHM, noise=SumNoise(clip=2000.0, noise=1e-9))
    exact, hidden = (each.client_update(job(images, labels))[0].arrays[SUMS] for each in (ALGORITHM, private))
    assert torch.equal(exact[:, :6], hidden[:, :6])  # noise so small is rounded away
    private = replace(ALGORITHM, noise=SumNoise(clip=2000.0, noise=1.0))
    drawn = [private.client_update(job(images, labels))[0].arrays[SUMS] for _ in range(2)]
    assert not torch.equal(drawn[0], drawn[1])
    assert drawn[0].dtype == torch.int64


def test_a_class_that_no_client_has_is_refused():
    images, labels = some(9)
    clients = [(images[labels == label], labels[labels == label]) for label in (0, 2)]
    with pytest.raises(InputError, match=r"class 1 \(dog\) has no images"):
        fitted(ALGORITHM, clients)


def test_a_basis_larger_than_the_images_is_refused_before_the_round():
    with pytest.raises(InputError, match="components must be between 1 and the 24 pixels, not 32"):
        replace(ALGORITHM, settings=Gaussian()).init(nn.Identity(), Fleet(np.full(2, 9), 3))


def test_more_images_than_can_be_added_exactly_are_refused_before_the_round():
    with pytest.raises(InputError, match="too many for exact sums"):
        ALGORITHM.init(nn.Identity(), Fleet(np.full(1000, 10**8), 3))


def test_the_result_is_saved_as_a_file_for_runs(tmp_path):
    data = load_dataset("digits")
    algorithm = GaussianSums(Gaussian(components=16), data.shape, data.classes)
    made = fitted(algorithm, [(data.images[half::2], data.labels[half::2]) for half in (0, 1)])
    made.save(tmp_path / "g.safetensors", Seen.under("clean", "digits"))
    context = GeneratorContext(data.name, data.images, data.labels, data.classes)
    loaded = parse_generator(f'gaussian(weights="{tmp_path}/g.safetensors")').ready(context)
    fitted_here = parse_generator('gaussian(components=16, basis="dct")').ready(context)
    assert loaded.fingerprint == made.fingerprint == fitted_here.fingerprint
    assert parse_generator('gaussian(components=16, basis="dct")').spec == "gaussian(components=16, basis=dct)"
