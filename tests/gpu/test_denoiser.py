"""The fused network and its kernels compute what diffusers and torch compute step by step.

Kernels run on a GPU, or, where Triton is there, in its interpreter (TRITON_INTERPRET=1).
"""

import importlib.util
import os

import pytest
import torch
from diffusers import DPMSolverMultistepScheduler
from torch import nn
from torch.nn import functional

from fedeas.generators.diffusion.presets import Network
from fedeas.generators.diffusion.sampling import scheduler_for
from fedeas.gpu.denoiser import FusedNetwork, _padded_outputs, _with_bias_as_channel, _with_ones
from fedeas.gpu.denoiser import doubling_weights as quarters_of

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
RUNS = torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1"
WITH_KERNELS = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None or not RUNS, reason="needs Triton, and a GPU or its interpreter"
)

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


@pytest.fixture(autouse=True)
def torch_in_full_precision(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def drawn(*shape, seed=0, scale=1.0, centre=0.0):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale + centre
    return values.to(DEVICE)


def images(*shape, **options):
    return drawn(*shape, **options).contiguous(memory_format=torch.channels_last)


def same(found, expected, tolerance=1e-4):
    return torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def test_four_small_convolutions_equal_one_of_the_doubled_image():
    conv, x = nn.Conv2d(6, 5, 3, padding=1), torch.randn(2, 6, 4, 3)
    quarters = functional.conv2d(x, quarters_of(conv.weight), padding=1).view(2, 2, 2, 5, 5, 4)
    doubled = conv(functional.interpolate(x, scale_factor=2))
    for i in range(2):
        for j in range(2):
            found = quarters[:, i, j, :, i : i + 4, j : j + 3] + conv.bias[:, None, None]
            torch.testing.assert_close(found, doubled[:, :, i::2, j::2], rtol=1e-5, atol=1e-5)


def test_padded_channels_change_no_convolution():
    first, last = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 3, 3, padding=1)
    x = torch.randn(2, 3, 5, 5)
    between = functional.conv2d(_with_ones(x), _with_bias_as_channel(first), padding=1)
    torch.testing.assert_close(between, first(x), rtol=1e-5, atol=1e-5)
    found = functional.conv2d(between, _padded_outputs(last), padding=1)[:, :3] + last.bias[:, None, None]
    torch.testing.assert_close(found, last(between), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", ["epsilon", "v_prediction"])
def test_clipping_gives_the_bits_of_diffusers_thresholding(target):
    network = Network((8, 16), layers=1, attention=(False, False), groups=4, target=target)
    ours = scheduler_for("dpm", network, 6)
    theirs = DPMSolverMultistepScheduler.from_config(ours.config)
    theirs.set_timesteps(6)
    sample = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    for number, level in enumerate(ours.timesteps):
        predicted = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(number + 1))
        expected = theirs.step(predicted, level, sample).prev_sample
        sample = ours.step(predicted, level, sample).prev_sample
        assert torch.equal(sample, expected)


@WITH_KERNELS
class TestKernels:
    @pytest.fixture
    def kernels(self):
        return importlib.import_module("fedeas.gpu.denoising_kernels")

    @pytest.mark.parametrize("silu", [True, False])
    @pytest.mark.parametrize("side", [3, 8, 20])  # a part of a tile, a tile that is kept, and an image read twice
    @pytest.mark.parametrize(("first", "second", "groups"), [(24, 0, 8), (48, 24, 8), (32, 16, 1), (8, 0, 8)])
    def test_group_norm(self, kernels, first, second, groups, side, silu):
        x = images(2, first, side, side, scale=2, centre=50)  # far from zero, where careless sums lose digits
        other = images(2, second, side, side, seed=1) if second else None
        channels = first + second
        weight, bias = drawn(channels, seed=2), drawn(channels, seed=3)
        shift = drawn(2, channels + 5, seed=4)[:, 2 : channels + 2]
        both = x if other is None else torch.cat([x, other], 1)
        expected = functional.group_norm(
            both.double() + shift.double()[:, :, None, None], groups, weight.double(), bias.double()
        )
        expected = functional.silu(expected) if silu else expected
        found = kernels.group_norm(x, weight, bias, groups, 1e-5, shift=shift, other=other, silu=silu)
        same(found, expected.float(), 1e-3)

    @pytest.mark.parametrize(("tokens", "heads", "scale"), [(64, 3, 1), (25, 2, 1), (256, 1, 1), (16, 1, 10)])
    def test_attention(self, kernels, tokens, heads, scale):
        qkv = drawn(2, tokens, 24 * heads, scale=scale)
        parts = qkv.double().view(2, tokens, 3, heads, 8).permute(2, 0, 3, 1, 4)
        expected = functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2)
        same(kernels.attention(qkv, 8), expected.float(), 1e-3)

    @pytest.mark.parametrize(("first", "second", "columns"), [(24, 12, 20), (40, 0, 96), (8, 8, 8)])
    def test_project(self, kernels, first, second, columns):
        x, add = images(3, first, 5, 5), images(3, columns, 5, 5, seed=1)
        other = images(3, second, 5, 5, seed=2) if second else None
        weight, bias = drawn(columns, first + second, seed=3), drawn(columns, seed=4)
        both = x if other is None else torch.cat([x, other], 1)
        expected = add + functional.conv2d(both, weight[:, :, None, None], bias)
        same(kernels.project(x, weight, bias, add, other), expected)

    def test_sum(self, kernels):
        x, add, bias = images(3, 24, 5, 5), images(3, 24, 5, 5, seed=1), drawn(24, seed=2)
        expected = x + add + bias[:, None, None]
        same(kernels.add_to(x, bias, add), expected)

    def test_interleaved_quarters_are_the_doubled_image(self, kernels):
        conv, x = nn.Conv2d(6, 20, 3, padding=1).to(DEVICE), images(2, 6, 4, 3)
        quarters = functional.conv2d(x, quarters_of(conv.weight), padding=1)
        quarters = quarters.contiguous(memory_format=torch.channels_last)
        same(kernels.interleave(quarters, conv.bias), conv(functional.interpolate(x, scale_factor=2)))

    @pytest.mark.parametrize(
        "network",
        [
            Network((8, 16), layers=1, attention=(False, False), groups=4),
            Network((24, 48, 48), layers=2, attention=(False, True, False), groups=8),
            Network((8,), layers=1, attention=(True,), groups=2),
        ],
        ids=str,
    )
    @torch.inference_mode()
    def test_the_fused_network_predicts_what_the_network_does(self, kernels, network):
        model = network.build((3, 8, 8), 10, seed=1).eval().requires_grad_(False)
        for number, tensor in enumerate(model.parameters()):  # also those that begin as zeros and ones
            tensor += 0.05 * torch.randn(tensor.shape, generator=torch.Generator().manual_seed(number))
        model = model.to(DEVICE, memory_format=torch.channels_last)
        sample, level, classes = drawn(3, 3, 8, 8), torch.tensor([0, 500, 999]), torch.tensor([3, 10, 0])
        level, classes = level.to(DEVICE), classes.to(DEVICE)
        expected = model(sample, level, class_labels=classes).sample
        same(FusedNetwork(model)(sample, level, classes).sample, expected, 1e-3 if DEVICE == "cuda" else 1e-4)
