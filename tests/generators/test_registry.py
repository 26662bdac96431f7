"""Generators by name: every spec is read, written and read again; what does not fit a run is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedeas.errors import FedEASError, InputError, SpecError
from fedeas.generators import GaussianGenerator, recipes
from fedeas.generators.base import image_index
from fedeas.generators.classifier import Classifier
from fedeas.generators.diffusion import DiffusionGenerator, Network, Weights
from fedeas.generators.diffusion.weights import half
from fedeas.generators.filtered import Filtered
from fedeas.generators.registry import (
    GENERATORS,
    Agreeing,
    Diffusion,
    Gaussian,
    Python,
    SdTurbo,
    Setting,
    parse_generator,
)

# diffusers makes an array of a tensor in a way that numpy 2 wants otherwise; only tests make errors of such warnings.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")

ROOT = Path(__file__).parents[2]
TINY = Network((8, 16), layers=1, attention=(False, False), groups=4)
LABELS = np.arange(40) % 2
IMAGES = (120 * LABELS[:, None, None, None] + np.random.default_rng(0).integers(0, 100, (40, 1, 4, 4))).astype(np.uint8)
SETTING = Setting("squares", IMAGES, LABELS, ("dark", "light"))
DIGITS = Setting("digits", np.zeros((1, 1, 8, 8), np.uint8), np.zeros(1, np.int64), tuple("0123456789"))


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("gaussian", Gaussian()),
        ("Gaussian(components=16, shrinkage=.5)", Gaussian(16, 0.5)),
        ("diffusion", Diffusion()),
        ("diffusion(weights=digits, steps=5, guidance=2)", Diffusion("digits", steps=5, guidance=2.0)),
        (
            'diffusion(weights="a/b c.safetensors", solver=ddpm, precision=fp32)',
            Diffusion("a/b c.safetensors", "ddpm", precision="fp32"),
        ),
        ("diffusion(compiled=true)", Diffusion(compiled=True)),
        ("sd_turbo", SdTurbo()),
        (
            'sd-turbo(model="org/name", template="a {} in oil", precision=fp16)',
            SdTurbo("org/name", "a {} in oil", precision="fp16"),
        ),
        ("agreeing", Agreeing(Diffusion())),
        ("agreeing(of=gaussian(components=8))", Agreeing(Gaussian(8))),
        (
            'agreeing(of=diffusion(weights="a/b.safetensors"), classifier="c.safetensors")',
            Agreeing(Diffusion("a/b.safetensors"), "c.safetensors"),
        ),
        ("agreeing(of=agreeing(of=sd-turbo))", Agreeing(Agreeing(SdTurbo()))),
        ("python:examples.custom_generator:stripes", Python("python:examples.custom_generator:stripes")),
    ],
)
def test_specs_are_read_and_written(text, source):
    assert parse_generator(text) == source
    assert parse_generator(source.spec) == source


paths = st.text("abc/. -_{}()=,", max_size=12)
diffusions = st.builds(
    Diffusion,
    weights=paths,
    solver=st.sampled_from(["", "dpm", "ddim", "ddpm"]),
    steps=st.integers(0, 1000),
    guidance=st.none() | st.floats(0, 1e6),
    compiled=st.booleans(),
)
gaussians = st.builds(Gaussian, st.integers(1, 64), st.floats(0, 1))


@given(diffusions | gaussians | st.builds(Agreeing, diffusions | gaussians, paths))
def test_every_spec_can_be_read_back(source):
    assert parse_generator(source.spec) == source


def test_all_kinds_have_the_name_they_are_known_by():
    assert list(GENERATORS) == ["gaussian", "diffusion", "sd-turbo", "agreeing"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gan", "unknown generator 'gan'; known are gaussian, diffusion, sd-turbo, agreeing"),
        ("", "expected a generator name"),
        ("diffusion(depth=3)", "diffusion has no field 'depth'; it has weights, solver"),
        ("diffusion(weights=a/b.safetensors)", "cannot read '/b.safetensors)'"),
        ("diffusion(steps=fast)", "steps must be a whole number, not 'fast'"),
        ("diffusion(steps=2.5)", "steps must be a whole number, not 2.5"),
        ("diffusion(steps=true)", "steps must be a whole number, not True"),
        ("diffusion(guidance=high)", "guidance must be a number, not 'high'"),
        ("diffusion(weights=5)", "weights must be text, not 5"),
        ("diffusion(compiled=yes)", "compiled must be true or false, not 'yes'"),
        ("gaussian(shrinkage=lots)", "shrinkage must be a number, not 'lots'"),
        ("agreeing(of=digits)", "of must be a generator, not 'digits'"),
        ("agreeing(of=diffusion(steps=few))", "steps must be a whole number, not 'few'"),
    ],
)
def test_malformed_specs_are_refused_in_one_line(text, message):
    with pytest.raises(SpecError) as caught:
        parse_generator(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def saved(path, names=("dark", "light"), shape=(1, 4, 4), **seen):
    tensors = half(TINY.build(shape, len(names)).state_dict())
    Weights(TINY, shape, names, tensors, "ddim", 3, 1.5, {"protocol": "clean", **seen}).save(path)
    return f'diffusion(weights="{path}")'


def test_gaussians_are_fitted_to_the_training_part():
    made = parse_generator("gaussian(components=4, shrinkage=0.2)").ready(SETTING)
    assert made.fingerprint == GaussianGenerator.fit(IMAGES, LABELS, 2, 4, 0.2).fingerprint


def test_weights_are_those_of_the_dataset_unless_named(tmp_path):
    assert parse_generator("diffusion").ready(DIGITS).weights.fingerprint == Weights.load("digits").fingerprint
    made = parse_generator(saved(tmp_path / "w.safetensors")).ready(SETTING)
    assert (made.solver, made.steps, made.guidance) == ("ddim", 3, 1.5)
    with pytest.raises(InputError, match="there are no weights called 'squares'"):
        parse_generator("diffusion").ready(SETTING)


def test_what_a_spec_says_reaches_the_sampler():
    spec = "diffusion(solver=ddpm, steps=4, guidance=0, precision=bf16)"
    expected = DiffusionGenerator(Weights.load("digits"), solver="ddpm", steps=4, guidance=0, precision="bf16")
    assert parse_generator(spec).ready(DIGITS).fingerprint == expected.fingerprint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"names": ("a", "b", "c")}, "make 3 classes of 1 x 4 x 4, squares has 2 classes of 1 x 4 x 4"),
        ({"shape": (3, 4, 4)}, "make 2 classes of 3 x 4 x 4, squares has 2 classes of 1 x 4 x 4"),
        ({"shape": (1, 8, 4)}, "make 2 classes of 1 x 8 x 4"),
        ({"protocol": "merged"}, "saw test images; train them with --protocol clean"),
        ({"protocol": None}, "saw test images"),
    ],
)
def test_weights_that_do_not_fit_the_run_are_refused(tmp_path, options, message):
    source = parse_generator(saved(tmp_path / "w.safetensors", **options))
    with pytest.raises(InputError, match=message):
        source.ready(SETTING)


def test_weights_that_saw_test_images_may_be_used_where_that_is_said(tmp_path):
    source = parse_generator(saved(tmp_path / "w.safetensors", protocol="merged"))
    assert source.ready(replace(SETTING, protocol="merged")).num_classes == 2


def test_a_filter_keeps_the_images_that_its_classifier_confirms(tmp_path, monkeypatch):
    recipe = recipes.RECIPES["small-cnn"]
    monkeypatch.setitem(recipes.RECIPES, "small-cnn", replace(recipe, epochs=5, batch_size=10))
    judge = Classifier.train(IMAGES, LABELS, 2)
    judge.save(tmp_path / "judge.safetensors")
    read = parse_generator(f'agreeing(of=gaussian(components=4), classifier="{tmp_path}/judge.safetensors")')
    made = [source.ready(SETTING) for source in (read, parse_generator("agreeing(of=gaussian(components=4))"))]
    assert all(isinstance(filtered, Filtered) for filtered in made)
    labels, index = np.repeat([0, 1], 6), np.tile(image_index(1, 6), 2)
    images = made[0].sample(labels, index)
    assert judge.predict(images).tolist() == labels.tolist()
    assert np.array_equal(made[1].sample(labels, index), images)  # a classifier trained for the run is the same


def test_the_judge_of_a_filter_works_where_the_run_does(tmp_path, monkeypatch):
    places = []
    monkeypatch.setattr(Classifier, "load", lambda path, device="cpu": places.append((path, device)))
    monkeypatch.setattr("fedeas.generators.filtered.Filtered", lambda source, judge: None)
    parse_generator('agreeing(of=gaussian(components=4), classifier="c.safetensors")').ready(
        replace(SETTING, device="cuda")
    )
    assert places == [("c.safetensors", "cuda")]


def test_a_callable_of_ones_own(monkeypatch):
    monkeypatch.chdir(ROOT)
    made = parse_generator("python:examples.custom_generator:stripes").ready(DIGITS)
    labels, index = np.arange(10), image_index(3, 10)
    assert made.sample(labels, index).shape == (10, 1, 8, 8)
    assert np.array_equal(made.sample(labels[4:], index[4:]), made.sample(labels, index)[4:])


@pytest.mark.parametrize("name", ["examples.custom_generator:nothing", "examples.none:stripes", "no module"])
def test_a_callable_that_is_not_there_is_refused(monkeypatch, name):
    monkeypatch.chdir(ROOT)
    with pytest.raises(FedEASError) as caught:
        parse_generator(f"python:{name}").ready(DIGITS)
    assert "\n" not in str(caught.value)
