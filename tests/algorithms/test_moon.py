"""MOON's contrastive loss against values computed by hand, and its three models."""

import copy

import numpy as np
import pytest
import torch
from oracles import local_loss
from torch import nn

from fedeas.algorithms import MOON, FedAvg
from fedeas.algorithms.base import ClientJob, model_arrays
from fedeas.algorithms.moon import contrast
from fedeas.config import TrainConfig
from fedeas.core.errors import InputError
from fedeas.data.client import ClientData, Normaliser
from fedeas.models.build import build_model

NORMALISE = Normaliser.of((0.5,), (0.25,))
TRAIN = TrainConfig(lr=0.05, batch_size=8, epochs=2)


def job(net, state, broadcast=None, seed=0):
    rng = np.random.default_rng(3)
    data = ClientData.of(rng.integers(0, 256, (20, 1, 8, 8), dtype=np.uint8), rng.integers(0, 3, 20), NORMALISE)
    return ClientJob(0, 0, seed, 1, copy.deepcopy(net), data, broadcast or model_arrays(net), state, TRAIN)


def network(seed):
    return build_model("small-cnn", (1, 8, 8), 3, seed=seed, norm="batch")


def test_the_contrast_on_features_made_by_hand():
    features = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    near = torch.tensor([[3.0, 0.0], [1.0, 0.0]])  # cosines 1 and 0
    far = torch.tensor([[0.0, 1.0], [0.0, -1.0]])  # cosines 0 and -1
    by_hand = [-np.log(np.exp(s / 0.5) / (np.exp(s / 0.5) + np.exp(d / 0.5))) for s, d in ((1, 0), (0, -1))]
    assert contrast(features, near, far, 0.5).mean().item() == pytest.approx(np.mean(by_hand), rel=1e-6)


def test_equal_anchors_cost_log_two():
    features = torch.randn(5, 7)
    assert contrast(features, features, features, 0.5).mean().item() == pytest.approx(np.log(2), rel=1e-6)


def test_without_its_term_it_is_fedavg_bit_for_bit():
    net = network(0)
    previous = {f"previous/{name}": tensor for name, tensor in network(9).state_dict().items()}
    ours, _ = MOON(mu=0).client_update(job(net, previous))
    theirs, _ = FedAvg().client_update(job(net, {}))
    assert all(torch.equal(ours.arrays[key], theirs.arrays[key]) for key in theirs.arrays)


def test_the_loss_uses_the_clients_own_last_model_and_both_anchors_in_eval_mode():
    net, last = network(0), network(9)
    state = {f"previous/{name}": tensor for name, tensor in last.state_dict().items()}
    this = job(net, state)
    loss = local_loss(MOON(mu=5, tau=0.5), this)
    local = network(4)
    images, labels = NORMALISE(this.data.images), this.data.labels
    value = loss(local.train(), images, labels)
    twin = network(4).train()
    features = twin.features(images)
    with torch.no_grad():
        near, far = net.eval().features(images), last.eval().features(images)
    expected = nn.functional.cross_entropy(twin.head(features), labels) + 5 * contrast(features, near, far, 0.5).mean()
    assert value.item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_first_round_has_the_global_model_on_both_sides():
    net = network(0)
    this = job(net, {})
    value = local_loss(MOON(mu=1), this)(network(4).train(), NORMALISE(this.data.images), this.data.labels)
    plain = local_loss(FedAvg(), this)(network(4).train(), NORMALISE(this.data.images), this.data.labels)
    assert (value - plain).item() == pytest.approx(np.log(2), rel=1e-4)


def test_the_client_keeps_its_new_model_and_the_anchors_do_not_move():
    net = network(0)
    broadcast = model_arrays(net)
    before = {key: tensor.clone() for key, tensor in broadcast.items()}
    reply, state = MOON().client_update(job(net, {}, broadcast))
    assert {key.removeprefix("previous/") for key in state} == set(net.state_dict())
    assert torch.equal(state["previous/head.weight"], reply.arrays["model/head.weight"])
    assert all(torch.equal(broadcast[key], before[key]) for key in before)
    assert not torch.equal(reply.arrays["model/head.weight"], broadcast["model/head.weight"])


def test_training_lowers_the_contrast():
    net, last = network(0), network(9)
    state = {f"previous/{name}": tensor for name, tensor in last.state_dict().items()}

    def contrast_after(algorithm):
        this = job(net, state)
        algorithm.client_update(this)
        images = NORMALISE(this.data.images)
        with torch.no_grad():
            mine, near, far = (model.eval().features(images) for model in (this.model, net, last))
        return contrast(mine, near, far, 0.5).mean().item()

    assert contrast_after(MOON(mu=20)) < 0.9 * contrast_after(FedAvg())


@pytest.mark.parametrize("arguments", [{"mu": -1}, {"tau": 0}])
def test_hyperparameters_out_of_range_are_refused(arguments):
    with pytest.raises(InputError):
        MOON(**arguments)
