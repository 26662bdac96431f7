"""Presets, the noise of an address, weight files, and the digits weights in the package."""

import json
import pickle
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

from fedeas.core.errors import InputError
from fedeas.core.weight_files import generator_weights
from fedeas.data.sources import load_dataset
from fedeas.generators.base import address_noise
from fedeas.generators.diffusion.noise import DeviceNoise
from fedeas.generators.diffusion.presets import NOISE_LEVELS, PRESETS, Network, Preset, preset
from fedeas.generators.diffusion.sampling import DiffusionGenerator
from fedeas.generators.diffusion.weights import Weights, half

# diffusers makes an array of a tensor in a way that numpy 2 wants otherwise; only tests make errors of such warnings.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")

TINY = Network((8, 16), layers=1, attention=(False, False), groups=4)
SHAPE, NAMES = (1, 4, 4), ("a", "b", "c")
TENSORS = half(TINY.build(SHAPE, 3, seed=1).state_dict())
WEIGHTS = Weights(TINY, SHAPE, NAMES, TENSORS, "ddim", 7, 2.5, {"dataset": "none", "protocol": "clean", "data": "12"})


def parameters(name, shape=(3, 32, 32), classes=10):
    return sum(parameter.numel() for parameter in PRESETS[name].network.build(shape, classes).parameters())


def test_the_paper_preset_has_the_papers_settings():
    paper = preset("paper")
    assert paper.network.widths == tuple(64 * factor for factor in (1, 2, 4, 8))
    assert (paper.network.schedule, paper.network.target, NOISE_LEVELS) == ("linear", "epsilon", 1000)
    assert (paper.batch, paper.updates, paper.solver, paper.steps) == (128, 300_000, "ddpm", 250)


def test_the_compact_preset_is_compact():
    count = parameters("compact")
    assert 14e6 < count < 16e6
    assert 2 * count < 30e6  # bytes in half precision


@pytest.mark.parametrize("target", ["epsilon", "v_prediction"])
def test_a_network_comes_back_from_json(target):
    network = replace(PRESETS["compact"].network, target=target)
    assert Network.of(json.loads(json.dumps(asdict(network)))) == network


