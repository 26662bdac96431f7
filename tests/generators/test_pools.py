"""One pool for all clients, and real images that no client holds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedeas import InputError
from fedeas.config import load_config
from fedeas.data.sources import load_dataset
from fedeas.federation.run import execute, identified
from fedeas.federation.split import set_aside, split_data
from fedeas.generators.base import address_noise, image_index, plan_addresses
from fedeas.generators.kinds import GeneratorContext, HeldOut, parse_generator
from fedeas.generators.pools import HeldOutImages, SharedPool, distinct_in_pool, numbers_in_pool
from fedeas.runs.store import RunStore

SHAPE = (1, 2, 2)


class Noise:
    """The image of an address is its noise as bytes. Counts the images made."""

    num_classes, shape, batch_size, fingerprint = 3, SHAPE, 8, "noise"

    def __init__(self):
        self.made = 0

    def sample(self, labels, index):
        self.made += len(labels)
        return (address_noise(labels, index, 4) * 40 + 128).clip(0, 255).astype(np.uint8).reshape(-1, *SHAPE)


addresses = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50), st.integers(0, 9)), min_size=1, max_size=30)


def asked(addresses):
    labels, clients, numbers = np.array(addresses).T
    return labels, (clients << 32) + numbers


@given(addresses)
def test_a_pool_gives_every_client_the_same_image_and_makes_it_once(addresses):
    source = Noise()
    images = SharedPool(source).sample(*asked(addresses))
    assert source.made == len({(label, number) for label, _, number in addresses})
    alone = Noise().sample(*asked([(label, 0, number) for label, _, number in addresses]))
    assert np.array_equal(images, alone)


plans = arrays(np.int64, st.tuples(st.integers(1, 12), st.integers(1, 4)), elements=st.integers(0, 9))


@given(plans, st.integers(9, 40))
def test_a_client_gets_different_images_of_a_pool_of_fixed_size(plan, each):
    for client, row in enumerate(plan):
        labels, index = plan_addresses(client, row)
        numbers = numbers_in_pool(index, each)
        assert ((numbers >= 0) & (numbers < each)).all()
        assert len({*zip(labels.tolist(), numbers.tolist(), strict=True)}) == row.sum()


@given(plans, st.integers(9, 40) | st.just(0))
def test_the_images_that_a_plan_takes_from_a_pool_are_counted_class_by_class(plan, each):
    taken = {
        (label, number)
        for client, row in enumerate(plan)
        for label, index in zip(*plan_addresses(client, row), strict=True)
        for number in [int(numbers_in_pool(index, each))]
    }
    by_class = [sum(label == known for known, _ in taken) for label in range(plan.shape[1])]
    assert distinct_in_pool(plan, each).tolist() == by_class


@given(st.integers(1, 300), st.integers(1, 500), st.integers(1, 500))
def test_clients_that_take_twice_the_pool_together_use_all_of_it(clients, number, each):
    assume(number <= each and clients * number >= 2 * each + clients)
    assert distinct_in_pool(np.full((clients, 1), number), each) == [each]


def test_a_pool_of_fixed_size_is_named_by_its_size_and_refuses_a_client_that_needs_more(tmp_path):
    assert len({SharedPool(Noise(), each).fingerprint for each in (0, 5, 6)}) == 3
    with pytest.raises(InputError, match="the pool has 2"):
        execute(config("generator=shared(of=gaussian, each=2)"), RunStore(tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()
    with pytest.raises(InputError, match="each must be"):
        config("generator=shared(of=gaussian, each=-1)")


REAL = np.arange(24, dtype=np.uint8).reshape(6, *SHAPE)
CLASSES = np.array([0, 1, 2, 0, 1, 0])


@given(addresses)
def test_held_out_images_have_the_requested_class_and_depend_on_their_address_alone(addresses):
    source = HeldOutImages(REAL, CLASSES, 3)
    images = source.sample(*asked(addresses))
    for address, image in zip(addresses, images, strict=True):
        assert np.array_equal(source.sample(*asked([address]))[0], image)
        (place,) = np.flatnonzero((image == REAL).all(axis=(1, 2, 3)))
        assert CLASSES[place] == address[0]


def test_a_client_gets_each_held_out_image_once_before_any_repeats():
    source = HeldOutImages(REAL, CLASSES, 3)
    for client in range(5):
        images = source.sample(np.zeros(6, np.int64), image_index(client, 6))
        assert len(np.unique(images[:3].reshape(3, -1), axis=0)) == 3
        assert np.array_equal(images[:3], images[3:])


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=5))
def test_disjoint_held_out_images_are_used_equally_often(plan):
    plan = np.array(plan)
    source = HeldOutImages(REAL, CLASSES, 3, plan)
    for label in range(3):
        members = REAL[label == CLASSES]
        index = np.concatenate([image_index(client, taken) for client, taken in enumerate(plan[:, label])])
        images = source.sample(np.full(index.size, label), index)
        uses = [(images == each).all(axis=(1, 2, 3)).sum() for each in members]
        assert sum(uses) == plan[:, label].sum()
        assert max(uses) - min(uses) <= 1


def test_disjoint_images_need_the_plan_of_all_clients():
    context = GeneratorContext("real", REAL, CLASSES, ("a", "b", "c"), held_out=(REAL, CLASSES))
    source = parse_generator("held-out(disjoint=true)")
    assert [parse_generator(each.spec) for each in (source, HeldOut())] == [source, HeldOut()]
    assert HeldOut().spec == "held-out"  # runs are known by it
    with pytest.raises(InputError, match="plan of all clients"):
        source.ready(context)
    plans = np.eye(3, dtype=np.int64), np.ones((2, 3), dtype=np.int64)
    assert len({source.ready(replace(context, plan=plan)).fingerprint for plan in plans}) == 2


@given(
    st.lists(st.integers(0, 3), min_size=20, max_size=60).filter(lambda labels: min(map(labels.count, range(4))) > 2)
)
def test_held_out_samples_are_balanced_and_no_client_gets_them(labels):
    given_out, aside = set_aside(np.array(labels), 8)
    assert sorted([*given_out, *aside]) == list(range(len(labels)))
    assert np.bincount(np.array(labels)[aside]).tolist() == [2, 2, 2, 2]


BASE = [
    "train.lr=0.05",
    "train.epochs=1",
    "rounds.total=2",
    "partition.clients=4",
    "engine.threads=1",
    "policy=fedeas(beta=4)",
]


def config(*overrides):
    return load_config(None, [*BASE, *overrides])


def test_no_client_of_a_run_has_a_held_out_image():
    chosen, digits = config("data.held_out=200"), load_dataset("digits")
    data = split_data(chosen, digits)
    _, aside = set_aside(digits.labels, 200)
    images, labels = digits.images[aside], digits.labels[aside]
    assert data.counts.total == len(digits.labels) - 200
    assert np.bincount(labels).tolist() == [20] * 10
    everyone = {image.tobytes() for image in data.images}
    assert sum(image.tobytes() in everyone for image in images) <= 1  # digits have hardly any doubles


@pytest.mark.parametrize("generator", ["held-out", "held-out(disjoint=true)", "shared(of=gaussian)"])
def test_runs_train_on_images_of_a_pool(generator, tmp_path):
    run = execute(config("data.held_out=200", f"generator={generator}"), RunStore(tmp_path))
    assert run.summary()["generated"] > 0
    assert (run.summary()["images"] is None) == generator.startswith("held-out")


@pytest.mark.parametrize("each", [0, 60])
def test_the_pool_of_a_run_keeps_each_image_once(each, tmp_path):
    chosen = config(f"generator=shared(of=gaussian, each={each})", "rounds.participation=1")
    run = execute(chosen, RunStore(tmp_path))
    _, plan = run.allocation()
    assert run.summary()["images"]["made"] == distinct_in_pool(plan.n, each).sum() < plan.total


def test_the_held_out_generator_needs_held_out_images(tmp_path):
    with pytest.raises(InputError, match=r"data\.held_out"):
        execute(config("generator=held-out"), RunStore(tmp_path / "runs"))
    with pytest.raises(InputError, match="multiple of 10"):
        identified(config("data.held_out=7"))
    with pytest.raises(InputError, match="clean"):
        config("data.held_out=10", "data.protocol=paper", "partition.scheme=paper")
    assert not (tmp_path / "runs").exists()


def test_clients_of_a_plan_share_the_images_of_the_pool():
    pool = SharedPool(Noise())
    one, other = (pool.sample(*plan_addresses(client, np.array([2, 0, 3]))) for client in (0, 7))
    assert np.array_equal(one, other)
