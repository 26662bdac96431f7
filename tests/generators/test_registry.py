"""Generators by spec: every spec can be written and read back; a generator that does not fit a run is refused."""

import itertools
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedeas.core.errors import FedEASError, InputError, SpecError
from fedeas.core.provenance import NOT_KNOWN, Seen
from fedeas.core.weight_files import generator_weights, weights_digest
from fedeas.generators import GaussianGenerator, text
from fedeas.generators.base import described, image_index
from fedeas.generators.diffusion import sampling
from fedeas.generators.diffusion.presets import Network
from fedeas.generators.diffusion.sampling import DiffusionGenerator
from fedeas.generators.diffusion.weights import Weights, half
from fedeas.generators.filtered import Filtered
from fedeas.generators.kinds import (
    GENERATORS,
    ClassifierFiltered,
    Diffusion,
    Gaussian,
    GeneratorContext,
    Python,
    SdTurbo,
    Shared,
    parse_generator,
)
from fedeas.generators.quality.classifier import RECIPES, Classifier

# diffusers makes an array of a tensor in a way that numpy 2 wants otherwise; only tests make errors of such warnings.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")

ROOT = Path(__file__).parents[2]
TINY = Network((8, 16), layers=1, attention=(False, False), groups=4)
LABELS = np.arange(40) % 2
IMAGES = (120 * LABELS[:, None, None, None] + np.random.default_rng(0).integers(0, 100, (40, 1, 4, 4))).astype(np.uint8)
SAW_TEST = Seen("squares", ("train",), start=Seen("squares", ("train", "test")))
SETTING = GeneratorContext("squares", IMAGES, LABELS, ("dark", "light"))
DIGITS = GeneratorContext("digits", np.zeros((1, 1, 8, 8), np.uint8), np.zeros(1, np.int64), tuple("0123456789"))


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
        ("agreeing", ClassifierFiltered(Diffusion())),
        ("agreeing(of=gaussian(components=8))", ClassifierFiltered(Gaussian(8))),
        (
            'agreeing(of=diffusion(weights="a/b.safetensors"), classifier="c.safetensors")',
            ClassifierFiltered(Diffusion("a/b.safetensors"), "c.safetensors"),
        ),
        ("agreeing(of=agreeing(of=sd-turbo))", ClassifierFiltered(ClassifierFiltered(SdTurbo()))),
        ("python:examples.custom_generator:stripes", Python("python:examples.custom_generator:stripes")),
        ("shared(each=5, of=python:mine:images)", Shared(Python("python:mine:images"), 5)),
        ("agreeing(of=shared(of=python:mine:images))", ClassifierFiltered(Shared(Python("python:mine:images")))),
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


@given(diffusions | gaussians | st.builds(ClassifierFiltered, diffusions | gaussians, paths))
def test_every_spec_can_be_read_back(source):
    assert parse_generator(source.spec) == source


