"""Sampling: one address, one image; solvers against closed forms; guidance; fingerprints."""

import logging
import math
import warnings
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from diffusers import DDPMScheduler
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from fedeas.core.devices import computes_in_bf16
from fedeas.core.errors import InputError
from fedeas.generators.base import address_noise, image_index
from fedeas.generators.diffusion.noise import DeviceNoise
from fedeas.generators.diffusion.presets import Network
from fedeas.generators.diffusion.sampling import DiffusionGenerator, scheduler_for
from fedeas.generators.diffusion.weights import Weights, half

# diffusers makes an array of a tensor in a way that numpy 2 wants otherwise; only tests make errors of such warnings.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")

CPU = torch.device("cpu")
TINY = Network((8, 16), layers=1, attention=(False, False), groups=4)
SHAPE = (1, 8, 8)
SOLVERS = ["dpm", "dpm-snr", "ddim", "ddpm"]


def weights_of(network=TINY, shape=SHAPE, **fields):
    tensors = half(network.build(shape, 3, seed=1).state_dict())
    return Weights(network, shape, ("a", "b", "c"), tensors, **fields)


WEIGHTS = weights_of()
DIGITS = Weights.load("digits")


@cache
def generator_of(name):
    return DiffusionGenerator(WEIGHTS, solver=name, steps=3, guidance=1.5, batch_size=8)


addresses = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2**63 - 1)), min_size=1, max_size=20)


@settings(max_examples=15)
@given(addresses, st.sampled_from(SOLVERS), st.randoms(use_true_random=False))
def test_images_do_not_depend_on_order_repetition_and_batches(pairs, name, random):
    labels, index = np.array(pairs).T
    images = generator_of(name).sample(labels, index)
    chosen = random.choices(range(len(pairs)), k=len(pairs))
    assert np.array_equal(generator_of(name).sample(labels[chosen], index[chosen]), images[chosen])
    alone = random.randrange(len(pairs))
    assert np.array_equal(generator_of(name).sample(labels[[alone]], index[[alone]])[0], images[alone])


@pytest.mark.parametrize("count", [0, 1, 3, 8, 9, 16, 17])
def test_the_first_images_do_not_depend_on_how_many_are_requested(count):
    labels, index = np.arange(17) % 3, image_index(5, 17)
    whole = generator_of("dpm").sample(labels, index)
    images = generator_of("dpm").sample(labels[:count], index[:count])
    assert images.dtype == np.uint8
    assert np.array_equal(images, whole[:count])
    assert len(np.unique(whole.reshape(17, -1), axis=0)) == 17


@pytest.mark.parametrize("name", SOLVERS)
def test_the_batch_size_changes_pixels_by_one_grey_level_at_most(name):
    """Matrix products of another size may sum in another order."""
    labels, index = np.arange(40) % 10, image_index(0, 40)
    small, large = (
        DiffusionGenerator(DIGITS, solver=name, steps=5, batch_size=size).sample(labels, index).astype(int)
        for size in (8, 32)
    )
    assert np.abs(small - large).max() <= 1


@pytest.mark.parametrize("target", ["epsilon", "v_prediction"])
@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize("steps", [10, 250])
def test_an_ancestral_step_equals_ddpms(target, schedule, steps):
    network = replace(TINY, schedule=schedule, target=target)
    generator = DiffusionGenerator(weights_of(network), solver="ddpm", steps=steps)
    ours = scheduler_for("ddpm", network, steps)
    ddpm = DDPMScheduler(**network.scheduler_settings(), variance_type="fixed_small", clip_sample=True)
    ddpm.set_timesteps(steps)
    assert torch.equal(ours.timesteps, ddpm.timesteps)
    ours.alphas_cumprod = ddpm.alphas_cumprod = ddpm.alphas_cumprod.double()  # in single precision rounding shows
    noise = DeviceNoise(np.array([0, 1]), np.array([4, 5]), math.prod(SHAPE), CPU)
    for number, level in enumerate(ours.timesteps):
        extra = generator._step_noise(noise, number)
        extra["variance_noise"] = drawn(number)  # what DDPM will draw for itself
        sample, predicted = drawn(number + 1000), drawn(number + 2000)
        step = ours.step(predicted, level, sample, **extra).prev_sample
        expected = ddpm.step(predicted, level, sample, generator=torch.Generator().manual_seed(number)).prev_sample
        assert (step - expected).abs().max() < 1e-5


