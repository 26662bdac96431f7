"""A stacked model computes for each client what a model of its own computes.

Kernels run on a GPU or, if Triton is installed, in its interpreter (TRITON_INTERPRET=1).
"""

import importlib.util
import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from fedeas.fast import stacked_layers
from fedeas.fast.stacked import Stack, can_be_stacked, gathered_values
from fedeas.fast.stacked_layers import KernelWindow, StackedBatchNorm
from fedeas.models.build import build_model
from fedeas.models.layers import BatchNorm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
RUNS = torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1"
WITH_KERNELS = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None or not RUNS, reason="needs Triton, and a GPU or its interpreter"
)
MODELS = {
    "small": ("small-cnn", (1, 8, 8), {}),
    "small with batch norm": ("small-cnn", (3, 9, 12), {"norm": "batch"}),
    "small with group norm": ("small-cnn", (3, 12, 12), {"norm": "group"}),
    "small with a projection": ("small-cnn", (1, 8, 8), {"projection": 6}),
    "deep": ("resnet18", (3, 16, 16), {}),
    "deep with the large stem": ("resnet18", (3, 32, 32), {"stem": "imagenet"}),
}
ROWS, VALID = 6, [6, 4, 5]


def models_of(name, dtype=torch.float64):
    kind, shape, settings = MODELS[name]
    return [build_model(kind, shape, 4, seed=seed, **settings).to(dtype) for seed in range(len(VALID))], shape


def batch(shape, dtype=torch.float64):
    stream = torch.Generator().manual_seed(0)
    images = torch.randn(len(VALID) * ROWS, *shape, generator=stream, dtype=dtype)
    return images, torch.randint(4, (len(images),), generator=stream)


def losses(stack, images, labels):
    shares = (torch.arange(ROWS) < stack.valid[:, None]).double() / stack.valid[:, None]
    each = functional.cross_entropy(stack.model(images), labels, reduction="none")
    return (each.view(shares.shape) * shares).sum(dim=1)


def stack_of(models, shape, **settings):
    stack = Stack(models[0], len(models), shape, **settings)
    for own, model in zip(stack.models, models, strict=True):
        own.load_state_dict(model.state_dict())
    stack.load()
    stack.model.train()
    stack.valid.copy_(torch.tensor(VALID[: len(models)]))
    return stack


@torch.no_grad()
def descend(model, rate=0.1):
    for parameter in model.parameters():
        parameter.sub_(parameter.grad, alpha=rate)


@pytest.mark.parametrize("name", MODELS)
def test_a_step_equals_that_of_separate_models(name):
    models, shape = models_of(name)
    images, labels = batch(shape)
    stack = stack_of(models, shape)
    together = losses(stack, images, labels)
    together.sum().backward()
    descend(stack.model)
    stack.unload()
    for client, (model, own) in enumerate(zip(models, stack.models, strict=True)):
        rows = slice(client * ROWS, client * ROWS + VALID[client])
        loss = functional.cross_entropy(model.train()(images[rows]), labels[rows])
        loss.backward()
        descend(model)
        assert together[client].item() == pytest.approx(loss.item(), rel=1e-9)
        for (key, expected), tensor in zip(model.state_dict().items(), own.state_dict().values(), strict=True):
            torch.testing.assert_close(tensor, expected, rtol=1e-8, atol=1e-9, msg=key)


@pytest.mark.parametrize("name", MODELS)
def test_in_evaluation_mode_logits_equal_those_of_separate_models(name):
    models, shape = models_of(name)
    images, _ = batch(shape)
    stack = stack_of(models, shape)
    together = stack.model.eval()(images).view(len(models), ROWS, -1)
    for client, model in enumerate(models):
        expected = model.eval()(images[client * ROWS : (client + 1) * ROWS])
        torch.testing.assert_close(together[client], expected, rtol=1e-8, atol=1e-9)