def test_all_kinds_have_the_name_of_their_spec():
    assert list(GENERATORS) == ["gaussian", "diffusion", "sd-turbo", "agreeing", "shared", "held-out", "federated"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gan", "unknown generator 'gan'; known are gaussian, diffusion, sd-turbo, agreeing"),
        ("", "expected a generator name"),
        ("diffusion(depth=3)", "diffusion has no field 'depth'; it has weights, solver"),
        ("diffusion(weights=a/b.safetensors)", "cannot read 'a/b.safetensors)'"),
        ("diffusion(steps=fast)", "steps must be a whole number, 0 or more, not 'fast'"),
        ("diffusion(steps=2.5)", "steps must be a whole number, 0 or more, not 2.5"),
        ("diffusion(steps=true)", "steps must be a whole number, 0 or more, not True"),
        ("diffusion(guidance=high)", "guidance must be a number from 0 to 3.4e+38, not 'high'"),
        ("diffusion(weights=5)", "weights must be text, not 5"),
        ("diffusion(compiled=yes)", "compiled must be true or false, not 'yes'"),
        ("gaussian(shrinkage=lots)", "shrinkage must be a number from 0 to 1, not 'lots'"),
        ("gaussian(components=-1)", "components must be a whole number, 1 or more, not -1"),
        ("gaussian(components=0)", "components must be a whole number, 1 or more, not 0"),
        ("gaussian(shrinkage=7)", "shrinkage must be a number from 0 to 1, not 7"),
        ("diffusion(steps=-3)", "steps must be a whole number, 0 or more, not -3"),
        ("diffusion(guidance=-1)", "guidance must be a number from 0 to 3.4e+38, not -1"),
        ("diffusion(solver=euler)", "solver must be 'dpm' or 'dpm-snr' or 'ddim' or 'ddpm', not 'euler'"),
        ("diffusion(precision=fp99)", "precision must be 'auto' or 'fp32' or 'bf16', not 'fp99'"),
        ("sd-turbo(steps=0)", "steps must be a whole number, 1 or more, not 0"),
        ("sd-turbo(guidance=-1)", "guidance must be a number from 0 to 3.4e+38, not -1"),
        ("sd-turbo(size=0)", "size must be a multiple of 8, not 0"),
        ("sd-turbo(size=500)", "size must be a multiple of 8, not 500"),
        ("sd-turbo(precision=int8)", "precision must be 'auto' or 'fp32' or 'bf16' or 'fp16', not 'int8'"),
        ("shared(each=-1)", "each must be a whole number, 0 or more, not -1"),
        ("agreeing(of=digits)", "of must be a generator, not 'digits'"),
        ("shared(of=python:mine:images(size=3))", "python:mine:images takes no arguments here"),
        ("agreeing(of=diffusion(steps=few))", "steps must be a whole number, 0 or more, not 'few'"),
    ],
)
def test_malformed_specs_are_refused_in_one_line(text, message):
    with pytest.raises(SpecError) as caught:
        parse_generator(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "field", "choices"),
    [
        (Diffusion, "solver", sampling.Solver),
        (Diffusion, "precision", sampling.Precision),
        (SdTurbo, "precision", text.Precision),
    ],
)
def test_settings_allow_what_the_generator_allows(settings, field, choices):
    assert {*get_args(get_type_hints(settings)[field])} - {""} == {*get_args(choices)}


def saved(path, names=("dark", "light"), shape=(1, 4, 4), **seen):
    tensors = half(TINY.build(shape, len(names)).state_dict())
    Weights(TINY, shape, names, tensors, "ddim", 3, 1.5, {"dataset": "squares", "protocol": "clean", **seen}).save(path)
    return f'diffusion(weights="{path}")'


@pytest.mark.parametrize("spec", ["{}", "agreeing(of={})", "shared(of={})", "held-out"])
def test_every_built_in_generator_describes_itself(spec):
    held_out = replace(SETTING, held_out=(IMAGES, LABELS))
    told = described(parse_generator(spec.format("gaussian(components=4)")).ready(held_out))
    assert "squares" in told or spec == "held-out"
    assert " " in told  # more than the name of its class


def test_gaussians_are_fitted_to_the_training_part():
    made = parse_generator("gaussian(components=4, shrinkage=0.2)").ready(SETTING)
    assert made.fingerprint == GaussianGenerator.fit(IMAGES, LABELS, 2, 4, 0.2).fingerprint


def test_by_default_weights_are_those_of_the_dataset(tmp_path):
    assert parse_generator("diffusion").ready(DIGITS).weights.fingerprint == Weights.load("digits").fingerprint
    made = parse_generator(saved(tmp_path / "w.safetensors")).ready(SETTING)
    assert (made.solver, made.steps, made.guidance) == ("ddim", 3, 1.5)
    with pytest.raises(InputError, match="there are no weights called 'squares'"):
        parse_generator("diffusion").ready(SETTING)


