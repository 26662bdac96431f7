"""The classifier learns and can be saved; each measure equals its definition and finds planted faults."""

import json
import pickle
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image
from safetensors.numpy import save_file

from fedeas import InputError
from fedeas.config import RunConfig
from fedeas.data.sources import load_dataset
from fedeas.federation.parts import new_model
from fedeas.generators import GaussianGenerator, image_index
from fedeas.generators.diffusion.sampling import DiffusionGenerator
from fedeas.generators.diffusion.weights import Weights
from fedeas.generators.quality import classifier
from fedeas.generators.quality import metrics as quality
from fedeas.generators.quality.classifier import Classifier, Recipe
from fedeas.generators.quality.grid import COLUMNS, GAP, MARGIN, SCALE, sample_grid, save_grid
from fedeas.generators.quality.metrics import (
    CHECK_CLIENT,
    NEAR,
    Yardstick,
    classifier_frechet,
    judge,
    measure_generator,
    near_duplicates,
    nearest,
)

DATA = load_dataset("digits")
DIGITS, LABELS = np.concatenate([DATA.images, DATA.test_images]), np.concatenate([DATA.labels, DATA.test_labels])
TEST = np.arange(len(LABELS)) >= len(DATA.labels)
PIXELS = DIGITS.reshape(-1, 64) / 255
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@pytest.fixture(scope="module")
def trained():
    return Classifier.train(DIGITS[~TEST], LABELS[~TEST], 10, class_names=NAMES)


@pytest.fixture(scope="module")
def yardstick(trained):
    return Yardstick.of(trained, DIGITS[~TEST], DIGITS[TEST], LABELS[TEST])


@pytest.fixture(scope="module")
def gaussian():
    return GaussianGenerator.fit(DIGITS[~TEST], LABELS[~TEST], 10)


def few(count=40, side=8, channels=1):
    rng = np.random.default_rng(count)
    return rng.integers(0, 256, (count, channels, side, side), dtype=np.uint8), np.arange(count) % 4


def test_the_classifier_recognises_unseen_digits(trained):
    assert trained.measured(DIGITS[TEST], LABELS[TEST]).test_accuracy > 0.96
    assert trained.read(DIGITS[:5])[1].shape == (5, 48)
    assert trained.predict(DIGITS[:0]).shape == (0,)


def test_the_same_seed_gives_the_same_weights_and_another_gives_others():
    images, labels = few()
    states = torch.get_rng_state()
    prints = [Classifier.train(images, labels, 4, epochs=2, seed=seed).fingerprint for seed in (0, 0, 1)]
    assert prints[0] == prints[1] != prints[2]
    assert torch.equal(torch.get_rng_state(), states)


def test_a_prediction_does_not_depend_on_the_rest_of_the_batch(trained):
    classes, features = trained.read(DIGITS[:200])
    order = np.random.default_rng(0).permutation(200)
    for part in (order, order[:1], order[:63], order[:65]):
        again = trained.read(DIGITS[part])
        assert np.array_equal(again[0], classes[part])
        assert np.array_equal(again[1], features[part])


def test_features_and_classes_belong_together(trained):
    head = trained.model.head
    logits = trained.read(DIGITS)[1] @ head.weight.numpy().T + head.bias.numpy()
    assert np.array_equal(logits.argmax(axis=1), trained.predict(DIGITS))


def test_inputs_are_normalised_by_the_training_images(trained):
    scaled = DIGITS[~TEST] / 255
    assert trained.mean == pytest.approx((scaled.mean(),))
    assert trained.std == pytest.approx((scaled.std(),))


def test_large_images_get_a_resnet_that_learns_by_crops():
    images, labels = few(24, side=16, channels=3)
    images = images[:, :, :8]
    trained = Classifier.train(images, labels, 4, epochs=1)
    assert (trained.architecture, trained.read(images)[1].shape) == ("resnet18", (24, 512))
    assert not trained.model.training


