"""Losses that know the label counts: closed forms, finite differences, and what they are for special counts."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import assert_gradients_match
from torch import nn
from torch.nn import functional

from fedeas.algorithms import parse_algorithm
from fedeas.algorithms.base import ClientJob, Fleet
from fedeas.algorithms.local_sgd import Batch, Objective, cross_entropy
from fedeas.config import TrainConfig, load_config
from fedeas.config.hyperparameters import BalancedSoftmax, parse_loss
from fedeas.core.errors import SpecError
from fedeas.data.client import ClientData, Normaliser
from fedeas.models.build import build_model

KNOWING = [BalancedSoftmax(), BalancedSoftmax(tau=0.3, smoothing=2)]
COUNTS = st.lists(st.integers(0, 10**6), min_size=3, max_size=3)
LOGITS = torch.tensor([[0.3, -1.2, 2.0], [1.5, 0.1, -0.4], [0.0, 0.7, 0.9]], dtype=torch.float64)
LABELS = torch.tensor([0, 2, 1])


def losses(loss, counts, logits=LOGITS):
    """The loss of each sample of one client."""
    terms = torch.from_numpy(loss.logit_terms(np.array(counts)))
    batch = Batch(logits, LABELS, terms=terms)
    return functional.cross_entropy(batch.adjusted(logits), LABELS, reduction="none")


def written_out(weights, logits=LOGITS):
    """-log(w_y e^{z_y} / sum_c w_c e^{z_c}) for each sample."""
    weighed = torch.tensor(weights, dtype=torch.float64) * logits.exp()
    return -(weighed[range(3), LABELS] / weighed.sum(dim=1)).log()


@given(COUNTS)
def test_balanced_softmax_weighs_each_class_by_its_smoothed_count(counts):
    expected = written_out([count + 1 for count in counts])
    assert torch.allclose(losses(BalancedSoftmax(), counts), expected, atol=1e-9)
    halved = written_out([(count + 3) ** 0.5 for count in counts])
    assert torch.allclose(losses(BalancedSoftmax(tau=0.5, smoothing=3), counts), halved, atol=1e-9)


@pytest.mark.parametrize("loss", KNOWING, ids=str)
@given(count=st.integers(1, 10**6))
def test_for_a_balanced_client_it_is_cross_entropy(loss, count):
    expected = functional.cross_entropy(LOGITS, LABELS, reduction="none")
    assert torch.allclose(losses(loss, [count] * 3), expected, atol=1e-9)


@given(COUNTS)
def test_it_can_be_switched_off(counts):
    assert torch.allclose(
        losses(BalancedSoftmax(tau=0), counts), functional.cross_entropy(LOGITS, LABELS, reduction="none")
    )


@given(COUNTS, st.permutations(range(3)))
def test_balanced_softmax_predicts_by_the_clients_shares_where_the_logits_say_nothing(counts, order):
    """So that the model itself need not learn the shares: equal logits already fit them."""
    counts = [counts[place] for place in order]
    zeros = torch.zeros(3, 3, dtype=torch.float64)
    terms = torch.from_numpy(BalancedSoftmax().logit_terms(np.array(counts)))
    predicted = Batch(zeros, LABELS, terms=terms).adjusted(zeros).softmax(dim=1)[0]
    smoothed = torch.tensor([count + 1.0 for count in counts], dtype=torch.float64)
    assert torch.allclose(predicted, smoothed / smoothed.sum())


class Network(nn.Module):
    """A smooth network in double precision."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(16, 5), nn.Linear(5, 3)
        self.double()

    def features(self, images):
        return torch.tanh(self.inner(images.flatten(1).double()))

    def forward(self, images):
        return self.head(self.features(images))


def job_of(loss, model=None, labels=(0, 0, 0, 0, 0, 1, 1)):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (len(labels), 1, 4, 4), dtype=np.uint8)
    data = ClientData.of(images, np.array(labels), Normaliser.of((0.5,), (0.25,)))
    train = TrainConfig(lr=0.05, batch_size=4, epochs=2, loss=loss)
    return ClientJob(0, 0, 0, 1, model or build_model("small-cnn", (1, 8, 8), 3, seed=0), data, {}, {}, train)


def test_gradients_equal_finite_differences():
    torch.manual_seed(0)
    job = job_of("balanced-softmax", Network())
    objective = Objective().knowing_counts(job)
    batch = objective.batch(job.data.normalise(job.data.images), job.data.labels)
    assert_gradients_match(lambda: cross_entropy(job.model, batch, {}), job.model.parameters())


def test_counts_include_synthetic_samples():
    job = job_of("balanced-softmax")
    more = job.data.joined(np.zeros((4, 1, 4, 4), np.uint8), np.array([2, 2, 2, 2]))
    before, after = (Objective().knowing_counts(each) for each in (job, ClientJob(**{**vars(job), "data": more})))
    shares = [torch.tensor(counts) for counts in ([6.0, 3.0, 1.0], [6.0, 3.0, 5.0])]
    for objective, share in zip((before, after), shares, strict=True):
        [terms] = objective.shared.values()
        assert torch.allclose(terms, (share / share.sum()).log(), atol=1e-6)


@pytest.mark.parametrize("spec", ["fedavg", "fedprox", "scaffold(option=I)", "moon", "fedgen", "fedmix"])
def test_every_algorithm_takes_it(spec):
    """Its results differ from those of cross-entropy for a skewed client, and not for a balanced one."""

    def weights(loss, labels):
        algorithm = parse_algorithm(spec)
        job = job_of(loss, labels=labels)
        server = algorithm.init(job.model, Fleet(np.array([len(labels)]), 3))
        job = ClientJob(**{**vars(job), "broadcast": server})
        setup = algorithm.setup_client(job)
        server = algorithm.setup_server(server, [setup]) if setup else server
        job = ClientJob(**{**vars(job), "broadcast": algorithm.broadcast(server, 0)})
        return algorithm.client_update(job)[0].arrays["model/head.weight"].clone()

    skewed, balanced = (0, 0, 0, 0, 1, 1), (0, 1, 2, 0, 1, 2)
    assert not torch.allclose(weights("cross-entropy", skewed), weights("balanced-softmax", skewed), atol=1e-4)
    assert torch.allclose(weights("cross-entropy", balanced), weights("balanced-softmax", balanced), atol=1e-6)


def test_a_config_names_it_in_one_spelling_and_leaves_the_default_out_of_the_fingerprint():
    plain, named, other = (
        load_config(None, list(each))
        for each in ([], ["train.loss=Cross_Entropy"], ["train.loss=balanced-softmax(tau=1.0)"])
    )
    assert plain.fingerprint == named.fingerprint != other.fingerprint
    assert other.train.loss == load_config(None, ["train.loss=Balanced_Softmax"]).train.loss


@pytest.mark.parametrize("text", ["balanced-softmax(tau=-1)", "balanced-softmax(smoothing=0)", "hinge"])
def test_what_is_no_loss_is_refused(text):
    with pytest.raises(SpecError):
        parse_loss(text)
