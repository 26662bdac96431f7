"""Casting all weights to bfloat16 together gives the result of autocast, which casts one by one."""

from functools import partial

import pytest
import torch
from torch import nn

from fedeas.fast.fused_layers import shortened
from fedeas.models.build import build_model
from fedeas.models.layers import Conv
from fedeas.models.networks import BasicBlock


def gradients(model, x, together):
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        if together:
            with shortened(model):
                loss = model(x).square().mean()
        else:
            loss = model(x).square().mean()
    loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def blocks():
    """The beginning of a ResNet."""
    torch.manual_seed(0)
    return nn.Sequential(
        Conv(3, 16, 7, stride=2, padding=3), BasicBlock(16, 16, 1, "batch"), BasicBlock(16, 32, 2, "batch")
    )


# With 64 pixels no feature map of the ResNet has a single one: there torch's bfloat16 kernels for CPUs sometimes give
# nonsense for the weights that see nothing but padding. Some processors take a minute for it.
@pytest.mark.parametrize(
    ("make", "side"),
    [
        (partial(build_model, "small-cnn", (3, 16, 16), 5, seed=0), 16),
        (blocks, 16),
        pytest.param(
            partial(build_model, "resnet18", (3, 64, 64), 5, seed=0, stem="imagenet"), 64, marks=pytest.mark.slow
        ),
    ],
    ids=["small-cnn", "blocks", "resnet18"],
)
def test_gradients_are_those_of_autocast_up_to_the_rounding_of_bfloat16(make, side):
    x = torch.randn(4, 3, side, side, generator=torch.Generator().manual_seed(0))
    plain, quick = (gradients(make(), x, together) for together in (False, True))
    assert plain.keys() == quick.keys()
    for key, expected in plain.items():  # not bit for bit: some processors choose other kernels for the copies
        assert quick[key].dtype == expected.dtype
        assert (quick[key] - expected).norm() <= 0.02 * expected.norm()


def test_short_weights_are_the_weights_rounded_and_pass_slopes_on_unchanged():
    model = build_model("resnet18", (3, 16, 16), 5, seed=0)
    convs = [module for module in model.modules() if isinstance(module, Conv)]
    with shortened(model):
        shorts = [conv.short for conv in convs]
        assert all(torch.equal(short, conv.weight.bfloat16()) for short, conv in zip(shorts, convs, strict=True))
    slopes = [torch.randn(short.shape, generator=torch.Generator().manual_seed(0)).bfloat16() for short in shorts]
    torch.autograd.backward(shorts, slopes)
    assert all(torch.equal(conv.weight.grad, slope.float()) for conv, slope in zip(convs, slopes, strict=True))


def test_in_evaluation_mode_substituted_weights_are_used_and_not_the_short_ones():
    model, x = build_model("small-cnn", (1, 8, 8), 3, seed=0), torch.randn(2, 1, 8, 8)
    other = {name: torch.zeros_like(tensor) for name, tensor in model.state_dict().items()}
    with shortened(model):
        model.eval()
        assert not torch.func.functional_call(model, other, (x,)).any()
    assert all(type(module) is Conv for module in model.modules() if isinstance(module, Conv))