def test_the_sampler_gets_the_settings_of_the_spec():
    spec = "diffusion(solver=ddpm, steps=4, guidance=0, precision=bf16)"
    expected = DiffusionGenerator(Weights.load("digits"), solver="ddpm", steps=4, guidance=0, precision="bf16")
    assert parse_generator(spec).ready(DIGITS).fingerprint == expected.fingerprint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"names": ("a", "b", "c")}, "make 3 classes of 1 x 4 x 4, squares has 2 classes of 1 x 4 x 4"),
        ({"shape": (3, 4, 4)}, "make 2 classes of 3 x 4 x 4, squares has 2 classes of 1 x 4 x 4"),
        ({"shape": (1, 8, 4)}, "make 2 classes of 1 x 8 x 4"),
        ({"protocol": "merged"}, "which a clean run on squares tests on; train it with `fedeas generator"),
        ({"protocol": "merged", "dataset": None}, "which a clean run on squares tests on"),
        ({"seen": SAW_TEST.record}, "which a clean run on squares tests on"),
    ],
)
def test_weights_that_do_not_fit_the_run_are_refused(tmp_path, options, message):
    source = parse_generator(saved(tmp_path / "w.safetensors", **options))
    with pytest.raises(InputError, match=message):
        source.ready(SETTING)


def test_weights_of_unknown_origin_are_used_and_reported(tmp_path):
    source = parse_generator(saved(tmp_path / "w.safetensors", protocol=None))
    assert source.ready(SETTING).num_classes == 2
    assert source.unknown("squares") == (f"{tmp_path}/w.safetensors: which images it has seen",)
    assert source.unknown("squares", "paper") == ()
    assert parse_generator(saved(tmp_path / "w.safetensors")).unknown("squares") == ()


def test_weights_that_saw_test_images_may_be_used_outside_the_clean_protocol(tmp_path):
    source = parse_generator(saved(tmp_path / "w.safetensors", protocol="merged"))
    assert source.ready(replace(SETTING, protocol="merged")).num_classes == 2


def test_a_filter_keeps_the_images_that_its_classifier_confirms(tmp_path, monkeypatch):
    recipe = RECIPES["small-cnn"]
    monkeypatch.setitem(RECIPES, "small-cnn", replace(recipe, epochs=5, batch_size=10))
    judge = Classifier.train(IMAGES, LABELS, 2)
    judge.save(tmp_path / "judge.safetensors")
    read = parse_generator(f'agreeing(of=gaussian(components=4), classifier="{tmp_path}/judge.safetensors")')
    made = [source.ready(SETTING) for source in (read, parse_generator("agreeing(of=gaussian(components=4))"))]
    assert all(isinstance(filtered, Filtered) for filtered in made)
    labels, index = np.repeat([0, 1], 6), np.tile(image_index(1, 6), 2)
    images = made[0].sample(labels, index)
    assert judge.predict(images).tolist() == labels.tolist()
    assert np.array_equal(made[1].sample(labels, index), images)  # a classifier trained for the run is the same


def test_a_classifier_that_is_trained_for_a_filter_is_kept_in_the_bank(tmp_path, monkeypatch):
    train, seeds = Classifier.train, itertools.count()  # each training gives other weights, as on a GPU
    monkeypatch.setattr(Classifier, "train", lambda *given, **more: train(*given, **more, epochs=1, seed=next(seeds)))
    source, context = parse_generator("agreeing(of=gaussian(components=4))"), replace(SETTING, bank=tmp_path)
    first = source.ready(context).fingerprint
    assert source.ready(context).fingerprint == first
    (file,) = tmp_path.glob("classifiers/*.safetensors")
    file.write_bytes(file.read_bytes()[:100])
    second = source.ready(context).fingerprint
    assert second != first
    assert source.ready(context).fingerprint == second
    source.ready(replace(context, images=IMAGES[::-1]))
    assert len([*tmp_path.glob("classifiers/*.safetensors")]) == 2  # other images, another classifier


def test_the_classifier_of_a_filter_uses_the_device_of_the_run(tmp_path, monkeypatch):
    places = []
    monkeypatch.setattr("fedeas.generators.kinds.seen_by", lambda path: NOT_KNOWN)
    monkeypatch.setattr(Classifier, "load", lambda path, device="cpu": places.append((path, device)))
    monkeypatch.setattr("fedeas.generators.filtered.Filtered", lambda source, judge: None)
    parse_generator('agreeing(of=gaussian(components=4), classifier="c.safetensors")').ready(
        replace(SETTING, device="cuda")
    )
    assert places == [("c.safetensors", "cuda")]