@pytest.mark.parametrize("flip", [False, True])
def test_crops_are_windows_of_the_framed_image(flip):
    images, labels = few(30, side=16, channels=3)
    untrained = classifier.build_model("resnet18", (3, 16, 16), 4, seed=0)
    judging = Classifier(untrained, "resnet18", (3, 16, 16), 4, (0.2, 0.4, 0.6), (1.0, 1.0, 1.0))
    data = replace(classifier._TrainingSet.of(images, labels, judging), flip=flip)
    crops, classes = data.batch(torch.arange(30), torch.Generator().manual_seed(0))
    assert np.array_equal(classes, labels)
    framed = np.pad(images, ((0, 0), (0, 0), (2, 2), (2, 2)))
    outside = np.pad(np.ones((16, 16), dtype=bool), 2) == 0
    framed[:, :, outside] = np.array([51, 102, 153])[:, None]
    windows = np.lib.stride_tricks.sliding_window_view(framed, (16, 16), axis=(2, 3)).reshape(30, 3, 25, 16, 16)
    own = crops.numpy()[:, :, None]
    straight, mirrored = ((windows == side).all(axis=(1, 3, 4)) for side in (own, own[..., ::-1]))
    assert (straight.sum(axis=1) + mirrored.sum(axis=1) == 1).all()
    assert mirrored.any() == flip
    assert len(set((straight | mirrored).argmax(axis=1))) > 10


def test_the_rate_rises_and_falls_to_nearly_nothing():
    recipe = Recipe(epochs=1, batch_size=1, peak_rate=0.5)
    rates = np.array([recipe.rate(step, 100) for step in range(100)])
    assert rates.argmax() in (19, 20)
    assert rates.max() == 0.5
    assert (np.diff(rates)[:19] > 0).all()
    assert (np.diff(rates)[21:] < 0).all()
    assert 0 < rates[-1] < 0.01
    assert 0 < recipe.rate(0, 1) <= 0.5


def test_saved_and_loaded_bit_for_bit(tmp_path, trained):
    measured = trained.measured(DIGITS[TEST], LABELS[TEST])
    measured.save(tmp_path / "judge.safetensors")
    loaded = Classifier.load(tmp_path / "judge.safetensors")
    assert loaded.fingerprint == measured.fingerprint == trained.fingerprint
    assert loaded.test_accuracy == (trained.predict(DIGITS[TEST]) == LABELS[TEST]).mean()
    assert (loaded.shape, loaded.num_classes, loaded.class_names) == ((1, 8, 8), 10, NAMES)
    assert np.array_equal(loaded.read(DIGITS[:99])[1], trained.read(DIGITS[:99])[1])
    assert [path.name for path in tmp_path.iterdir()] == ["judge.safetensors"]


@pytest.mark.parametrize(("height", "width"), [(8, 8), (8, 20), (20, 8)])
def test_a_classifier_has_the_network_that_a_run_would_use(height, width):
    images = np.random.default_rng(0).integers(0, 256, (8, 1, height, width), dtype=np.uint8)
    judge = Classifier.train(images, np.arange(8) % 2, 2, epochs=1)
    assert type(judge.model) is type(new_model(RunConfig(), (1, height, width), 2))