def test_rows_that_only_fill_up_the_batch_have_no_effect():
    models, shape = models_of("small with batch norm")
    images, labels = batch(shape)
    gradients = []
    for filling in (0.0, 1e6):
        stack, changed = stack_of(models, shape), images.clone()
        changed.view(len(VALID), ROWS, *shape)[1, VALID[1] :] = filling
        losses(stack, changed, labels).sum().backward()
        gradients.append([parameter.grad for parameter in stack.model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


def test_short_weights_pass_slopes_on_to_the_weights_without_kernels_too():
    models, shape = models_of("small", torch.float32)
    images, labels = batch(shape, torch.float32)
    found = []
    for short in (False, True):
        stack = stack_of(models, shape)
        if short:
            stack.shorten()
            stack.refresh_short()
        losses(stack, images, labels).sum().backward()
        found.append([parameter.grad for parameter in stack.model.parameters()])
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


def test_loading_and_unloading_changes_nothing():
    models, shape = models_of("deep with the large stem")
    stack = stack_of(models, shape, whole=True)
    for kernels in stack.kernels.values():
        kernels.zero_()
    stack.unload()
    for model, other in zip(models, stack.models, strict=True):
        for one, same in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
            assert torch.equal(one, same)


def test_a_narrowed_stack_trains_the_first_clients_in_the_same_memory():
    models, shape = models_of("small with batch norm")
    images, labels = batch(shape)
    stack, narrow = stack_of(models, shape), None
    narrow = stack.narrowed(2)
    before = [parameter.clone() for parameter in stack.model.parameters()]
    losses(narrow, images[: 2 * ROWS], labels[: 2 * ROWS]).sum().backward()
    descend(narrow.model)
    for old, new in zip(before, stack.model.parameters(), strict=True):
        assert torch.equal(old[2:], new[2:])
    moved = [not torch.equal(old[:2], new[:2]) for old, new in zip(before, stack.model.parameters(), strict=True)]
    assert sum(moved) >= len(moved) - 2  # a bias before a batch norm has no gradient
    stack.valid[0] = 3
    assert narrow.valid[0] == 3


@given(st.integers(1, 5), st.integers(1, 3), st.integers(0, 2), st.integers(1, 9), st.integers(1, 9))
def test_a_window_is_the_smallest_one_around_the_weights_that_meet_a_pixel(kernel, stride, padding, height, width):
    if min(height, width) + 2 * padding < kernel or padding >= kernel:
        return
    conv = nn.Conv2d(1, 1, kernel, stride, padding, bias=False)
    conv(torch.rand(1, 1, height, width) + 1).sum().backward()
    met = conv.weight.grad[0, 0] != 0
    rows, columns = (met.any(dim=axis).nonzero().flatten().tolist() for axis in (1, 0))
    window = KernelWindow.of(conv, height, width)
    assert (window.rows, window.columns) == tuple(slice(each[0], each[-1] + 1) for each in (rows, columns))


def test_with_weight_decay_the_whole_kernel_is_kept():
    models, shape = models_of("deep with the large stem")
    part, whole = (sum(p.numel() for p in stack_of(models, shape, whole=each).model.parameters()) for each in (0, 1))
    own = sum(p.numel() for p in models[0].parameters())
    assert part < 0.5 * len(VALID) * own
    assert len(VALID) * own <= whole < 1.001 * len(VALID) * own


def test_models_with_other_layers_are_not_stacked():
    assert all(can_be_stacked(build_model(kind, shape, 4, seed=0, **more)) for kind, shape, more in MODELS.values())
    assert not can_be_stacked(nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3)))
    assert not can_be_stacked(nn.Sequential(nn.Conv2d(3, 4, 3, groups=1, dilation=2)))
    assert not can_be_stacked(nn.Sequential(nn.Linear(3, 3, bias=False)))


def test_small_feature_maps_gather_less():
    sizes = [gathered_values(build_model("resnet18", (3, 32, 32), 10, seed=0, stem=stem), (3, 32, 32))
             for stem in ("imagenet", "3x3")]  # fmt: skip
    assert sizes[0] < 1e6 < sizes[1]
    conv = nn.Sequential(nn.Conv2d(2, 5, 3, stride=2, padding=1))
    assert gathered_values(conv, (2, 7, 8)) == 4 * 4 * 2 * 9


# ---- kernels


@pytest.fixture
def kernels(monkeypatch):
    """The kernels' module, used on whatever device there is."""

    def load(x, name="stacked_kernels"):
        return importlib.import_module(f"fedeas.gpu.{name}")

    monkeypatch.setattr(stacked_layers, "_kernels_for", load)
    return load(None)


def drawn(*shape, seed=0):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 2 + 3
    return values.to(DEVICE).contiguous(memory_format=torch.channels_last).requires_grad_()


def compare(found, expected, inputs, tolerance=2e-5):
    slope = torch.randn(expected.shape, generator=torch.Generator().manual_seed(9)).to(DEVICE)
    gradients = [torch.autograd.grad(values, inputs, slope, allow_unused=True) for values in (found, expected)]
    for one, other in zip((found, *gradients[0]), (expected, *gradients[1]), strict=True):
        assert (one - other).abs().max() <= tolerance * max(1.0, other.abs().max())