def test_initial_weights_depend_on_the_seed_alone():
    before = torch.get_rng_state()
    first, again, other = (TINY.build(SHAPE, 3, seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)
    assert torch.equal(torch.get_rng_state(), before)


def test_images_that_cannot_be_halved_are_refused():
    with pytest.raises(InputError, match="images of 8 x 6 cannot be halved 2 times; use a smaller preset"):
        PRESETS["compact"].network.build((3, 8, 6), 10)
    with pytest.raises(
        InputError, match="no preset is called 'huge'; choose one of digits, quick, small, compact, paper"
    ):
        preset("huge")


@given(st.floats(1e-6, 1), st.integers(0, 400), st.integers(1, 2000))
def test_the_learning_rate_rises_stays_and_falls(lr, warm_up, updates):
    rule = Preset(TINY, batch=8, updates=updates, lr=lr, ema=0.9, warm_up=warm_up)
    rates = np.array([rule.rate(update, updates) for update in range(updates)])
    assert (rates > 0).all()
    assert (rates <= lr).all()
    falling = np.arange(updates) >= 0.9 * updates
    assert (np.diff(rates[~falling]) >= 0).all()
    level = (np.arange(updates) + 1 >= warm_up) & ~falling
    assert (rates[level] == lr).all()
    assert rates[-1] <= lr * min(1, 10 / updates) * (1 + 1e-9)  # the last step down to zero
    if warm_up < 0.9 * updates:
        assert (np.diff(rates[falling]) < 0).all()


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2**63 - 1)), min_size=1, max_size=5),
    st.integers(1, 70),
    st.integers(0, 1000),
)
def test_noise_on_the_device_is_the_noise_of_the_address(pairs, size, number):
    labels, index = np.array(pairs).T
    piece = DeviceNoise(labels, index, size, torch.device("cpu")).piece(number)
    start = number * 4 * -(-size // 4)
    expected = address_noise(labels, index, start + size)[:, start:]
    assert piece.dtype == torch.float32
    assert np.array_equal(piece.numpy().astype(np.float64), expected)  # float32 holds whole 4096ths exactly


def test_saved_and_loaded_bit_for_bit(tmp_path):
    WEIGHTS.save(tmp_path / "w.safetensors")
    loaded = Weights.load(tmp_path / "w.safetensors")
    assert loaded.fingerprint == WEIGHTS.fingerprint
    assert all(torch.equal(loaded.tensors[name], TENSORS[name]) for name in TENSORS)
    for name in ("network", "shape", "class_names", "solver", "steps", "guidance", "provenance"):
        assert getattr(loaded, name) == getattr(WEIGHTS, name)
    assert [path.name for path in tmp_path.iterdir()] == ["w.safetensors"]


def test_the_fingerprint_depends_on_weights_and_training_data():
    first = next(iter(TENSORS))
    others = [
        replace(WEIGHTS, tensors={**TENSORS, first: TENSORS[first] + 1}),
        replace(WEIGHTS, network=replace(TINY, schedule="linear")),
        replace(WEIGHTS, network=replace(TINY, target="v_prediction")),
        *(replace(WEIGHTS, provenance={**WEIGHTS.provenance, key: "x"}) for key in ("dataset", "protocol", "data")),
    ]
    assert len({WEIGHTS.fingerprint, *(other.fingerprint for other in others)}) == 7
    alike = [
        replace(WEIGHTS, class_names=("x", "y", "z")),
        replace(WEIGHTS, provenance={**WEIGHTS.provenance, "minutes": 3, "device": "a faster one"}),
        replace(WEIGHTS, solver="dpm", steps=3, guidance=1.0),  # the generator's own fingerprint has these
    ]
    assert {other.fingerprint for other in alike} == {WEIGHTS.fingerprint}


def refused(path):
    with pytest.raises(InputError) as caught:
        Weights.load(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)


class Trap:
    """Unpickled, it would leave a mark."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was opened",))


@pytest.mark.parametrize("name", ["w.pt", "w.bin", "w.pkl", "folder/w"])
def test_pickled_files_are_not_opened(tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / name).write_bytes(pickle.dumps(Trap()))
    assert "generators are .safetensors files; pickled checkpoints are not opened" in refused(tmp_path / name)


def test_files_that_are_no_generator_are_refused(tmp_path):
    path = tmp_path / "w.safetensors"
    assert "no such file; make it with `fedeas generator train`" in refused(path)
    WEIGHTS.save(path)
    whole = path.read_bytes()
    for content in (pickle.dumps(Trap()), b"", whole[:20], whole[:2000], whole[:-1]):
        path.write_bytes(content)
        assert "not a readable .safetensors file" in refused(path)
    path.unlink()
    path.mkdir()
    assert "not a readable .safetensors file" in refused(path)


@pytest.mark.parametrize("metadata", [None, {"fedeas": "{}"}, {"fedeas": "[]"}, {"fedeas": '{"format": "other"}'}])
def test_tensors_of_something_else_are_refused(tmp_path, metadata):
    save_file({"mean": torch.zeros(3)}, tmp_path / "w.safetensors", metadata)
    assert "not a diffusion generator of this version" in refused(tmp_path / "w.safetensors")


def rewritten(path, tensors=TENSORS, **changes):
    """Saved weights with other tensors, or with their description changed; None takes a part of it away."""
    WEIGHTS.save(path)
    with safe_open(path, framework="pt") as file:
        about = json.loads(file.metadata()["fedeas"]) | changes
    about = {name: value for name, value in about.items() if value is not None}
    save_file(dict(tensors), path, {"fedeas": json.dumps(about)})
    return path


FIRST = next(iter(TENSORS))


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({name: TENSORS[name] for name in list(TENSORS)[1:]}, f"{FIRST} is missing, the network has torch.float16"),
        ({**TENSORS, "more": torch.zeros(1)}, "more is torch.float32 (1,), the network has nothing of this name"),
        ({**TENSORS, FIRST: torch.zeros(2, 2).half()}, rf"{FIRST} is torch.float16 (2, 2), the network has"),
        ({**TENSORS, FIRST: TENSORS[FIRST].bfloat16()}, f"{FIRST} is torch.bfloat16 "),
    ],
)
def test_tensors_that_do_not_fit_are_refused(tmp_path, tensors, message):
    assert message in refused(rewritten(tmp_path / "w.safetensors", tensors))


@pytest.mark.parametrize(
    "changes",
    [
        *({name: None} for name in ("network", "shape", "class_names", "sampler", "provenance")),
        {"network": {**asdict(TINY), "colour": 3}},
        {"network": {**asdict(TINY), "groups": 7}},
        {"shape": [1, 4]},
        {"shape": [1, 5, 4]},
        {"sampler": {}},
    ],
)
def test_a_description_that_makes_no_network_is_refused(tmp_path, changes):
    assert "its description cannot be used" in refused(rewritten(tmp_path / "w.safetensors", **changes))


def test_the_packaged_digits_weights_are_small_and_saw_no_test_images():
    path, data = generator_weights("digits"), load_dataset("digits")
    assert path.stat().st_size < 2_000_000
    weights = Weights.load("digits")
    assert (weights.shape, weights.class_names) == (data.shape, data.classes)
    assert {"dataset": "digits", "protocol": "clean"}.items() <= weights.provenance.items()
    assert weights.network == PRESETS["digits"].network
    assert weights.finite


ROOT = Path(__file__).parents[2]


@pytest.mark.usefixtures("with_bf16")
@pytest.mark.parametrize(("place", "precision"), [("digits", "fp32"), (ROOT / "weights/cifar10.safetensors", "bf16")])
def test_packaged_reports_belong_to_these_weights_and_their_default_sampler(place, precision):
    path = generator_weights(place)
    report = json.loads(path.with_suffix(".report.json").read_text())
    generator = DiffusionGenerator(Weights.load(path), precision=precision)
    assert report["generator"] == generator.fingerprint
    assert report["agreement"] > 0.9
    assert report["copies"] == 0
    assert path.stat().st_size < 30_000_000
