"""The filter returns the j-th image that the classifier agrees with, for any requests in any order."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedeas.core.errors import InputError, RunError
from fedeas.generators import image_index
from fedeas.generators.base import noise_keys
from fedeas.generators.filtered import PATIENCE, Filtered


@dataclass(frozen=True, eq=False)
class Source:
    """Eight bytes of an address's hash as an image; records the requests."""

    num_classes: int = 3
    shape: tuple[int, int, int] = (2, 2, 2)
    batch_size: int = 7
    fingerprint: str = "source"
    calls: list[int] = field(default_factory=list)

    def sample(self, labels, index):
        self.calls.append(len(labels))
        return noise_keys(np.asarray(labels), np.asarray(index)).view(np.uint8).reshape(-1, *self.shape)


@dataclass(frozen=True)
class Picky:
    """Sees class 0 in many images, the others in fewer."""

    num_classes: int = 3
    shape: tuple[int, int, int] = (2, 2, 2)
    fingerprint: str = "picky"
    bounds: tuple[int, ...] = (160, 230)

    def predict(self, images):
        return np.digitize(images.reshape(len(images), -1)[:, 3], self.bounds)


def brute_force(label, number, bounds=Picky.bounds):
    client, place = divmod(number, 2**32)
    raw = image_index(client, 100 * (place + 2))
    images = Source().sample(np.full(raw.size, label), raw)
    return images[Picky(bounds=bounds).predict(images) == label][place]


def sampled(filtered, pairs):
    labels, index = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return filtered.sample(labels, index)


numbers = st.builds(lambda client, place: (client << 32) + place, st.integers(0, 2), st.integers(0, 9))
addresses = st.lists(st.tuples(st.integers(0, 2), numbers), max_size=12)


@given(st.lists(addresses, max_size=4), st.integers(1, 40))
def test_the_filter_equals_its_definition_after_any_requests(requests, batch_size):
    source = Source(batch_size=batch_size)
    filtered = Filtered(source, Picky())
    for pairs in requests:
        expected = [brute_force(*pair) for pair in pairs]
        assert np.array_equal(sampled(filtered, pairs), np.array(expected, dtype=np.uint8).reshape(-1, 2, 2, 2))
    assert len(filtered._unused) <= batch_size


@given(addresses.filter(len), st.randoms(use_true_random=False))
def test_images_do_not_depend_on_order_repetition_and_batches(pairs, random):
    images = sampled(Filtered(Source(), Picky()), pairs)
    chosen = random.choices(range(len(pairs)), k=len(pairs))
    one_by_one = Filtered(Source(batch_size=random.randint(1, 30)), Picky())
    again = [sampled(one_by_one, [pairs[place]])[0] for place in chosen]
    assert np.array_equal(again, images[chosen])


def test_few_more_images_are_drawn_than_the_classifier_makes_necessary():
    source = Source(num_classes=2, batch_size=100)
    filtered = Filtered(source, Picky(num_classes=2, bounds=(160,)))
    asked = np.repeat([0, 1], 200), np.tile(image_index(5, 200), 2)
    filtered.sample(*asked)
    judged = filtered._judged.copy()
    assert 200 / 0.625 + 200 / 0.375 < sum(source.calls) + 100 < 1200
    assert sum(source.calls) == judged.sum()  # nothing is drawn twice
    assert np.abs(filtered._agreed / judged - [160 / 256, 96 / 256]).max() < 0.1
    assert max(source.calls) <= 100
    filtered.sample(*asked)
    assert np.array_equal(filtered._judged, judged)  # drawn again, but not judged again


def test_accepted_images_left_over_are_used_by_the_next_call():
    source = Source(batch_size=64)
    filtered = Filtered(source, Picky())
    filtered.sample(np.zeros(40, dtype=np.int64), image_index(0, 40))
    ahead = len(filtered._unused)
    assert ahead > 0
    calls = len(source.calls)
    images = filtered.sample(np.zeros(ahead, dtype=np.int64), image_index(0, ahead, start=40))
    assert len(source.calls) == calls
    assert np.array_equal(images[-1], brute_force(0, 40 + ahead - 1))


def test_a_class_that_is_hardly_ever_agreed_with_stops_the_run(monkeypatch):
    monkeypatch.setattr("fedeas.generators.filtered.LIMIT", 5)
    filtered = Filtered(Source(), Picky(bounds=(160, 256)))
    filtered.sample([0, 1], [0, 0])
    with pytest.raises(
        RunError, match=r"class 2: the classifier agrees with 0 of 5\d generated images, fewer than one"
    ):
        filtered.sample([2, 0], [0, 1])
    assert filtered._judged[2] < PATIENCE * 5 + 7
    assert np.array_equal(filtered.sample([0], [3])[0], brute_force(0, 3, bounds=(160, 256)))


def test_a_class_within_the_limit_does_not_stop_the_run():
    filtered = Filtered(Source(), Picky(bounds=(200, 250)))
    images = filtered.sample(np.full(40, 2), image_index(0, 40))
    assert np.array_equal(images[39], brute_force(2, 39, bounds=(200, 250)))


def test_the_filter_has_the_properties_of_its_generator():
    filtered = Filtered(Source(), Picky())
    assert (filtered.num_classes, filtered.shape, filtered.batch_size) == (3, (2, 2, 2), 7)
    assert filtered.sample([], []).shape == (0, 2, 2, 2)
    assert filtered.sample([1], [0]).dtype == np.uint8


def test_the_fingerprint_depends_on_generator_and_classifier():
    first = Filtered(Source(), Picky()).fingerprint
    assert first == Filtered(Source(batch_size=9), Picky()).fingerprint
    others = Filtered(Source(fingerprint="other"), Picky()), Filtered(Source(), Picky(fingerprint="other"))
    assert len({first, *(other.fingerprint for other in others)}) == 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: Filtered(Source(), Picky(num_classes=4)),
            "the generator has 3 classes, the classifier 4; they are of different datasets",
        ),
        (
            lambda: Filtered(Source(), Picky(shape=(1, 2, 4))),
            "the generator's images are (2, 2, 2), the classifier's (1, 2, 4); they must be the same",
        ),
        (lambda: Filtered(Source(), Picky()).sample([3], [0]), "label 3 is not between 0 and 2"),
        (
            lambda: Filtered(Source(), Picky()).sample([1], [-1]),
            "index -1 is below 0; use image_index(client, count)",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(call, message):
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == message
