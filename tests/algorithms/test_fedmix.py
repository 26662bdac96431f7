"""FedMix's loss against the Mixup loss that it expands, and its gradients against finite differences."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from oracles import assert_gradients_match, norm_of_both
from torch import nn
from torch.nn import functional

from fedeas.algorithms import FedAvg, FedMix
from fedeas.algorithms.base import ClientJob, Fleet, model_arrays
from fedeas.algorithms.fedmix import expanded_loss, expanded_mixup
from fedeas.config import TrainConfig
from fedeas.core.errors import InputError
from fedeas.data.client import ClientData, Normaliser
from fedeas.fast import fused_layers
from fedeas.models.build import build_model

NORMALISE = Normaliser.of((0.5,), (0.25,))


@pytest.fixture
def smooth():
    """A smooth network in double precision, a batch, and averages to mix it with."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    images, means = torch.randn(6, 1, 4, 4).double(), 0.5 * torch.randn(6, 1, 4, 4).double()
    return model, images, torch.randint(0, 3, (6,)), means, torch.rand(6, 3).softmax(dim=1).double()


def mixup(model, images, labels, means, soft_labels, lam):
    """What FedMix expands: the loss at (1 - lam) x + lam x̄ against the mixed labels."""
    logits = model((1 - lam) * images + lam * means)
    return (1 - lam) * functional.cross_entropy(logits, labels) + lam * functional.cross_entropy(logits, soft_labels)


def test_the_loss_equals_mixups_up_to_second_order(smooth):
    errors = [abs(expanded_mixup(*smooth, lam) - mixup(*smooth, lam)).item() for lam in (0.1, 0.05, 0.025, 0.0125)]
    ratios = np.array(errors[:-1]) / np.array(errors[1:])
    assert (ratios > 3).all()
    assert ratios[-1] == pytest.approx(4, rel=0.1)


def test_without_the_taylor_term_the_error_is_of_first_order(smooth):
    """Shows that the test above can fail: without the term the error only halves."""
    model, images, labels, means, soft_labels = smooth
    errors = [
        abs(expanded_mixup(model, images, labels, 0 * means, soft_labels, lam) - mixup(*smooth, lam)).item()
        for lam in (0.025, 0.0125)
    ]
    assert errors[0] / errors[1] < 3


def test_parameter_gradients_equal_finite_differences(smooth):
    assert_gradients_match(lambda: expanded_mixup(*smooth, 0.2), smooth[0].parameters())


@pytest.mark.parametrize(("stem", "size"), [("3x3", 8), ("imagenet", 32)])
def test_derivatives_in_the_forward_pass_give_the_gradients_of_two_backward_passes(monkeypatch, stem, size):
    torch.manual_seed(0)
    model = (
        build_model("resnet18", (3, size, size), 5, seed=0, stem=stem).double().to(memory_format=torch.channels_last)
    )
    images, means = torch.randn(2, 4, 3, size, size).double()
    labels, soft_labels = torch.randint(0, 5, (4,)), torch.rand(4, 5).softmax(dim=1).double()
    expected = expanded_mixup(model, images, labels, means, soft_labels, 0.2)
    slopes = torch.autograd.grad(expected, list(model.parameters()))
    monkeypatch.setattr(fused_layers, "_kernels", lambda: SimpleNamespace(tickets_for=lambda *_: torch.zeros(1)))
    monkeypatch.setattr(fused_layers, "_doubled_kernels", lambda: SimpleNamespace(doubled_norm=norm_of_both))
    fused_layers.double(model)
    assert not hasattr(model, "outputs_and_derivatives")  # its norms are not fused
    fused_layers.fuse_norms(model)
    fused_layers.double(model)
    outputs, derivatives = model.outputs_and_derivatives(0.8 * images, means)
    found = expanded_loss(outputs, derivatives, labels, soft_labels, 0.2)
    assert found.item() == pytest.approx(expected.item(), rel=1e-12)
    for slope, other in zip(slopes, torch.autograd.grad(found, list(model.parameters())), strict=True):
        assert torch.allclose(other, slope, rtol=1e-7, atol=1e-9 * slope.abs().max().item())


TRAIN = TrainConfig(lr=0.05, batch_size=8, epochs=2)


def client_job(net, broadcast, size=20):
    rng = np.random.default_rng(3)
    data = ClientData.of(rng.integers(0, 256, (size, 1, 8, 8), dtype=np.uint8), rng.integers(0, 3, size), NORMALISE)
    return ClientJob(0, 0, 0, 1, copy.deepcopy(net), data, broadcast, {}, TRAIN)


def set_up(algorithm, net):
    server = algorithm.init(net, Fleet(np.array([20]), 3))
    return algorithm.setup_server(server, [algorithm.setup_client(client_job(net, server))])


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_without_mixing_it_is_fedavg_bit_for_bit(norm):
    net = build_model("small-cnn", (1, 8, 8), 3, seed=0, norm=norm)
    algorithm = FedMix(lam=0)
    ours, _ = algorithm.client_update(client_job(net, algorithm.broadcast(set_up(algorithm, net), 0)))
    theirs, _ = FedAvg().client_update(client_job(net, model_arrays(net)))
    assert all(torch.equal(ours.arrays[key], theirs.arrays[key]) for key in theirs.arrays)


@pytest.mark.parametrize(("mash", "averages"), [(0, 1), (5, 4), (6, 3), (50, 1)])
def test_averages_are_those_of_the_real_images_and_their_labels(mash, averages):
    net = build_model("small-cnn", (1, 8, 8), 3, seed=0)
    algorithm = FedMix(mash=mash)
    server = set_up(algorithm, net)
    data = client_job(net, {}).data
    size = mash if 0 < mash <= 20 else 20
    assert len(server["mash/images"]) == averages
    assert torch.allclose(server["mash/images"][0], data.images[:size].float().mean(dim=0))
    share = torch.bincount(data.labels[:size], minlength=3) / size
    assert torch.allclose(server["mash/labels"][0], share)
    assert torch.allclose(server["mash/labels"].sum(dim=1), torch.ones(averages))


def test_every_client_gets_the_averages_of_all_clients():
    net = build_model("small-cnn", (1, 8, 8), 3, seed=0)
    algorithm = FedMix(mash=10)
    server = algorithm.init(net, Fleet(np.array([20, 30]), 3))
    replies = [algorithm.setup_client(client_job(net, server, size)) for size in (20, 30)]
    server = algorithm.setup_server(server, replies)
    assert len(algorithm.broadcast(server, 0)["mash/images"]) == 2 + 3


@pytest.mark.parametrize("arguments", [{"lam": -0.1}, {"lam": 1}, {"mash": -1}, {"mash": 2.5}])
def test_hyperparameters_out_of_range_are_refused(arguments):
    with pytest.raises(InputError):
        FedMix(**arguments)
