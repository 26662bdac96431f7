"""Fused norms compute what torch computes step by step."""

import pytest
import torch
from torch.nn import functional

from fedeas.fast.fused_layers import fuse_norms
from fedeas.models.build import build_model
from fedeas.models.layers import BatchNorm, norm_relu

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def images(shape, device="cpu", dtype=torch.float32, seed=0):
    stream = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=stream) * 2 + 5  # far from zero, where careless sums of squares lose digits
    return values.to(device, dtype).contiguous(memory_format=torch.channels_last)


def fused_or_not(norm, x, shortcut, relu, fused):
    if fused:
        return norm.then_relu(x, shortcut) if relu else norm(x)
    running = norm.running_mean, norm.running_var
    y = functional.batch_norm(x, *running, norm.weight, norm.bias, True, norm.momentum, norm.eps)
    norm.num_batches_tracked.add_(1)
    y = y if shortcut is None else y + shortcut
    return torch.relu(y) if relu else y


# channels that fill a tile, do not, and need several; pixels that fill a part and do not
SHAPES = [(8, 5, 3, 3), (64, 64, 32, 32), (9, 130, 4, 4), (1, 512, 2, 2), (63, 256, 8, 8), (200, 64, 32, 32)]


@pytest.mark.gpu
@GPU
class TestKernels:
    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    @pytest.mark.parametrize(("relu", "add"), [(False, False), (True, False), (True, True)])
    def test_values_statistics_and_gradients_equal_torchs(self, shape, relu, add):
        # Two values with a little noise, far enough from zero that rounding does not decide the sign.
        signs, slope = images(shape, "cuda", seed=1).sub(5).sign(), images(shape, "cuda", seed=2) - 5
        signs[:, :, 0, 0], signs[:, :, 0, 1] = 1, -1  # both in every channel: the variance must not be zero
        x = (signs + images(shape, "cuda") / 1000).requires_grad_()
        shortcut = (3 * images(shape, "cuda", seed=3).sub(5).sign()).requires_grad_()
        found = []
        for fused in (False, True):
            norm = BatchNorm(shape[1]).cuda()
            torch.nn.init.uniform_(norm.weight, 0.5, 1.5, generator=torch.Generator("cuda").manual_seed(0))
            fuse_norms(norm)
            assert norm.kernels_for(x)
            y = fused_or_not(norm, x, shortcut if add else None, relu, fused)
            gradients = torch.autograd.grad(y, [x, norm.weight, norm.bias, *([shortcut] if add else [])], slope)
            found.append([y.detach(), norm.running_mean, norm.running_var, norm.num_batches_tracked, *gradients])
        for expected, own in zip(*found, strict=True):
            assert (expected - own).abs().max() <= 2e-5 * expected.abs().max()

    def test_in_evaluation_mode_the_running_statistics_are_used(self):
        norm, x, shortcut = BatchNorm(64).cuda(), images((9, 64, 8, 8), "cuda"), images((9, 64, 8, 8), "cuda", seed=1)
        norm(x)
        norm.eval()
        expected = torch.relu(norm(x) + shortcut)
        fuse_norms(norm)
        assert not norm.kernels_for(x)  # gradients are wanted
        with torch.no_grad():
            assert norm.kernels_for(x)
            torch.testing.assert_close(norm_relu(norm, x, shortcut), expected, rtol=1e-5, atol=1e-5)

    def test_every_call_gives_the_same_bits(self):
        x, norm = images((64, 64, 32, 32), "cuda").requires_grad_(), BatchNorm(64).cuda()
        fuse_norms(norm)
        found = []
        for _ in range(200):
            y = norm.then_relu(x, None)
            found.append((y.detach(), *torch.autograd.grad(y, (x, norm.weight), torch.ones_like(y))))
        for again in found[1:]:
            assert all(torch.equal(one, other) for one, other in zip(found[0], again, strict=True))
        assert not norm.tickets.any()

    def test_a_network_in_bfloat16_is_as_near_to_fp32_as_with_torchs_norms(self):
        x, gradients = images((64, 3, 32, 32), "cuda"), {}
        for name in ("exact", "plain", "fused"):
            model = build_model("resnet18", (3, 32, 32), 10, seed=0).cuda().to(memory_format=torch.channels_last)
            if name == "fused":
                fuse_norms(model)
            with torch.autocast("cuda", torch.bfloat16, enabled=name != "exact"):
                loss = functional.cross_entropy(model(x), torch.arange(64, device="cuda") % 10)
            loss.backward()
            gradients[name] = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        off = {name: (gradients[name] - gradients["exact"]).norm().item() for name in ("plain", "fused")}
        assert off["fused"] < 1.5 * off["plain"]

    def test_a_single_value_of_a_channel_is_refused_as_torch_refuses_it(self):
        norm = BatchNorm(64).cuda()
        fuse_norms(norm)
        with pytest.raises(ValueError, match="more than 1 value per channel"):
            norm(images((1, 64, 1, 1), "cuda"))
