"""FedGen's losses against loops and finite differences, and its training on a toy federation."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from oracles import assert_gradients_match
from torch import nn
from torch.nn import functional

from fedeas.algorithms import FedAvg, FedGen
from fedeas.algorithms.base import ClientJob, Fleet, Reply, model_arrays
from fedeas.algorithms.fedgen import (
    LatentGenerator,
    divergence,
    draw,
    equal_shares,
    generated,
    likeness,
    teaching_loss,
)
from fedeas.algorithms.local_sgd import Batch
from fedeas.config import TrainConfig
from fedeas.core.arrays import stream_seed
from fedeas.core.errors import InputError
from fedeas.data.client import ClientData, Normaliser
from fedeas.models.build import build_model

NORMALISE = Normaliser.of((0.5,), (0.25,))
TRAIN = TrainConfig(lr=0.05, batch_size=8, epochs=2)
COUNTS = torch.tensor([[5.0, 0.0, 3.0], [1.0, 4.0, 0.0]]).double()


@pytest.fixture
def lesson():
    torch.manual_seed(0)
    heads, biases = torch.randn(2, 3, 4).double(), torch.randn(2, 3).double()
    return torch.tensor([0, 2, 1, 1, 0]), heads, biases, COUNTS


def test_each_sample_is_weighted_by_its_own_class(lesson):
    """A (B,) by (B, 1) product would silently average over all pairs of samples."""
    labels, heads, biases, counts = lesson
    features = torch.randn(5, 4).double()
    total = 0.0
    for sample, label in enumerate(labels.tolist()):
        for client in range(2):
            logits = heads[client] @ features[sample] + biases[client]
            weight = counts[client, label] / counts[:, label].sum()
            total += weight.item() * functional.cross_entropy(logits[None], torch.tensor([label])).item()
    assert teaching_loss(features, *lesson).item() == pytest.approx(total / 5)


def test_gradients_equal_finite_differences(lesson):
    torch.manual_seed(1)
    generator = LatentGenerator(3, 6, 7, 4).double()
    noise = torch.randn(5, 6).double()

    def loss():
        features = generator(lesson[0], noise)
        return teaching_loss(features, *lesson) + 0.5 * likeness(features, noise)

    assert_gradients_match(loss, generator.parameters())


def test_the_generator_in_evaluation_mode_is_the_module():
    torch.manual_seed(1)
    generator, labels, noise = LatentGenerator(3, 6, 7, 4), torch.tensor([0, 2, 1, 1, 0]), torch.rand(5, 6)
    for _ in range(3):
        generator(labels, noise + torch.randn(5, 6))  # moves the running statistics
    expected = generator.eval()(labels, noise)
    assert torch.equal(generated(generator.state_dict(), labels, noise), expected)


def test_clients_terms_equal_a_loop_over_samples_and_finite_differences(lesson):
    torch.manual_seed(2)
    labels, noise, own_noise = lesson[0], torch.rand(5, 6).double(), torch.rand(5, 6).double()
    generator, model = LatentGenerator(3, 6, 7, 4).double(), HeadOnly().double()
    shared = {"generator/" + name: tensor for name, tensor in generator.state_dict().items()}
    shared |= {"weight/generated": torch.tensor(0.7).double(), "weight/latent": torch.tensor(0.3).double()}
    drawn = {"asked": labels.flip(0), "asked_noise": noise, "own_noise": own_noise}
    batch, algorithm = Batch(torch.randn(5, 4).double(), labels, drawn), FedGen(noise=6, hidden=7)
    asked, alike = (model.head(generator.eval()(*each)) for each in ((labels.flip(0), noise), (labels, own_noise)))
    expected = 0.0
    for i in range(5):
        ours, wanted = model(batch.images[i]).softmax(0), alike[i].softmax(0)
        kl = sum(w.item() * (w / o).log().item() for w, o in zip(wanted, ours, strict=True))
        expected += -ours[labels[i]].log().item() - 0.7 * asked[i].log_softmax(0)[labels.flip(0)[i]].item() + 0.3 * kl
    assert algorithm.loss(model, batch, shared).item() == pytest.approx(expected / 5)
    frozen = alike.detach()  # the divergence trains the predictions on data, not those on generated features

    def loss():
        logits = model(batch.images)
        terms = functional.cross_entropy(model.head(generator(labels.flip(0), noise).detach()), labels.flip(0))
        return functional.cross_entropy(logits, labels) + 0.7 * terms + 0.3 * divergence(logits, frozen)

    assert_gradients_match(loss, model.parameters())
    by_differences = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    algorithm.loss(model, batch, shared).backward()
    for parameter, gradient in zip(model.parameters(), by_differences, strict=True):
        assert torch.allclose(parameter.grad, gradient)


class HeadOnly(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(x)


def test_the_divergence_is_zero_between_equal_predictions_and_positive_between_others():
    logits = torch.randn(6, 3)
    assert divergence(logits, logits + 5).item() == pytest.approx(0, abs=1e-6)  # the same up to a constant
    assert divergence(logits, logits.flip(1)) > 0


def test_labels_are_drawn_with_equal_chances_from_the_classes_that_clients_hold():
    shares = equal_shares(torch.tensor([[5, 0, 1, 0], [900, 0, 0, 2]]))
    assert shares.tolist() == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3])


def test_the_weights_of_the_terms_shrink_from_round_to_round():
    net = build_model("small-cnn", (1, 8, 8), 3, seed=0)
    algorithm = FedGen(noise=8, hidden=8, weight=10, latent=5)
    server = {**algorithm.init(net, Fleet(np.array([20]), 3)), "fleet/counts": torch.tensor([[7, 6, 7]])}
    for round in (1, 2, 9):
        shared = algorithm.objective(replace(client_job(net, algorithm.broadcast(server, round)), round=round)).shared
        assert shared["weight/generated"].item() == pytest.approx(10 * 0.98**round * 32 / 8)
        assert shared["weight/latent"].item() == pytest.approx(5 * 0.98**round)


def test_adam_continues_from_its_state_after_the_last_round():
    """Two rounds of training equal one optimiser that is kept, at a learning rate that shrinks by round."""
    net = build_model("small-cnn", (1, 8, 8), 3, seed=0)
    algorithm = FedGen(ensemble_epochs=3, noise=8, hidden=8, ensemble_lr=0.01)
    server = {**algorithm.init(net, Fleet(np.array([10] * 3), 3, seed=4)), "fleet/counts": torch.ones(3, 3)}
    replies = toy_replies(algorithm, net, server)
    generator = algorithm._load_generator(server)
    optimiser = torch.optim.Adam(generator.parameters(), 0.01, weight_decay=1e-2)
    heads, biases = (torch.stack([reply.arrays[key] for reply in replies]) for key in ("head/weight", "head/bias"))
    start = int(server["fleet/seed"])
    for round in range(2):
        server = algorithm.server_update(server, replies, round)
        stream = torch.Generator().manual_seed(stream_seed("fedgen-server", start, round))
        optimiser.param_groups[0]["lr"] = 0.01 * 0.98**round
        for _ in range(3):
            labels, noise = draw(torch.full((3,), 1 / 3), 32, 8, stream)
            features = generator(labels, noise)
            optimiser.zero_grad()
            (teaching_loss(features, labels, heads, biases, torch.ones(3, 3)) + likeness(features, noise)).backward()
            optimiser.step()
    for name, tensor in generator.state_dict().items():
        assert torch.allclose(server["generator/" + name], tensor, atol=1e-6), name


def test_noise_is_uniform_and_labels_follow_their_shares():
    labels, noise = draw(torch.tensor([0.7, 0.0, 0.3]), 4000, 50, torch.Generator().manual_seed(0))
    flat = noise.flatten()
    assert 0 <= flat.min() < 0.001
    assert 0.999 < flat.max() < 1
    assert flat.mean().item() == pytest.approx(0.5, abs=0.01)
    assert flat.var().item() == pytest.approx(1 / 12, abs=0.001)
    assert torch.bincount(labels, minlength=3)[1] == 0
    assert (labels == 0).float().mean().item() == pytest.approx(0.7, abs=0.03)


def test_the_diversity_term_rewards_features_that_differ_with_the_noise():
    noise = torch.randn(6, 4)
    assert likeness(torch.ones(6, 3), noise).item() == pytest.approx(1)
    pair, far = torch.tensor([[0.0, 0.0], [3.0, 1.0]]), torch.tensor([[0.0], [4.0]])
    assert likeness(pair, far).item() == pytest.approx(np.exp(-(2 * 2 * 16) / 4))  # two of four pairs differ
    assert likeness(5 * torch.randn(6, 3), noise) < likeness(0.1 * torch.randn(6, 3), noise) < 1


def toy_replies(algorithm, net, server):
    """Three clients whose heads know the classes: class c is the direction c of the feature space."""
    features = net.head.in_features
    replies = []
    for client in range(3):
        weight = torch.zeros(3, features)
        weight[torch.arange(3), torch.arange(3)] = 4.0
        weight += 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(client))
        arrays = {**model_arrays(net), "head/weight": weight, "head/bias": torch.zeros(3)}
        replies.append(Reply(client, 10, arrays, {"loss": 0.0}))
    return replies


def test_the_generator_learns_and_its_features_are_classified_as_asked():
    net = build_model("small-cnn", (1, 8, 8), 3, seed=0)
    algorithm = FedGen(ensemble_lr=3e-3, ensemble_epochs=300, noise=16, hidden=32)
    server = algorithm.init(net, Fleet(np.array([10, 10, 10]), 3))
    server["fleet/counts"] = torch.tensor([[8, 1, 1], [1, 8, 1], [1, 1, 8]])
    replies = toy_replies(algorithm, net, server)
    heads, biases = (torch.stack([reply.arrays[key] for reply in replies]) for key in ("head/weight", "head/bias"))
    labels, noise = draw(torch.full((3,), 1 / 3), 200, 16, torch.Generator().manual_seed(9))

    def judged(state):
        features = algorithm._load_generator(state).eval()(labels, noise).detach()
        right = (torch.einsum("bd,kcd->bc", features, heads).argmax(dim=1) == labels).float().mean().item()
        return teaching_loss(features, labels, heads, biases, server["fleet/counts"].float()).item(), right

    before, after = judged(server), judged(algorithm.server_update(server, replies, 0))
    assert after[0] < 0.2 * before[0]
    assert after[1] > 0.95


def client_job(net, broadcast):
    rng = np.random.default_rng(3)
    data = ClientData.of(rng.integers(0, 256, (20, 1, 8, 8), dtype=np.uint8), rng.integers(0, 3, 20), NORMALISE)
    return ClientJob(0, 1, 0, 2, copy.deepcopy(net), data, broadcast, {}, TRAIN)


def test_clients_tell_their_real_label_counts_once():
    net = build_model("small-cnn", (1, 8, 8), 3, seed=0)
    algorithm = FedGen()
    server = algorithm.init(net, Fleet(np.array([20]), 3))
    this = client_job(net, server)
    reply = algorithm.setup_client(this)
    assert reply.arrays["fleet/counts"].tolist() == torch.bincount(this.data.labels, minlength=3).tolist()
    assert algorithm.setup_server(server, [reply, reply])["fleet/counts"].shape == (2, 3)


def test_the_first_round_equals_fedavg_and_later_ones_do_not():
    net = build_model("small-cnn", (1, 8, 8), 3, seed=0)
    algorithm = FedGen(ensemble_epochs=1, noise=8, hidden=8)
    server = {**algorithm.init(net, Fleet(np.array([20]), 3)), "fleet/counts": torch.tensor([[7, 6, 7]])}
    first, _ = algorithm.client_update(client_job(net, algorithm.broadcast(server, 0)))
    plain, _ = FedAvg().client_update(client_job(net, model_arrays(net)))
    assert all(torch.equal(first.arrays[key], plain.arrays[key]) for key in plain.arrays)
    assert torch.equal(first.arrays["head/weight"], first.arrays["model/head.weight"])
    trained = {**algorithm.server_update(server, [first], 0), **model_arrays(net)}
    second, _ = algorithm.client_update(client_job(net, algorithm.broadcast(trained, 1)))
    assert not torch.equal(second.arrays["model/head.weight"], plain.arrays["model/head.weight"])
    without, _ = FedGen(ensemble_epochs=1, noise=8, hidden=8, weight=0, latent=0).client_update(
        client_job(net, algorithm.broadcast(trained, 1))
    )
    plain, _ = FedAvg().client_update(client_job(net, model_arrays(net)))
    assert all(torch.equal(without.arrays[key], plain.arrays[key]) for key in plain.arrays)


def test_generator_training_and_client_draws_depend_on_the_runs_seed():
    net = build_model("small-cnn", (1, 8, 8), 3, seed=0)
    algorithm = FedGen(ensemble_epochs=1, noise=8, hidden=8)

    def begun(seed):
        return algorithm.init(net, Fleet(np.array([10, 10, 10]), 3, seed))

    def taught(weights, seed):
        """The generator after training that starts from the weights of one seed and draws by another."""
        server = {**begun(weights), "fleet/seed": begun(seed)["fleet/seed"], "fleet/counts": torch.ones(3, 3)}
        return algorithm.server_update(server, toy_replies(algorithm, net, server), 0)["generator/outer.weight"]

    def drawn(seed):
        broadcast = algorithm.broadcast({**begun(0), "fleet/counts": torch.ones(1, 3)}, 1)
        objective = algorithm.objective(replace(client_job(net, broadcast), seed=seed))
        return {**objective.per_step, **objective.per_sample}

    assert torch.equal(begun(4)["generator/inner.weight"], begun(4)["generator/inner.weight"])
    assert not torch.equal(begun(4)["generator/inner.weight"], begun(5)["generator/inner.weight"])
    assert torch.equal(taught(4, 4), taught(4, 4))
    assert not torch.equal(taught(4, 4), taught(4, 5))
    for key in ("asked", "asked_noise", "own_noise"):
        assert not torch.equal(drawn(4)[key], drawn(5)[key])


@pytest.mark.parametrize(
    "arguments", [{"batch": 1}, {"batch": 2.5}, {"ensemble_lr": -1}, {"weight": -1}, {"latent": -1}, {"hidden": 0}]
)
def test_hyperparameters_out_of_range_are_refused(arguments):
    with pytest.raises(InputError):
        FedGen(**arguments)
