"""Sums over images are exact whole numbers, the fixed basis is orthonormal, and noise is calibrated."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.fft import dctn

from fedeas import InputError
from fedeas.generators import GaussianGenerator
from fedeas.generators.gaussian import (
    BASIS_STEPS,
    CENTRE,
    SCORE_STEPS,
    SENSITIVITY,
    SumNoise,
    check_sizes,
    class_sums,
    cosine_basis,
    moments_of,
)

CLASSES, SHAPE, COMPONENTS = 3, (3, 4, 2), 5
WIDTH = 1 + COMPONENTS + COMPONENTS * (COMPONENTS + 1) // 2
shapes = st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 6))


def some(count, seed=0, shape=SHAPE):
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(CLASSES), rng.integers(0, CLASSES, count - CLASSES)])
    return rng.integers(0, 256, (count, *shape), dtype=np.uint8), labels


@given(shapes, st.data())
def test_the_basis_is_orthonormal_whatever_part_of_it_is_kept(shape, data):
    components = data.draw(st.integers(1, int(np.prod(shape))))
    basis = cosine_basis(shape, components)
    assert basis.shape == (components, np.prod(shape))
    assert np.allclose(basis @ basis.T, np.eye(components), atol=np.prod(shape) / BASIS_STEPS)
    assert np.array_equal(basis, cosine_basis(shape, int(np.prod(shape)))[:components])


@given(shapes)
def test_scores_in_the_whole_basis_are_scipys_cosine_transform(shape):
    image = np.random.default_rng(0).normal(size=shape)
    scores = cosine_basis(shape, image.size) @ image.ravel()
    assert np.allclose(np.sort(scores), np.sort(dctn(image, norm="ortho"), axis=None), atol=1e-3)


def test_the_first_of_the_basis_are_those_with_the_fewest_waves():
    basis = cosine_basis((3, 8, 8), 12).reshape(-1, 3, 8, 8)
    assert np.ptp(basis[0]) == 0
    turns = [sum(int((np.diff(np.sign(one), axis=axis) != 0).max()) for axis in (0, 1, 2)) for one in basis]
    assert turns[0] == 0
    assert max(turns) <= 4
    assert any(np.ptp(one, axis=0).max() > 0.01 for one in basis)  # colours, too


@settings(max_examples=30, deadline=None)
@given(st.integers(CLASSES, 40), st.lists(st.integers(0, 6), min_size=40, max_size=40), st.randoms())
def test_sums_over_any_clients_in_any_order_are_those_of_all_images(count, clients, random):
    images, labels = some(count)
    order, owner = np.array(random.sample(range(count), count)), np.array(clients[:count])
    parts = [order[owner[order] == client] for client in range(7)]
    random.shuffle(parts)
    added = sum(class_sums(images[part], labels[part], CLASSES, COMPONENTS) for part in parts)
    assert np.array_equal(added, class_sums(images, labels, CLASSES, COMPONENTS))


def test_sums_are_those_of_pythons_integers():
    images, labels = some(20)
    basis = cosine_basis(SHAPE, COMPONENTS)
    expected = np.zeros((CLASSES, WIDTH), dtype=object)
    for image, label in zip(images.reshape(20, -1), labels, strict=True):
        score = [round(SCORE_STEPS * float(row @ (image - CENTRE))) for row in basis]
        products = [score[i] * score[j] for i in range(COMPONENTS) for j in range(i, COMPONENTS)]
        expected[label] += np.array([1, *score, *products], dtype=object)
    assert class_sums(images, labels, CLASSES, COMPONENTS).tolist() == expected.tolist()


def test_sums_of_the_largest_scores_are_exact():
    """Black images: their first score is the largest in size that images of this shape can have."""
    black, count = np.zeros((2000, 1, 32, 32), dtype=np.uint8), 2000
    sums = class_sums(black, np.zeros(count, dtype=np.int64), 1, 2)[0]
    score = -128 * 32 * SCORE_STEPS
    assert sums.tolist() == [count, count * score, 0, count * score**2, 0, 0]


def test_more_images_than_whole_numbers_can_add_are_refused():
    check_sizes(22_000_000, (3, 32, 32), 32)
    with pytest.raises(InputError, match="23,000,000 images of 3,072 numbers are too many for exact sums"):
        check_sizes(23_000_000, (3, 32, 32), 32)
    with pytest.raises(InputError, match="components must be between 1 and the 3 pixels, not 4"):
        check_sizes(9, (1, 1, 3), 4)


def test_the_generator_has_the_moments_of_unrounded_scores():
    images, labels = some(3000, seed=3)
    counts, totals, products = moments_of(class_sums(images, labels, CLASSES, COMPONENTS), COMPONENTS)
    exact = (images.reshape(3000, -1) - CENTRE) @ cosine_basis(SHAPE, COMPONENTS).T
    for label in range(CLASSES):
        own = exact[labels == label]
        assert counts[label] == len(own)
        assert np.allclose(totals[label], own.sum(axis=0), rtol=0, atol=len(own) / SCORE_STEPS)
        assert np.allclose(products[label], own.T @ own, rtol=1e-4, atol=len(own) * 2)
    made = GaussianGenerator.fit(images, labels, CLASSES, COMPONENTS, shrinkage=0, basis="dct")
    own = exact[labels == 1]
    kept = (len(own) - 1) / (len(own) - 1 + COMPONENTS)
    pooled = sum(np.cov(exact[labels == label].T) * ((labels == label).sum() - 1) for label in range(CLASSES))
    expected = kept * np.cov(own.T) + (1 - kept) * pooled / (3000 - CLASSES)
    assert np.allclose(made.class_means[1], own.mean(axis=0), atol=1 / SCORE_STEPS)
    assert np.allclose(made.roots[1] @ made.roots[1].T, expected, rtol=1e-3, atol=1)


def scaled(row, clip):
    """A row of sums as the docstring of `SENSITIVITY` scales it."""
    in_steps = clip * SCORE_STEPS
    products = COMPONENTS * (COMPONENTS + 1) // 2
    return row / np.repeat([1.0, in_steps, in_steps**2], [1, COMPONENTS, products])


@pytest.mark.parametrize("clip", [3.0, 60.0, 400.0, 5000.0])
def test_no_change_of_one_image_and_its_label_moves_the_sums_beyond_the_sensitivity(clip):
    rng = np.random.default_rng(0)
    special = [np.zeros(SHAPE), np.full(SHAPE, 255), np.full(SHAPE, 128), np.indices(SHAPE).sum(axis=0) % 2 * 255]
    images = np.array([*special, *rng.integers(0, 256, (12, *SHAPE))]).astype(np.uint8)
    rest, rest_labels = some(8)
    clipped = SumNoise(clip, noise=0.0)
    rows = [
        class_sums(
            np.concatenate([rest, images[[number]]]), np.append(rest_labels, label), CLASSES, COMPONENTS, clipped
        )
        for number, label in product(range(len(images)), range(2))
    ]
    steps = [scaled(one - other, clip) for one, other in product(rows, repeat=2)]
    moved = max(float(np.linalg.norm(step)) for step in steps)
    assert moved <= SENSITIVITY + 1e-9
    assert clip > 400 or moved > 0.9 * SENSITIVITY  # and the bound is not far from what happens


@given(st.floats(0.01, 2000), st.integers(0, 100))
def test_no_clipped_score_is_longer_than_the_clip(clip, seed):
    images, _ = some(4, seed)
    sums = class_sums(images[:1], np.array([0]), 1, COMPONENTS, SumNoise(clip, noise=0.0))
    _, totals, _ = moments_of(sums, COMPONENTS)
    assert np.linalg.norm(totals[0]) <= clip * (1 + 1e-12)


def test_noise_has_the_deviation_that_its_multiplier_says():
    noise, nothing = SumNoise(clip=50.0, noise=1.5), (np.empty((0, *SHAPE), np.uint8), np.empty(0, np.int64))
    drawn = scaled(class_sums(*nothing, 4000, COMPONENTS, noise), 50.0)
    assert drawn.std(axis=0) == pytest.approx(1.5 * SENSITIVITY, rel=0.06)
    assert np.abs(drawn.mean(axis=0)).max() < 5 * 1.5 * SENSITIVITY / np.sqrt(4000)
    assert np.abs(np.corrcoef(drawn.T) - np.eye(WIDTH)).max() < 0.1
    assert not np.array_equal(drawn, scaled(class_sums(*nothing, 4000, COMPONENTS, noise), 50.0))


@settings(max_examples=20, deadline=None)
@given(st.floats(0.1, 100), st.floats(1, 2000))
def test_a_generator_of_sums_with_any_noise_makes_images_by_address(multiplier, clip):
    images, labels = some(60)
    sums = class_sums(images, labels, CLASSES, COMPONENTS, SumNoise(clip, multiplier))
    sums[:, 0] = np.maximum(sums[:, 0], 1)
    made = GaussianGenerator.of_sums(sums, SHAPE, COMPONENTS)
    assert np.isfinite(made.roots).all()
    assert np.allclose(made.roots, made.roots.transpose(0, 2, 1))
    assert np.linalg.eigvalsh(made.roots).min() > -1
    index = np.arange(9)
    drawn = made.sample(index % CLASSES, index)
    assert np.array_equal(made.sample([1], [4]), drawn[[4]])


def test_an_empty_class_is_refused_with_its_name():
    images, labels = some(9)
    sums = class_sums(images, labels, CLASSES + 1, COMPONENTS)
    with pytest.raises(InputError, match=r"class 3 \(dog\) has no images"):
        GaussianGenerator.of_sums(sums, SHAPE, COMPONENTS, names=("a", "b", "c", "dog"))


def test_tables_can_be_fitted_as_images_of_one_row():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 200)
    rows = np.clip(rng.normal(100 + 40 * labels[:, None], [5, 10, 20], (400, 3)), 0, 255).astype(np.uint8)
    made = GaussianGenerator.fit(rows.reshape(-1, 1, 1, 3), labels, 2, components=3, basis="dct")
    drawn = made.sample(labels, np.arange(400)).reshape(400, 3)
    for label in (0, 1):
        assert np.allclose(drawn[labels == label].mean(axis=0), rows[labels == label].mean(axis=0), atol=4)
        assert np.allclose(drawn[labels == label].std(axis=0), rows[labels == label].std(axis=0), rtol=0.15)


def test_a_basis_that_is_unknown_is_refused():
    images, labels = some(9)
    with pytest.raises(InputError, match="basis must be pca or dct, not 'ica'"):
        GaussianGenerator.fit(images, labels, CLASSES, COMPONENTS, basis="ica")