def drawn(seed):
    return torch.randn((2, *SHAPE), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_ancestral_steps_take_fresh_noise_of_the_address():
    labels, index, size = np.array([2, 0]), np.array([9, 1 << 62]), math.prod(SHAPE)
    noise = DeviceNoise(labels, index, size, CPU)
    for number in (0, 5):
        fresh = generator_of("ddpm")._step_noise(noise, number)["variance_noise"].flatten(1).numpy()
        start = (number + 1) * size  # number 0 is where denoising starts
        assert np.array_equal(fresh, address_noise(labels, index, start + size)[:, start:])
    assert generator_of("ddim")._step_noise(noise, 0) == generator_of("dpm")._step_noise(noise, 0) == {}


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize(("name", "most"), [("dpm", 990), ("dpm-snr", 30), ("ddim", 990), ("ddpm", 990)])
@settings(max_examples=15)
@given(data=st.data())
def test_a_step_is_one_evaluation_of_the_network(schedule, name, most, data):
    steps = data.draw(st.integers(1, most))
    assert len(scheduler_for(name, replace(TINY, schedule=schedule), steps).timesteps.unique()) == steps


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@settings(max_examples=15)
@given(steps=st.integers(2, 30), first=st.sampled_from([5.1, 4.0, 2.5]))
def test_dpm_snr_spaces_its_levels_evenly_in_the_log_of_signal_to_noise(schedule, steps, first):
    found = scheduler_for("dpm-snr", replace(TINY, schedule=schedule), steps, first)
    levels, log_snr = found.timesteps, found.lambda_t
    wanted = torch.linspace(max(log_snr[-1].item(), -first), log_snr[0].item(), steps)
    others = (log_snr[:, None] - wanted).abs().amin(dim=0)
    assert torch.allclose((log_snr[levels] - wanted).abs(), others, atol=1e-5)  # no level is nearer
    assert levels[-1] == 0
    assert (levels.diff() < 0).all()


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize("name", ["dpm", "dpm-snr"])
def test_a_solver_begins_at_the_first_level(name, schedule):
    found = scheduler_for(name, replace(TINY, schedule=schedule), 10, 3.0)
    assert found.lambda_t[found.timesteps[0]].item() == pytest.approx(-3.0, abs=0.1)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_more_steps_than_noise_levels_are_refused(schedule):
    weights = weights_of(replace(TINY, schedule=schedule))
    assert DiffusionGenerator(weights, solver="ddpm", steps=1000).steps == 1000
    with pytest.raises(InputError, match=r"dpm has only 99\d noise levels for 1000 steps; take fewer"):
        DiffusionGenerator(weights, solver="dpm", steps=1000)


def sampled_with(network, name, steps, prediction, labels):
    """What comes out with the network replaced by a formula of sample, signal, noise share and classes."""
    generator = DiffusionGenerator(weights_of(network), solver=name, steps=steps, batch_size=len(labels))
    abar = DDPMScheduler(**network.scheduler_settings()).alphas_cumprod

    def called(sample, level, classes):
        signal, share = (value.sqrt()[:, None, None, None] for value in (abar[level], 1 - abar[level]))
        clean = prediction(sample, signal, share, classes)
        noise = (sample - signal * clean) / share
        return noise if network.target == "epsilon" else signal * noise - share * clean

    generator._network_call = called
    return generator.sample(labels, np.arange(len(labels))).astype(int)


networks = pytest.mark.parametrize(
    "network",
    [replace(TINY, schedule=a, target=b) for a in ("linear", "cosine") for b in ("epsilon", "v_prediction")],
    ids=lambda network: f"{network.schedule}-{network.target}",
)


@networks
@pytest.mark.parametrize(
    ("name", "steps"), [(name, steps) for name in SOLVERS for steps in (1, 7, 30 if name == "dpm-snr" else 50)]
)
def test_with_one_image_for_each_class_sampling_returns_these_images(network, name, steps):
    pixels = np.random.default_rng(0).integers(0, 256, (3, *SHAPE))
    clean, labels = torch.from_numpy(pixels / 127.5 - 1).float(), np.array([0, 1, 2, 1])
    images = sampled_with(network, name, steps, lambda sample, signal, share, classes: clean[classes], labels)
    assert np.abs(images - pixels[labels]).max() <= 1


@networks
@pytest.mark.parametrize(
    ("name", "steps", "grey"), [("dpm", 100, 2), ("dpm", 900, 2), ("dpm-snr", 30, 2), ("ddim", 500, 2)]
)
def test_for_gaussian_data_samples_are_scaled_noise(network, name, steps, grey):
    """Along the probability flow N(0, 1) becomes N(0, s^2) by scaling, and the best guess of the image is linear."""
    s, labels = 0.2, np.array([0, 1, 2, 1])

    def prediction(sample, signal, share, classes):
        return signal * s**2 * sample / (signal**2 * s**2 + share**2)

    images = sampled_with(network, name, steps, prediction, labels)
    noise = address_noise(labels, np.arange(4), math.prod(SHAPE)).reshape(images.shape)
    assert np.abs(images - (s * noise + 1) * 127.5).max() <= grey


def test_ancestral_sampling_of_gaussian_data_has_their_spread():
    s, labels = 0.2, np.arange(40) % 3

    def prediction(sample, signal, share, classes):
        return signal * s**2 * sample / (signal**2 * s**2 + share**2)

    pixels = sampled_with(TINY, "ddpm", 250, prediction, labels) / 127.5 - 1
    assert abs(pixels.mean()) < 4 * s / math.sqrt(pixels.size)
    assert abs(pixels.std() / s - 1) < 4 / math.sqrt(2 * pixels.size) + 0.02  # and an error of the steps


class Linear:
    """In place of the network: a prediction that tells its inputs apart; the last class is "no class"."""

    def __call__(self, sample, level, class_labels):
        scale = (1 + class_labels.float() ** 2 + level.float())[:, None, None, None]
        return SimpleNamespace(sample=sample * scale)


@given(st.floats(0, 20))
def test_guidance_is_linear_extrapolation_from_no_class(guidance):
    generator = DiffusionGenerator(WEIGHTS, guidance=guidance)
    sample, level, classes = torch.randn(3, 1, 2, 2), torch.tensor([7, 8, 9]), torch.tensor([2, 0, 1])
    conditional = Linear()(sample, level, classes).sample
    plain = Linear()(sample, level, torch.full_like(classes, 3)).sample
    predicted = generator._predict(Linear(), sample, level, classes)
    torch.testing.assert_close(predicted, plain + guidance * (conditional - plain), rtol=1e-4, atol=1e-4)


def test_without_guidance_the_network_is_evaluated_once():
    sample, level, classes = torch.randn(3, 1, 2, 2), torch.tensor([7, 8, 9]), torch.tensor([2, 0, 1])
    generator = DiffusionGenerator(WEIGHTS, guidance=1)
    asked = []

    def network(sample, level, class_labels):
        asked.append(class_labels.tolist())
        return Linear()(sample, level, class_labels)

    predicted = generator._predict(network, sample, level, classes)
    assert torch.equal(predicted, Linear()(sample, level, classes).sample)
    assert asked == [[2, 0, 1]]


@pytest.mark.usefixtures("with_bf16")
@pytest.mark.parametrize(("name", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
@pytest.mark.parametrize("guidance", [1, 2])
def test_the_network_is_evaluated_in_the_chosen_precision(name, dtype, guidance):
    asked = []

    def network(sample, level, class_labels):
        asked.append(sample.dtype)
        return Linear()(sample, level, class_labels)

    generator = DiffusionGenerator(WEIGHTS, precision=name, guidance=guidance)
    sample, level, classes = torch.randn(3, 1, 2, 2), torch.tensor([7, 8, 9]), torch.tensor([2, 0, 1])
    assert generator._predict(network, sample, level, classes).dtype == torch.float32
    assert asked == [dtype]


@pytest.mark.skipif(not computes_in_bf16(), reason="needs a processor that computes in bf16")
def test_a_lower_precision_changes_images_only_slightly():
    labels, index = np.arange(6) % 3, np.arange(6)
    exact, rough = (
        DiffusionGenerator(WEIGHTS, precision=name, steps=3).sample(labels, index) for name in ("fp32", "bf16")
    )
    assert not np.array_equal(exact, rough)
    assert np.abs(exact.astype(int) - rough).mean() < 10


@pytest.fixture
def without_bf16(monkeypatch):
    """A processor like some ARM ones: torch warns that it cannot convolve in bf16, and goes on without oneDNN."""
    convolve = functional.conv2d

    def warned(images, *rest):
        if images.dtype == torch.bfloat16 or torch.is_autocast_enabled("cpu"):
            torch.backends.mkldnn.enabled = False
            warnings.warn("bf16 is not supported on this processor", stacklevel=2)
        return convolve(images, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(functional, "conv2d", warned)
        computes_in_bf16.cache_clear()
        yield
    computes_in_bf16.cache_clear()


@pytest.mark.usefixtures("without_bf16")
def test_trying_bf16_leaves_one_dnn_switched_on():
    assert not computes_in_bf16()
    assert torch.backends.mkldnn.enabled


@pytest.mark.usefixtures("without_bf16")
def test_a_processor_without_bf16_uses_fp32_and_warns_once(caplog):
    with caplog.at_level(logging.WARNING, "fedeas"):
        rough = [DiffusionGenerator(WEIGHTS, precision="bf16", steps=3) for _ in range(2)]
    exact = DiffusionGenerator(WEIGHTS, precision="fp32", steps=3)
    assert {each.precision for each in rough} == {"fp32"}
    assert {each.fingerprint for each in rough} == {exact.fingerprint}
    assert len(caplog.records) == 1
    assert np.array_equal(rough[0].sample([0, 1], [0, 1]), exact.sample([0, 1], [0, 1]))


@pytest.mark.usefixtures("with_bf16")
def test_the_fingerprint_depends_on_what_determines_the_images():
    def print_of(weights=WEIGHTS, **changes):
        return DiffusionGenerator(weights, **{"solver": "dpm", "steps": 5, "guidance": 2.0, **changes}).fingerprint

    first = print_of()
    others = [
        print_of(solver="ddim"),
        print_of(steps=6),
        print_of(guidance=2.5),
        print_of(first=3.2),
        print_of(precision="bf16"),
        print_of(replace(WEIGHTS, tensors={name: tensor + 1 for name, tensor in WEIGHTS.tensors.items()})),
        print_of(replace(WEIGHTS, provenance={"protocol": "merged"})),
    ]
    assert len({first, *others}) == 8
    alike = [
        print_of(batch_size=3),
        print_of(device="cuda", precision="fp32"),  # the device itself does not count, its usual precision does
        print_of(compiled=True),
        print_of(guidance=2),
        print_of(replace(WEIGHTS, class_names=("x", "y", "z"))),
        print_of(replace(WEIGHTS, solver="ddim", steps=9, guidance=0.0)),  # what was not asked for
    ]
    assert set(alike) == {first}
    assert print_of(device="cuda") == print_of(precision="bf16")


def test_the_weights_give_the_default_sampler():
    weights = weights_of(solver="ddim", steps=7, guidance=2.5, provenance={"dataset": "rings", "protocol": "clean"})
    generator = DiffusionGenerator(weights)
    assert (generator.solver, generator.steps, generator.guidance) == ("ddim", 7, 2.5)
    assert generator.description == "diffusion on rings (clean), ddim-7, guidance 2.5, fp32"
    assert DiffusionGenerator(weights, guidance=0).guidance == 0
    assert [DiffusionGenerator(weights, solver=name).steps for name in ("dpm", "ddpm")] == [20, 250]
    assert DiffusionGenerator(WEIGHTS, guidance=1).description == "diffusion on unknown data (unknown), dpm-20, fp32"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": "euler"}, "solver must be one of dpm, dpm-snr, ddim, ddpm, not 'euler'"),
        ({"steps": -1}, "steps must be between 1 and 1000, not -1"),
        ({"steps": 1001}, "steps must be between 1 and 1000, not 1001"),
        ({"guidance": -0.5}, "guidance must be 0 or more, not -0.5"),
        ({"guidance": math.nan}, "guidance must be 0 or more, not nan"),
        ({"precision": "fp8"}, "precision must be one of auto, fp32, bf16, not 'fp8'"),
        ({"batch_size": -2}, "batch_size must be 1 or more, not -2"),
    ],
)
def test_what_cannot_be_used_is_refused(options, message):
    with pytest.raises(InputError) as caught:
        DiffusionGenerator(WEIGHTS, **options)
    assert str(caught.value) == message


@pytest.mark.parametrize(("labels", "index"), [([3], [0]), ([0], [-1]), ([0, 1], [0])])
def test_invalid_addresses_are_refused(labels, index):
    with pytest.raises(InputError):
        generator_of("dpm").sample(labels, index)


def test_out_of_memory_halves_the_batch(monkeypatch, caplog):
    labels, index = np.arange(11) % 3, np.arange(11)
    expected = generator_of("dpm").sample(labels, index)
    generator, real = DiffusionGenerator(WEIGHTS, steps=3, guidance=1.5, batch_size=8), DiffusionGenerator._images

    def scarce(self, labels, index):
        if self.batch_size > 2:
            raise torch.OutOfMemoryError("a small device")
        return real(self, labels, index)

    monkeypatch.setattr(DiffusionGenerator, "_images", scarce)
    with caplog.at_level(logging.WARNING, "fedeas"):
        images = generator.sample(labels, index)
    assert np.abs(images.astype(int) - expected).max() <= 1
    assert generator.batch_size == 2
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        ("fedeas", f"out of memory while sampling; continuing with {size} images at a time") for size in (4, 2)
    ]


def test_a_single_image_that_does_not_fit_is_an_error(monkeypatch):
    def full(self, labels, index):
        raise torch.OutOfMemoryError("a full device")

    monkeypatch.setattr(DiffusionGenerator, "_images", full)
    with pytest.raises(torch.OutOfMemoryError, match="a full device"):
        DiffusionGenerator(WEIGHTS, batch_size=1).sample([0], [0])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
class TestOnAGpu:
    def test_images_nearly_equal_those_of_the_cpu(self):
        labels, index = np.arange(40) % 10, image_index(0, 40)
        on_cpu = DiffusionGenerator(DIGITS).sample(labels, index).astype(int)
        on_gpu = DiffusionGenerator(DIGITS, device="cuda", precision="fp32", batch_size=32).sample(labels, index)
        assert np.abs(on_cpu - on_gpu).mean() < 0.5

    @pytest.mark.parametrize("name", SOLVERS)
    def test_images_do_not_depend_on_order_repetition_and_batches(self, name):
        generator = DiffusionGenerator(DIGITS, solver=name, steps=6, guidance=1.5, device="cuda", batch_size=16)
        rng = np.random.default_rng(0)
        labels, index = rng.integers(0, 10, 50), rng.integers(0, 2**63, 50)
        images, chosen = generator.sample(labels, index), rng.integers(0, 50, 50)
        assert np.array_equal(generator.sample(labels[chosen], index[chosen]), images[chosen])
        assert np.array_equal(generator.sample(labels[:1], index[:1]), images[:1])