def test_a_callable_becomes_a_generator(monkeypatch):
    monkeypatch.chdir(ROOT)
    made = parse_generator("python:examples.custom_generator:stripes").ready(DIGITS)
    labels, index = np.arange(10), image_index(3, 10)
    assert made.sample(labels, index).shape == (10, 1, 8, 8)
    assert np.array_equal(made.sample(labels[4:], index[4:]), made.sample(labels, index)[4:])


@pytest.mark.parametrize("name", ["examples.custom_generator:nothing", "examples.none:stripes", "no module"])
def test_a_missing_callable_is_refused(monkeypatch, name):
    monkeypatch.chdir(ROOT)
    with pytest.raises(FedEASError) as caught:
        parse_generator(f"python:{name}").ready(DIGITS)
    assert "\n" not in str(caught.value)


def test_the_content_of_diffusion_is_that_of_its_weights_file(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDEAS_WEIGHTS", str(tmp_path))
    by_path = parse_generator(saved(tmp_path / "npz-squares-npz.safetensors"))
    by_name = parse_generator("diffusion(weights=npz-squares-npz)")
    by_dataset = parse_generator("diffusion")
    content = by_path.content("any")
    assert content["weights"] == weights_digest(tmp_path / "npz-squares-npz.safetensors")
    assert by_name.content("any") == by_dataset.content("npz:squares.npz") == content
    assert by_dataset.content("digits")["weights"] == weights_digest(generator_weights("digits"))
    with pytest.raises(InputError, match="there are no weights called 'other'"):
        by_dataset.content("other")


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"provenance": {"dataset": "squares", "protocol": "clean", "device": "another"}}, True),
        ({"class_names": ("night", "day")}, True),
        ({"guidance": 3.0}, False),
        ({"steps": 4}, False),
        ({"network": replace(TINY, schedule="linear")}, False),
        ({"tensors": half(TINY.build((1, 4, 4), 2, seed=1).state_dict())}, False),
    ],
)
def test_the_content_of_diffusion_changes_with_its_images(tmp_path, changes, same):
    path = tmp_path / "w.safetensors"
    source = parse_generator(saved(path))
    before, images = source.content("squares"), source.ready(SETTING).sample([0, 1], [0, 0])
    replace(Weights.load(path), **changes).save(path)
    assert (source.content("squares") == before) is same
    assert np.array_equal(source.ready(SETTING).sample([0, 1], [0, 0]), images) is same


@pytest.fixture
def judge(tmp_path, monkeypatch):
    """A classifier, and its file."""
    recipe = RECIPES["small-cnn"]
    monkeypatch.setitem(RECIPES, "small-cnn", replace(recipe, epochs=1))
    classifier = Classifier.train(IMAGES, LABELS, 2)
    classifier.save(tmp_path / "judge.safetensors")
    return classifier


def test_the_content_of_a_filter_is_that_of_its_source_and_its_classifier(tmp_path, judge):
    path, inner = tmp_path / "judge.safetensors", saved(tmp_path / "w.safetensors")
    source = parse_generator(f'agreeing(of={inner}, classifier="{path}")')
    content = source.content("squares")
    assert content["classifier"] == weights_digest(path)
    inside = {f"of {name}": value for name, value in parse_generator(inner).content("squares").items()}
    assert inside.items() <= content.items()
    assert parse_generator(f"agreeing(of={inner})").content("squares") == inside
    replace(judge, test_accuracy=0.5).save(path)
    assert source.content("squares") == content
    replace(judge, mean=(0.1,)).save(path)  # the same tensors, but other answers
    assert source.content("squares") != content