@WITH_KERNELS
class TestKernels:
    @pytest.mark.parametrize(
        ("conv", "size"),
        [
            (nn.Conv2d(3, 16, 7, stride=2, padding=3, bias=False), (9, 12)),
            (nn.Conv2d(16, 8, 3, padding=1, bias=False), (4, 4)),
            (nn.Conv2d(16, 8, 3, stride=2, padding=1, bias=False), (5, 4)),
            (nn.Conv2d(16, 8, 3, stride=2, padding=1, bias=False), (2, 2)),
            (nn.Conv2d(16, 8, 3, padding=1, bias=False), (1, 1)),
            (nn.Conv2d(16, 8, 1, stride=2, bias=False), (4, 4)),
            (nn.Conv2d(16, 8, 1, bias=False), (3, 3)),
        ],
        ids=str,
    )
    def test_convolutions_equal_those_without_kernels(self, kernels, conv, size):
        layer = stacked_layers.StackedConv(conv, 2, KernelWindow.of(conv, *size)).to(DEVICE)
        nn.init.normal_(layer.weight, generator=torch.Generator(DEVICE).manual_seed(0))
        with torch.no_grad():
            layer.weight.copy_(torch.stack([layer.laid_out(torch.randn(conv.weight.shape)) for _ in range(2)]))
        x = drawn(6, conv.in_channels, *size)
        geometry = layer._geometry(x)
        found = kernels.convolved(x, layer.weight, layer.weight.detach(), geometry, layer)
        compare(found, stacked_layers._convolved(x, layer.weight, geometry), [x, layer.weight], 1e-4)

    def test_max_pooling_equals_torchs_even_for_equal_values(self, kernels):
        for x in (drawn(3, 5, 7, 6), drawn(2, 16, 8, 8), torch.zeros_like(drawn(1, 4, 6, 6)).requires_grad_()):
            compare(kernels.max_pooled(x), functional.max_pool2d(x, 3, 2, 1), [x])

    # pixels of a client that one program can hold, and more than that
    @pytest.mark.parametrize("shape", [(6, 20, 3, 3), (6, 70, 2, 2), (6, 5, 1, 1), (12, 40, 14, 9)], ids=str)
    @pytest.mark.parametrize(("relu", "add"), [(False, False), (True, False), (True, True)])
    def test_norms_count_valid_rows_only(self, monkeypatch, kernels, shape, relu, add):
        plain, found = ({} for _ in range(2))
        for results, module in ((plain, None), (found, kernels)):
            monkeypatch.setattr(stacked_layers, "_kernels_for", lambda x, name="", module=module: module)
            norm = StackedBatchNorm(BatchNorm(shape[1]), 3, torch.tensor([2, 1 + (shape[2] == 1), 2])).to(DEVICE)
            norm.valid = norm.valid.to(DEVICE, torch.int32)
            nn.init.uniform_(norm.weight, 0.5, 1.5, generator=torch.Generator(DEVICE).manual_seed(0))
            x, shortcut = drawn(*shape), drawn(*shape, seed=1) if add else None
            y = norm.then_relu(x, shortcut) if relu else norm(x)
            if module is None and add:  # the kernels leave rows that do not count at zero, shortcut or not
                mask = torch.arange(shape[0] // 3, device=DEVICE) < norm.valid[:, None]
                y = y * mask.flatten()[:, None, None, None]
            slope = torch.randn(shape, generator=torch.Generator().manual_seed(9)).to(DEVICE)
            inputs = [x, norm.weight, norm.bias, *([shortcut] if add else [])]
            results["y"] = y.detach()
            results.update(enumerate(torch.autograd.grad(y, inputs, slope)))
            results.update({name: buffer.float() for name, buffer in norm.named_buffers()})
        for key, expected in plain.items():
            assert (found[key] - expected).abs().max() <= 2e-4 * max(1.0, expected.abs().max()), key

    def test_a_deep_network_is_as_near_to_float64_as_torch(self, kernels):
        (double, shape), (single, _) = (
            models_of("deep with the large stem"),
            models_of("deep with the large stem", torch.float32),
        )
        images, labels = (tensor.to(DEVICE) for tensor in batch(shape))
        stack = stack_of([model.to(DEVICE) for model in single], shape)
        shares = (torch.arange(ROWS, device=DEVICE) < stack.valid[:, None]) / stack.valid[:, None]
        each = functional.cross_entropy(stack.model(images.float()), labels, reduction="none")
        (each.view(shares.shape) * shares).sum().backward()
        with torch.no_grad():
            for parameter in stack.model.parameters():
                parameter.copy_(parameter.grad)
        for kernel in stack.kernels.values():
            kernel.zero_()  # weights that never meet a pixel have no gradient
        stack.unload()
        for client, own in enumerate(stack.models):
            rows, gradients = slice(client * ROWS, client * ROWS + VALID[client]), []
            for model in (double[client].to(DEVICE), single[client]):
                model.train()
                value = functional.cross_entropy(model(images[rows].to(model.fc.weight.dtype)), labels[rows])
                value.backward()
                gradients.append(torch.cat([parameter.grad.double().flatten() for parameter in model.parameters()]))
            ours = torch.cat([parameter.detach().double().flatten() for parameter in own.parameters()])
            off = [(each - gradients[0]).norm() for each in (ours, gradients[1])]
            assert off[0] <= 3 * off[1] + 1e-5 * gradients[0].norm()
