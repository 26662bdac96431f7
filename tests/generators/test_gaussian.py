"""One address gives one image in any batch, and the Gaussians have the fitted moments."""

import hashlib
from contextlib import nullcontext
from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from fedeas import InputError
from fedeas.core import arrays
from fedeas.core.provenance import Seen
from fedeas.data.sources import load_dataset
from fedeas.generators import GaussianGenerator, image_index
from fedeas.generators import gaussian as module
from fedeas.generators.base import NOISE_STEPS, address_noise, client_of, number_of, plan_addresses
from fedeas.generators.kinds import GeneratorContext, parse_generator

PIXELS, LABELS = load_digits(return_X_y=True)
DIGITS = np.rint(PIXELS * 255 / 16).astype(np.uint8).reshape(-1, 1, 8, 8)
TRAIN, TEST = np.arange(len(LABELS)) % 5 > 0, np.arange(len(LABELS)) % 5 == 0
GENERATOR = GaussianGenerator.fit(DIGITS[TRAIN], LABELS[TRAIN], 10)

addresses = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2**63 - 1)), min_size=1, max_size=60)


def sampled(pairs, generator=GENERATOR):
    labels, index = np.array(pairs).T
    return generator.sample(labels, index)


def small_colour(num_classes=3, each=20, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(num_classes), each)
    images = rng.normal(60 + 60 * labels[:, None, None, None], 25, (labels.size, 3, 5, 4))
    return np.clip(images, 0, 255).astype(np.uint8), labels


@given(addresses, st.randoms(use_true_random=False))
def test_images_do_not_depend_on_order_and_repetition(pairs, random):
    images = sampled(pairs)
    shuffled = random.choices(range(len(pairs)), k=len(pairs))
    assert np.array_equal(sampled([pairs[i] for i in shuffled]), images[shuffled])


@given(addresses, st.lists(st.integers(1, 59), max_size=5))
def test_images_do_not_depend_on_batches(pairs, cuts):
    edges = sorted({0, len(pairs), *(cut for cut in cuts if cut < len(pairs))})
    parts = [sampled(pairs[start:stop]) for start, stop in pairwise(edges)]
    assert np.array_equal(np.concatenate(parts), sampled(pairs))


@pytest.mark.parametrize("batch", [1, 2, 3, 5, 8, 13, 16, 31, 64, 100, 257, 1000])
def test_every_batch_size_gives_the_same_bytes(batch):
    images, labels = small_colour()
    for generator in (GENERATOR, GaussianGenerator.fit(images, labels, 3, components=60)):
        classes = np.arange(1000) % generator.num_classes
        index = image_index(client=3, count=1000)
        whole = generator.sample(classes, index)
        parts = [generator.sample(classes[i : i + batch], index[i : i + batch]) for i in range(0, 1000, batch)]
        assert np.array_equal(np.concatenate(parts), whole)


def test_images_do_not_depend_on_blocks_and_threads(monkeypatch):
    labels, index = np.arange(500) % 10, image_index(0, 500)
    whole = GENERATOR.sample(labels, index)
    monkeypatch.setattr(arrays, "BLOCK_CELLS", 64 * 7)
    monkeypatch.setattr(arrays, "THREADED_CELLS", 1)
    monkeypatch.setattr(arrays, "cores", lambda: 3)
    assert np.array_equal(GENERATOR.sample(labels, index), whole)


@pytest.mark.parametrize("seed", range(3))
def test_matrix_products_are_exact(seed):
    """The products are the same in any order and in Python's integers: nothing is rounded."""
    rng = np.random.default_rng(seed)
    labels, index = rng.integers(0, 10, 20), rng.integers(0, 2**63, 20)
    scores, order = GENERATOR._scores(labels, index), rng.permutation(GENERATOR.components)
    assert np.array_equal(scores[:, order] @ GENERATOR.basis[order], scores @ GENERATOR.basis)
    left = (scores * module.SCORE_STEPS).astype(int).astype(object)
    right = (GENERATOR.basis * module.BASIS_STEPS).astype(int).astype(object)
    exact = (left @ right) / (module.SCORE_STEPS * module.BASIS_STEPS)
    assert np.array_equal(exact.astype(float), scores @ GENERATOR.basis)