def test_files_that_are_no_classifier_are_refused(tmp_path, trained):
    path = tmp_path / "judge.safetensors"
    with pytest.raises(InputError, match="no such file"):
        Classifier.load(path)
    path.write_bytes(pickle.dumps({"weight": [1.0] * 100}))
    with pytest.raises(InputError, match="not a readable"):
        Classifier.load(path)
    torch.save({"weight": torch.zeros(100)}, path)
    with pytest.raises(InputError, match="not a readable"):
        Classifier.load(path)
    save_file({"weight": np.zeros(3)}, path)
    with pytest.raises(InputError, match="its format is None, not 'fedeas-classifier-1'"):
        Classifier.load(path)
    trained.save(path)
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="damaged"):
        Classifier.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_classes": 11}, "class 10 has no images; give at least one of each class"),
        ({"num_classes": 9}, "label 9 is not between 0 and 8"),
        ({"labels": LABELS[1:]}, "1,796 labels but 1,797 indices; give one of each for every image"),
        ({"images": PIXELS}, "images must be uint8 of (N, channels, height, width), not float64 (1797, 64)"),
        ({"class_names": ["a"]}, "1 class names for 10 classes; give one for each"),
        ({"epochs": 0}, "epochs must be 1 or more, not 0"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(change, message):
    with pytest.raises(InputError) as caught:
        Classifier.train(**{"images": DIGITS, "labels": LABELS, "num_classes": 10} | change)
    assert str(caught.value) == message


def test_images_of_another_shape_are_refused(trained):
    with pytest.raises(InputError) as caught:
        trained.predict(few(side=9)[0])
    assert str(caught.value) == "images must be uint8 of (N, 1, 8, 8), not uint8 (40, 1, 9, 9)"


def frechet_by_eigenvalues(real, generated):
    """The definition with a symmetric root, which has real eigenvalues only."""
    values, vectors = np.linalg.eigh(np.cov(real.T))
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    inner = np.linalg.eigvalsh(root @ np.cov(generated.T) @ root)
    traces = np.trace(np.cov(real.T)) + np.trace(np.cov(generated.T))
    return ((real.mean(0) - generated.mean(0)) ** 2).sum() + traces - 2 * np.sqrt(np.maximum(inner, 0)).sum()


def test_frechet_of_gaussians_equals_the_closed_form():
    rng = np.random.default_rng(0)
    scale, other, shift = np.array([1.0, 2.0, 0.5]), np.array([2.0, 1.0, 0.5]), np.array([0.0, 3.0, 1.0])
    real, generated = rng.normal(size=(200_000, 3)) * scale, rng.normal(size=(200_000, 3)) * other + shift
    assert classifier_frechet(real, generated) == pytest.approx(10 + ((scale - other) ** 2).sum(), rel=0.01)


@pytest.mark.parametrize("offset", [0, 1000])
def test_frechet_equals_its_definition(offset):
    rng = np.random.default_rng(1)
    real, generated = rng.normal(size=(5000, 12)) @ rng.normal(size=(12, 12)), rng.normal(size=(300, 12)) + 0.2
    result = classifier_frechet(real + offset, generated + offset)
    assert result == pytest.approx(frechet_by_eigenvalues(real, generated), rel=1e-6)


def test_frechet_of_a_set_to_itself_is_zero_even_with_constant_features(trained):
    features = trained.read(DIGITS)[1]
    features[:, 3] = 0
    assert 0 <= classifier_frechet(features, features[::-1]) < 1e-4
    assert classifier_frechet(features, features[LABELS < 5]) > 1


def test_frechet_does_not_depend_on_blocks(monkeypatch):
    rng = np.random.default_rng(2)
    real, generated = rng.normal(size=(100, 4)), rng.normal(size=(50, 4))
    whole = classifier_frechet(real, generated)
    monkeypatch.setattr(quality, "BLOCK", 7)
    assert classifier_frechet(real, generated) == pytest.approx(whole, rel=1e-9)


pixels = st.integers(1, 20).flatmap(lambda count: arrays(np.uint8, (count, 3, 3, 2)))


@settings(max_examples=60)
@given(pixels, pixels, st.integers(1, 8))
def test_neighbours_equal_brute_force(images, training, block):
    squares = ((images[:, None].astype(int) - training[None].astype(int)) ** 2).sum(axis=(2, 3, 4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quality, "BLOCK", block)
        distances = nearest(images, training)
    assert np.array_equal(distances, np.sqrt(squares.min(axis=1) / 18) / 255)


def test_copies_of_large_bright_images_have_distance_zero_and_near_copies_have_not():
    rng = np.random.default_rng(3)
    training = rng.integers(200, 256, (300, 3, 64, 64), dtype=np.uint8)
    near = training[[5, 250]].copy()
    near[:, 0, 0, 0] ^= 1
    distances = nearest(np.concatenate([training[[7, 299]], near]), training)
    assert distances[:2].tolist() == [0, 0]
    assert distances[2:] == pytest.approx(1 / 255 / np.sqrt(3 * 64 * 64), rel=1e-12)


@settings(max_examples=60)
@given(pixels, pixels)
def test_near_duplicates_equal_brute_force_and_do_not_depend_on_brightness_and_contrast(images, training):
    def by_brute_force(others):
        apart = (images[:, None] / 255 - others[None] / 255).reshape(len(images), len(others), -1)
        least = np.sqrt((apart**2).mean(axis=2)).min(axis=1)
        return int((least <= NEAR * images.reshape(len(images), -1).std(axis=1) / 255 + 1e-12).sum())

    found = near_duplicates(images, training)
    assert found == (by_brute_force(training), by_brute_force(training[..., ::-1, ::-1]))
    brighter, paler = (both // 4 for both in (images, training)), (both // 4 + 90 for both in (images, training))
    assert near_duplicates(*brighter) == near_duplicates(*paler)


def test_copies_with_noise_or_other_brightness_are_near_duplicates_and_other_images_are_not():
    rng = np.random.default_rng(4)
    training = rng.integers(20, 200, (300, 3, 8, 8), dtype=np.uint8)
    noisy = training[:20] + rng.integers(0, 20, (20, 3, 8, 8), dtype=np.uint8)
    others = rng.integers(20, 200, (30, 3, 8, 8), dtype=np.uint8)
    assert near_duplicates(np.concatenate([noisy, others]), training) == (20, 0)
    assert near_duplicates(noisy[..., ::-1, ::-1], training) == (0, 20)


def test_planted_copies_are_counted(yardstick):
    images, labels = DIGITS[TEST][:200].copy(), LABELS[TEST][:200]
    before = judge(images, labels, yardstick)
    far = np.argsort(yardstick.test_distances[:200])[-20:]
    images[far[:12]] = DIGITS[~TEST][:12]
    images[far[12:]] = np.minimum(DIGITS[~TEST][12:20], 253) + 2  # brighter by a trace
    after = judge(images, labels, yardstick)
    assert (before.copies, after.copies) == (0, 12)
    assert after.suspected_copies == pytest.approx(before.suspected_copies + 0.1)


def test_about_one_in_a_hundred_test_images_is_a_suspected_copy(yardstick):
    report = judge(DIGITS[TEST], LABELS[TEST], yardstick)
    assert 0.005 < report.suspected_copies < 0.015
    assert report.nearest == report.nearest_of_test
    assert report.agreement == report.ceiling == yardstick.classifier.measured(DIGITS[TEST], LABELS[TEST]).test_accuracy
    assert report.classifier_frechet == pytest.approx(report.classifier_frechet_floor, rel=1e-9)


@dataclass(frozen=True, eq=False)
class Planted:
    """Makes images on which classifier and label agree, except the first `wrong` of each class."""

    by_class: list
    wrong: tuple
    num_classes: int = 10
    shape: tuple = (1, 8, 8)
    batch_size: int = 64
    fingerprint: str = "planted"

    def sample(self, labels, index):
        assert (np.asarray(index) >> 32 == CHECK_CLIENT).all()
        places = np.asarray(index) & 0xFFFFFFFF
        shown = [(c + (j < self.wrong[c])) % 10 for c, j in zip(labels, places, strict=True)]
        return np.stack([self.by_class[c][j] for c, j in zip(shown, places, strict=True)])


def test_agreement_equals_the_planted_share(trained, yardstick):
    seen, wrong = trained.predict(DIGITS), (0, 1, 2, 3, 4, 5, 10, 20, 39, 40)
    report = measure_generator(Planted([DIGITS[seen == c] for c in range(10)], wrong), yardstick, per_class=40)
    assert report.agreement_per_class == pytest.approx([1 - count / 40 for count in wrong])
    assert report.agreement == pytest.approx(1 - sum(wrong) / 400)
    assert report.ceiling_per_class[3] == (trained.predict(DIGITS[TEST & (LABELS == 3)]) == 3).mean()
    assert (report.images, report.generator, report.classifier) == (400, "planted", trained.fingerprint)
    assert report.seconds > 0
    assert report.images_per_second == pytest.approx(400 / report.seconds)


def test_the_floor_is_of_as_many_images_of_each_class(yardstick):
    labels = np.repeat([0, 3], [12, 7])
    test_labels = LABELS[TEST]
    chosen = np.concatenate([np.flatnonzero(test_labels == 0)[:12], np.flatnonzero(test_labels == 3)[:7]])
    expected = frechet_by_eigenvalues(yardstick.training_features, yardstick.test_features[chosen])
    assert yardstick.floor(labels) == pytest.approx(expected, rel=1e-4)


def test_a_report_can_be_read_by_people_and_machines(gaussian, yardstick):
    report = measure_generator(gaussian, yardstick, per_class=50)
    again = json.loads(json.dumps(report.as_dict()))
    assert again["nearest"] == {"median": report.nearest.median, "first_percentile": report.nearest.first_percentile}
    assert again["agreement_per_class"] == list(report.agreement_per_class)
    assert again["images_per_second"] == report.images_per_second
    assert [len(row) for row in report.rows()] == [3] * 9
    assert f"{report.agreement:.2%}" in report.rows()[1]
    lowest, names = int(np.argmin(report.agreement_per_class)), [f"digit {label}" for label in range(10)]
    assert f"(digit {lowest})" in report.rows(names)[2][1]
    alone = judge(DIGITS[:2], [0, 1], yardstick)
    assert alone.agreement_per_class[2] is None
    assert alone.images_per_second is None


@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")  # in diffusers
def test_the_packaged_digits_weights_make_digits(gaussian, yardstick):
    generators = DiffusionGenerator(Weights.load("digits")), gaussian
    diffusion, plain = (measure_generator(generator, yardstick, per_class=20) for generator in generators)
    assert diffusion.images == 200
    assert diffusion.agreement > 0.95
    assert diffusion.classifier_frechet < plain.classifier_frechet
    assert diffusion.copies == 0


def test_measures_refuse_images_that_do_not_fit(trained, yardstick):
    with pytest.raises(InputError, match="3 labels but 4 indices"):
        judge(DIGITS[:4], LABELS[:3], yardstick)
    with pytest.raises(InputError, match="a Frechet distance needs at least two images"):
        judge(DIGITS[:1], LABELS[:1], yardstick)
    with pytest.raises(InputError, match="label 77 is not between 0 and 9"):
        Yardstick.of(trained, DIGITS, DIGITS[:1], [77])
    with pytest.raises(InputError, match="at least two training images"):
        Yardstick.of(trained, DIGITS[:1], DIGITS, LABELS)
    with pytest.raises(InputError, match="the generator has 9 classes, the classifier 10"):
        measure_generator(Planted([], (), num_classes=9), yardstick)
    with pytest.raises(InputError, match="have no neighbours among"):
        nearest(DIGITS, few(side=9)[0])


@pytest.mark.parametrize("channels", [1, 3])
def test_the_grid_shows_the_images_by_class(tmp_path, channels):
    images, labels = few(10, side=6, channels=channels)
    save_grid(images, labels, ["ant", "bee", "cow", "dog", "none"], tmp_path / "grid.png")
    sheet, side = np.asarray(Image.open(tmp_path / "grid.png")), 6 * SCALE
    left = sheet.shape[1] - MARGIN - (COLUMNS * (side + GAP) - GAP)
    assert sheet.shape[0] == 2 * MARGIN + 4 * side + 3 * GAP  # "none" has no images, hence no row
    for place, (image, label) in enumerate(zip(images, labels, strict=True)):
        top, start = MARGIN + label * (side + GAP), left + place // 4 * (side + GAP)
        shown = sheet[top : top + side, start : start + side]
        expected = np.broadcast_to(image, (3, 6, 6)).transpose(1, 2, 0).repeat(SCALE, axis=0).repeat(SCALE, axis=1)
        assert np.array_equal(shown, expected)
    names = sheet[MARGIN:-MARGIN, MARGIN : left - MARGIN].reshape(-1, 3)
    assert (names < 128).any()  # something is written there
    for frame in (sheet[:MARGIN], sheet[-MARGIN:], sheet[:, -MARGIN:], sheet[:, left - MARGIN : left]):
        assert (frame == 255).all()
    assert [path.name for path in tmp_path.iterdir()] == ["grid.png"]


def test_the_sample_grid_shows_the_first_images(tmp_path, gaussian):
    sample_grid(gaussian, NAMES, tmp_path / "samples.png")
    labels, index = np.repeat(np.arange(10), COLUMNS), np.tile(image_index(0, COLUMNS), 10)
    save_grid(gaussian.sample(labels, index), labels, NAMES, tmp_path / "expected.png")
    assert (tmp_path / "samples.png").read_bytes() == (tmp_path / "expected.png").read_bytes()


def test_grids_refuse_what_they_cannot_show(tmp_path):
    path = tmp_path / "grid.png"
    with pytest.raises(InputError, match="uint8 of \\(N, 1 or 3, height, width\\), not float64"):
        save_grid(PIXELS, LABELS, NAMES, path)
    with pytest.raises(InputError, match="label 9 is not between 0 and 8"):
        save_grid(DIGITS, LABELS, NAMES[:9], path)
    with pytest.raises(InputError, match="does not exist; create it first"):
        save_grid(DIGITS, LABELS, NAMES, tmp_path / "nowhere" / "grid.png")
    assert not path.exists()