@pytest.mark.parametrize(
    ("seen", "refused", "unknown"),
    [(SAW_TEST, True, 0), (NOT_KNOWN, False, 1), (Seen("squares", ("train",)), False, 0)],
)
def test_a_classifier_that_saw_test_images_is_refused(tmp_path, judge, seen, refused, unknown):
    path = tmp_path / "judge.safetensors"
    replace(judge, seen=seen).save(path)
    source = parse_generator(f'agreeing(of=gaussian(components=4), classifier="{path}")')
    assert Classifier.load(path).seen == seen
    assert len(source.unknown("squares")) == unknown
    assert isinstance(source.ready(replace(SETTING, protocol="paper")), Filtered)
    if refused:
        with pytest.raises(InputError, match="which a clean run on squares tests on; leave it out"):
            source.ready(SETTING)
    else:
        assert isinstance(source.ready(SETTING), Filtered)


def test_each_of_two_classifiers_counts(tmp_path, judge):
    other = tmp_path / "other.safetensors"
    replace(judge, mean=(0.1,)).save(other)
    spec = 'agreeing(of=agreeing(of=gaussian, classifier="{}"), classifier="{}")'
    pairs = itertools.product((tmp_path / "judge.safetensors", other), repeat=2)
    contents = [parse_generator(spec.format(*pair)).content("squares") for pair in pairs]
    assert all(one != two for one, two in itertools.combinations(contents, 2))


def test_a_model_in_a_folder_is_hashed_and_one_on_the_hub_is_reported_as_unknown(tmp_path):
    (tmp_path / "unet").mkdir()
    (tmp_path / "unet" / "config.json").write_text("{}")
    local = parse_generator(f'sd-turbo(model="{tmp_path}")')
    before = local.content("squares")
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "lock").write_text("now")
    assert local.content("squares") == before
    (tmp_path / "unet" / "more.json").write_text("{}")
    after = local.content("squares")
    (tmp_path / "unet" / "more.json").rename(tmp_path / "unet" / "most.json")
    assert len({json.dumps(one) for one in (before, after, local.content("squares"))}) == 3
    assert local.unknown("squares") == (f"{tmp_path}: which images it has seen",)
    hub = parse_generator("sd-turbo")
    assert hub.content("squares") == {}
    assert hub.unknown("squares", "paper") == ("stabilityai/sd-turbo: the revision that the hub serves",)


def test_imports_and_files_of_code_are_reported_as_unknown(monkeypatch):
    monkeypatch.chdir(ROOT)
    source = parse_generator("python:examples.custom_generator:stripes")
    assert list(source.content("digits")) == ["code"]
    code, seen = source.unknown("digits")
    assert code == f"{source.spec}: code that its module imports and files that it reads"
    assert seen == f"{source.spec}: which images it has seen"
    assert source.unknown("digits", "paper") == (code,)


def test_clients_share_the_images_of_ones_own_code_which_counts_in_the_identity(monkeypatch):
    monkeypatch.chdir(ROOT)
    own = parse_generator("python:examples.custom_generator:stripes")
    shared = parse_generator(f"shared(of={own})")
    assert shared.content("digits") == {"of code": own.content("digits")["code"]}
    assert shared.unknown("digits") == own.unknown("digits")
    one, other = (shared.ready(DIGITS).sample([3, 3], image_index(client, 2)) for client in (0, 7))
    assert np.array_equal(one, other)
    assert np.array_equal(one, own.ready(DIGITS).sample([3, 3], [0, 1]))


@pytest.mark.parametrize("spec", ["gaussian", "agreeing(of=gaussian)"])
def test_gaussians_depend_on_nothing_but_their_spec_and_the_data(spec):
    assert parse_generator(spec).content("digits") == {}
    assert parse_generator(spec).unknown("digits") == ()


def test_identities_are_computed_without_torch():
    script = """
import sys
sys.modules["torch"] = sys.modules["safetensors.torch"] = None
from fedeas.core.weight_files import model_weights, weights_digest
from fedeas.generators.kinds import parse_generator
own = parse_generator("agreeing(of=diffusion)").content("digits")["of weights"]
print(own, weights_digest(model_weights("digits")))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [weights_digest(generator_weights("digits"))] * 2