def test_different_addresses_give_different_images():
    labels = np.repeat(np.arange(10), 2000)
    index = np.tile(np.concatenate([image_index(client, 500) for client in range(4)]), 10)
    images = GENERATOR.sample(labels, index).reshape(labels.size, -1)
    assert len(np.unique(images, axis=0)) == labels.size


def splitmix(state):
    """SplitMix64's output function in Python's integers."""
    state %= 2**64
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
    return state ^ (state >> 31)


@given(st.integers(0, 999), st.integers(0, 2**63 - 1), st.integers(0, 99))
def test_noise_equals_its_definition(label, index, place):
    golden = 0x9E3779B97F4A7C15
    word = splitmix(splitmix(splitmix(label + golden) + index) + (place // 4 + 1) * golden)
    part = (word >> 16 * (place % 4)) % 2**16
    expected = round(NormalDist().inv_cdf((part + 0.5) / 2**16) * NOISE_STEPS)
    assert address_noise(np.array([label]), np.array([index]), 100)[0, place] * NOISE_STEPS == expected


def test_noise_is_the_same_on_every_machine():
    noise = address_noise(np.array([0, 1, 9]), np.array([0, 1 << 32, 2**63 - 1]), 1000)
    steps = (noise * NOISE_STEPS).astype("<i4")
    assert steps[0, :6].tolist() == [-8163, -5197, 1098, -1711, -582, -2375]
    assert hashlib.sha256(steps.tobytes()).hexdigest()[:16] == "041f3512175bf526"


def test_noise_is_standard_normal_and_uncorrelated():
    count = 40_000
    noise = address_noise(np.zeros(count, dtype=np.int64), np.arange(count), 16)
    of_next_class = address_noise(np.ones(count, dtype=np.int64), np.arange(count), 16)
    bound = 5 / np.sqrt(count)
    assert np.abs(noise.mean(axis=0)).max() < bound
    assert np.abs(np.cov(noise.T) - np.eye(16)).max() < 1.5 * bound
    assert np.abs((noise**4).mean(axis=0) - 3).max() < 10 * bound
    for other in (of_next_class, np.roll(noise, 1, axis=0), np.roll(noise, 1, axis=1)):
        assert np.abs((noise * other).mean(axis=0)).max() < bound


@given(st.integers(1, 40), st.integers(1, 40))
def test_a_longer_noise_begins_with_the_shorter(short, more):
    labels, index = np.array([4, 2]), np.array([7, 1 << 40])
    assert np.array_equal(address_noise(labels, index, short + more)[:, :short], address_noise(labels, index, short))


def test_scores_have_the_fitted_moments():
    count, label = 20_000, 4
    scores = GENERATOR._scores(np.full(count, label), np.arange(count))
    covariance = GENERATOR.roots[label] @ GENERATOR.roots[label].T
    scale = np.sqrt(np.diag(covariance))
    assert np.abs((scores.mean(axis=0) - GENERATOR.class_means[label]) / scale).max() < 5 / np.sqrt(count)
    assert np.abs((np.cov(scores.T) - covariance) / np.outer(scale, scale)).max() < 8 / np.sqrt(count)


def test_without_shrinkage_many_images_give_their_own_moments():
    rng = np.random.default_rng(0)
    spread = rng.normal(size=(2, 4, 4)) * 12
    labels = np.repeat([0, 1], 30_000)
    rows = np.clip(np.rint(128 + np.einsum("nj,nij->ni", rng.normal(size=(60_000, 4)), spread[labels])), 0, 255)
    generator = GaussianGenerator.fit(rows.astype(np.uint8).reshape(-1, 1, 2, 2), labels, 2, components=4, shrinkage=0)
    for label in (0, 1):
        root = generator.roots[label]
        fitted = generator.basis.T @ root @ root.T @ generator.basis
        own = np.cov(rows[labels == label].T)
        assert np.abs(fitted - own).max() < 0.01 * np.abs(own).max()
        mean = generator.mean + generator.class_means[label] @ generator.basis
        assert np.abs(mean - rows[labels == label].mean(axis=0)).max() < 0.05


def test_full_shrinkage_gives_all_classes_one_covariance():
    roots = GaussianGenerator.fit(DIGITS, LABELS, 10, shrinkage=1).roots
    assert np.array_equal(roots, np.broadcast_to(roots[0], roots.shape))
    assert not np.array_equal(GENERATOR.roots[0], GENERATOR.roots[1])


def test_a_class_of_one_image_varies_as_the_others_do():
    chosen = (LABELS != 3) | (np.arange(LABELS.size) == np.flatnonzero(LABELS == 3)[0])
    generator = GaussianGenerator.fit(DIGITS[chosen], LABELS[chosen], 10)
    images = generator.sample(np.full(50, 3), np.arange(50)).astype(float)
    assert images.std(axis=0).mean() > 10


def test_constant_images_are_reproduced():
    images = np.full((4, 3, 2, 2), 200, dtype=np.uint8)
    generator = GaussianGenerator.fit(images, [0, 0, 1, 1], 2, components=5)
    assert np.array_equal(generator.sample([0, 1, 1], [5, 6, 7]), images[:3])


def test_a_classifier_trained_on_generated_digits_recognises_real_ones():
    labels = np.repeat(np.arange(10), 100)
    images = GENERATOR.sample(labels, np.tile(image_index(client=0, count=100), 10))
    classifier = LogisticRegression(max_iter=300).fit(images.reshape(1000, -1) / 255, labels)
    assert classifier.score(DIGITS[TEST].reshape(-1, 64) / 255, LABELS[TEST]) > 0.85


def test_the_fingerprint_depends_on_what_determines_the_images():
    images, labels = small_colour()

    def print_of(images, labels, components=6, **settings):
        return GaussianGenerator.fit(images, labels, 3, components, **settings).fingerprint

    changed = images.copy()
    changed[0, 0, 0, 0] ^= 128
    first = print_of(images, labels)
    assert first == print_of(images.copy(), labels.tolist()) == print_of(images, labels, class_names=["a", "b", "c"])
    others = [
        print_of(changed, labels),
        print_of(images, labels[::-1]),
        print_of(images.reshape(-1, 3, 4, 5), labels),
        print_of(images, labels, components=7),
        print_of(images, labels, shrinkage=0.2),
    ]
    assert len({first, *others}) == 6


def test_saved_and_loaded_bit_for_bit(tmp_path):
    images, labels = small_colour()
    generator = GaussianGenerator.fit(images, labels, 3, components=6, class_names=["cat", "dog", "frög"])
    generator.save(tmp_path / "g.safetensors")
    loaded = GaussianGenerator.load(tmp_path / "g.safetensors")
    assert loaded.fingerprint == generator.fingerprint
    assert (loaded.shape, loaded.num_classes, loaded.components) == ((3, 5, 4), 3, 6)
    assert (loaded.shrinkage, loaded.class_names) == (0.1, ("cat", "dog", "frög"))
    assert np.array_equal(loaded.sample(labels, labels), generator.sample(labels, labels))
    assert [path.name for path in tmp_path.iterdir()] == ["g.safetensors"]


@pytest.mark.parametrize(("protocol", "clean"), [("clean", True), ("merged", False)])
def test_a_clean_run_refuses_a_file_that_was_fitted_to_its_test_images(tmp_path, protocol, clean):
    data = load_dataset("digits")
    place = tmp_path / "gaussian.safetensors"
    made = GaussianGenerator.fit(*data.seen_under(protocol), data.num_classes)
    made.save(place, Seen.under(protocol, data.name))
    chosen = parse_generator(f'gaussian(weights="{place}")')
    assert chosen.unknown("digits") == ()
    context = GeneratorContext(data.name, data.images, data.labels, data.classes, "clean")
    with nullcontext() if clean else pytest.raises(InputError, match="which a clean run on digits tests on"):
        chosen.ready(context)
    made.save(place)
    assert chosen.unknown("digits")


def test_shapes_and_types():
    images, labels = small_colour()
    generator = GaussianGenerator.fit(images, labels, 3, components=6)
    assert generator.sample([], []).shape == (0, 3, 5, 4)
    sample = generator.sample([2], [0])
    assert sample.shape == (1, 3, 5, 4)
    assert sample.dtype == np.uint8
    assert np.array_equal(image_index(client=2, count=2, start=5), [(2 << 32) + 5, (2 << 32) + 6])


@given(st.integers(0, 2**31 - 1), st.lists(st.integers(0, 5), min_size=1, max_size=6))
def test_a_row_of_the_plan_asks_for_a_clients_first_images_of_each_class(client, row):
    labels, index = plan_addresses(client, np.array(row))
    wanted = [(label, client, number) for label, count in enumerate(row) for number in range(count)]
    assert list(zip(labels.tolist(), client_of(index).tolist(), number_of(index).tolist(), strict=True)) == wanted
    assert [(client_of(one), number_of(one)) for one in index.tolist()] == [address[1:] for address in wanted]


def fit(images=DIGITS, labels=LABELS, num_classes=10, **settings):
    return GaussianGenerator.fit(images, labels, num_classes, **settings)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fit(num_classes=11), "class 10 has no images; give at least one of each class"),
        (
            lambda: fit(DIGITS[LABELS > 0], LABELS[LABELS > 0], class_names=["zero", *"123456789"]),
            "class 0 (zero) has no images; give at least one of each class",
        ),
        (lambda: fit(class_names=["a"]), "1 class names for 10 classes; give one for each"),
        (lambda: fit(num_classes=9), "label 9 is not between 0 and 8"),
        (lambda: fit(labels=LABELS[1:]), "1,796 labels but 1,797 indices; give one of each for every image"),
        (lambda: fit(labels=LABELS / 2), "labels must be a list of whole numbers, such as [0, 2, 1], not of 0.0"),
        (lambda: fit(PIXELS), "images must be uint8 of (N, channels, height, width), not float64 (1797, 64)"),
        (lambda: fit(components=65), "components must be between 1 and the 64 pixels, not 65"),
        (lambda: fit(components=0), "components must be between 1 and the 64 pixels, not 0"),
        (lambda: fit(shrinkage=1.5), "shrinkage must be between 0 and 1, not 1.5"),
        (lambda: GENERATOR.sample([10], [0]), "label 10 is not between 0 and 9"),
        (lambda: GENERATOR.sample([1], [-2]), "index -2 is below 0; use image_index(client, count)"),
        (lambda: GENERATOR.sample([1, 2], [0]), "2 labels but 1 indices; give one of each for every image"),
        (lambda: image_index(-1, 3), "client must be between 0 and 2,147,483,647, not -1"),
        (lambda: image_index(0, 2**32, 1), "images 1 to 4,294,967,297 are not all between 0 and 4,294,967,296"),
    ],
)
def test_what_cannot_be_used_is_refused(call, message):
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == message


def test_files_that_are_no_generator_are_refused(tmp_path):
    path = tmp_path / "g.safetensors"
    with pytest.raises(InputError, match="no such file"):
        GaussianGenerator.load(path)
    path.write_bytes(b"not tensors")
    with pytest.raises(InputError, match="not a readable"):
        GaussianGenerator.load(path)
    save_file({"mean": np.zeros(3)}, path)
    with pytest.raises(InputError, match="its format is None, not 'fedeas-gaussian-1'"):
        GaussianGenerator.load(path)
    GENERATOR.save(path)
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="damaged"):
        GaussianGenerator.load(path)
