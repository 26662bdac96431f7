"""The kernels of the last layer, the loss, SGD and norms with derivatives compute what torch computes.

They run on a GPU or, if Triton is installed, in its interpreter (TRITON_INTERPRET=1).
"""

import importlib.util
import os

import pytest
import torch
from oracles import norm_of_both

from fedeas.data.client import Normaliser

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
RUNS = torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None or not RUNS, reason="needs Triton, and a GPU or its interpreter"
)
SIZES = [(3, 20, 10, 512), (2, 64, 100, 70), (1, 5, 3, 17)]  # clients, rows, outputs, features


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE).requires_grad_()


def near(found, expected, tolerance=1e-5):
    return (found - expected).norm() <= tolerance * expected.norm()


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_layer_and_its_gradients_equal_torchs(size):
    kernels = importlib.import_module("fedeas.gpu.head_kernels")
    clients, rows, outputs, features = size
    inputs = drawn(clients, rows, features), drawn(clients, outputs, features, seed=1), drawn(clients, outputs, seed=2)
    expected = torch.baddbmm(inputs[2][:, None], inputs[0], inputs[1].transpose(1, 2))
    found, slope = kernels.linear(*inputs), drawn(*expected.shape, seed=3).detach()
    pairs = zip(torch.autograd.grad(found, inputs, slope), torch.autograd.grad(expected, inputs, slope), strict=True)
    assert near(found, expected)
    assert all(near(*pair) for pair in pairs)


def test_descent_changes_weights_as_sgd_does_and_their_copies_follow():
    kernels = importlib.import_module("fedeas.gpu.sgd_kernels")
    shapes = [(3, 5), (3, 4000), (3, 7, 9), (3, 2048), (3, 1)]
    weights = [drawn(*shape, seed=seed).detach() for seed, shape in enumerate(shapes)]
    slopes = [drawn(*shape, seed=9 + seed).detach() for seed, shape in enumerate(shapes)]
    copies = [torch.zeros_like(weight, dtype=torch.bfloat16) for weight in weights]
    expected = [weight - 0.3 * slope for weight, slope in zip(weights, slopes, strict=True)]
    kernels.descend(weights, slopes, copies, torch.tensor(0.3, device=DEVICE))
    for weight, copy, wanted in zip(weights, copies, expected, strict=True):
        assert near(weight, wanted)
        assert (copy.float() - weight).abs().max() <= 2**-7 * weight.abs().max()


def test_a_batch_has_the_images_labels_and_shares_of_its_step():
    kernels = importlib.import_module("fedeas.gpu.stacked_kernels")
    stream = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (50, 3, 5, 6), dtype=torch.uint8, generator=stream).to(DEVICE)
    labels, index = (
        torch.randint(most, shape, generator=stream).to(DEVICE) for most, shape in ((9, (50,)), (50, (4, 3, 7)))
    )
    shares, valid = (
        torch.rand(4, 3, 7, generator=stream).to(DEVICE),
        torch.arange(12, dtype=torch.int32).view(4, 3).to(DEVICE),
    )
    tables = {"images": images, "labels": labels, "index": index, "shares": shares, "valid": valid}
    normalise = Normaliser.of((0.1, 0.4, 0.5), (0.2, 0.3, 0.4), DEVICE)
    for clients in (1, 3):
        now, number = torch.zeros(clients, dtype=torch.int32, device=DEVICE), torch.tensor([2], device=DEVICE)
        found = kernels.batch_of(tables, number, now, normalise, torch.float32)
        rows = index[2, :clients].flatten()
        torch.testing.assert_close(found[0], normalise(images[rows]))
        augmented = images[rows].flip(-1).contiguous()
        again = kernels.batch_of(tables, number, now, normalise, torch.float32, augmented)
        torch.testing.assert_close(again[0], normalise(augmented))
        assert all(torch.equal(*pair) for pair in zip(found[1:], again[1:], strict=True))
        assert found[0].is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(found[1], labels[rows])
        assert torch.equal(found[2], shares[2, :clients])
        assert torch.equal(now, valid[2, :clients])


@pytest.mark.parametrize("shape", [(4, 8, 3, 3), (9, 70, 4, 4), (40, 5, 6, 6)], ids=str)
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("add", [False, True])
def test_a_norm_of_values_and_derivatives_equals_its_formula_and_so_do_its_gradients(shape, relu, add):
    kernels, tickets_for = (
        importlib.import_module("fedeas.gpu.doubled_norm_kernels"),
        importlib.import_module("fedeas.gpu.norm_kernels").tickets_for,
    )
    images, channels = shape[0], shape[1]
    x, other, slope = (
        drawn(2 * images, *shape[1:], seed=seed).detach().contiguous(memory_format=torch.channels_last)
        for seed in range(3)
    )
    x, weight, bias = (x + 3).requires_grad_(), drawn(channels, seed=4), drawn(channels, seed=5)
    inputs = [x, weight, bias, *([other.requires_grad_()] if add else [])]
    counted = torch.nn.BatchNorm2d(channels).to(DEVICE)
    running = torch.zeros_like(bias), torch.ones_like(bias), torch.zeros((), dtype=torch.int64, device=DEVICE)
    tickets = tickets_for(1, channels, x.device)
    found = kernels.doubled_norm(x, weight, bias, running, 0.1, 1e-5, tickets, other if add else None, relu)
    expected = norm_of_both(x, weight, bias, running, 0.1, 1e-5, tickets, other if add else None, relu)
    pairs = zip(torch.autograd.grad(found, inputs, slope), torch.autograd.grad(expected, inputs, slope), strict=True)
    assert near(found, expected)
    assert all(near(*pair) for pair in pairs)
    counted(x[:images].detach())
    assert near(running[0], counted.running_mean)
    assert near(running[1], counted.running_var)
    assert int(running[2]) == 1
    assert not tickets.any()
