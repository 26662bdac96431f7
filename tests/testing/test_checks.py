"""The checks of `fedeas.testing`: all of ours pass, and each law that is broken is named."""

import re
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from fedeas import Allocation, InputError, Policy, parse_policy
from fedeas.algorithms import ALGORITHMS, FedAvg, Reply, parse_algorithm
from fedeas.algorithms.local_sgd import Objective
from fedeas.generators.gaussian import GaussianGenerator
from fedeas.planning.policies import POLICIES
from fedeas.testing import check_algorithm, check_generator, check_policy

SPECS = {"cost-aware": "cost-aware(price=0.1)", "pool": "pool(distinct=7)"}
BUDGETED = ("uniform", "missing-only", "by-size", "greedy", "optimal", "kl")


@pytest.mark.parametrize("name", POLICIES)
def test_our_policies_keep_the_laws(name):
    budgets = ("7", "fedeas(beta=3)") if name in BUDGETED else ()
    for spec in [f"{name}(budget={budget})" for budget in budgets] or [SPECS.get(name, name)]:
        check_policy(parse_policy(spec))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_our_algorithms_keep_the_laws(name):
    check_algorithm(parse_algorithm(name))


def gaussian():
    rng = np.random.default_rng(0)
    return GaussianGenerator.fit(
        rng.integers(0, 256, (40, 1, 4, 4), dtype=np.uint8), np.arange(40) % 4, 4, components=8
    )


def test_our_gaussian_keeps_the_law():
    check_generator(gaussian())


@dataclass(frozen=True)
class Overspends(Policy):
    budget: int = 5

    def allocate(self, counts):
        return Allocation(np.full_like(counts.n, self.budget), self.spec)


@dataclass(frozen=True)
class OnlySaysItIsLocal(Policy):
    is_local: ClassVar[bool] = True

    def allocate(self, counts):
        return Allocation(counts.n.max() - counts.n, self.spec)


@dataclass(frozen=True)
class Negative(Policy):
    def allocate(self, counts):
        plan = Allocation(counts.n, self.spec)
        object.__setattr__(plan, "n", -counts.n)  # the constructor would refuse it
        return plan


@dataclass(frozen=True)
class WrongShape(Policy):
    def allocate(self, counts):
        return Allocation(counts.n[:, :1], self.spec)


@dataclass(frozen=True)
class Bare(Policy):
    def allocate(self, counts):
        return counts.n


RANDOM = np.random.default_rng(0)


@dataclass(frozen=True)
class Random(Policy):
    def allocate(self, counts):
        return Allocation(RANDOM.integers(0, 10**6, counts.n.shape), self.spec)


@pytest.mark.parametrize(
    ("policy", "law"),
    [
        (Overspends(), "of a budget of 5"),
        (OnlySaysItIsLocal(), "is_local, but client"),
        (Negative(), "negative numbers"),
        (WrongShape(), "the allocation is"),
        (Bare(), "must give an Allocation, not ndarray"),
        (Random(), "two allocations differ"),
    ],
)
def test_a_wrong_policy_is_caught(policy, law):
    with pytest.raises(AssertionError, match=law):
        check_policy(policy)


class CountsSyntheticSamples(FedAvg):
    def client_update(self, job):
        reply, state = super().client_update(job)
        return Reply(reply.client, reply.weight + 1, reply.arrays), state


class WritesToTheBroadcast(FedAvg):
    def client_update(self, job):
        reply, state = super().client_update(job)
        next(iter(job.broadcast.values())).add_(1)
        return reply, state


class LosesTheModel(FedAvg):
    def server_update(self, server, replies, round):
        updated = super().server_update(server, replies, round)
        return updated if round == 0 else {"other": next(iter(updated.values()))}


class KeepsOneTensor(FedAvg):
    def server_update(self, server, replies, round):
        return dict(list(server.items())[:1])


class RepliesWithNothing(FedAvg):
    def client_update(self, job):
        return Reply(job.client, job.data.num_real, {}), {}


class ReturnsNothing(FedAvg):
    def client_update(self, job):
        return None


class ReturnsNumbers(FedAvg):
    def server_update(self, server, replies, round):
        return {**super().server_update(server, replies, round), "x": 1}


class ReturnsALoss(FedAvg):
    def objective(self, job):
        return cross_entropy


class Diverges(FedAvg):
    def objective(self, job):
        return Objective(lambda model, batch, shared: model(batch.images).sum() * torch.inf)


class WithOwnLoss(FedAvg):
    """Its mean is over all rows of the batch, as in a loop that trains one client."""

    def objective(self, job):
        return Objective(self._loss)

    def _loss(self, model, batch, shared):
        return cross_entropy(model(batch.images), batch.labels)


class StacksOneMean(WithOwnLoss):
    stacks = True


class CountsRowsThatFillUp(StacksOneMean):
    def _loss(self, model, batch, shared):
        losses = cross_entropy(model(batch.images), batch.labels, reduction="none")
        return batch.mean(losses) if batch.shares is None else losses.view(batch.shares.shape).mean(dim=1)


class WithItsMean(StacksOneMean):
    def _loss(self, model, batch, shared):
        return batch.mean(cross_entropy(model(batch.images), batch.labels, reduction="none"))


def test_clients_with_a_loss_of_ones_own_are_stacked_only_if_it_says_so_and_is_right():
    assert FedAvg.stacks
    assert not WithOwnLoss.stacks
    check_algorithm(WithOwnLoss())
    check_algorithm(WithItsMean())
    with pytest.raises(AssertionError, match=r"batch\.mean"):
        check_algorithm(StacksOneMean())


class DrawsForSamples(FedAvg):
    stacks = True

    def objective(self, job):
        return Objective(per_sample={"drawn": torch.zeros(job.samples_seen)})


class DrawsForSteps(FedAvg):
    stacks = True

    def objective(self, job):
        return Objective(per_step={"drawn": torch.zeros(job.steps)})


@pytest.mark.parametrize("algorithm", [DrawsForSamples(), DrawsForSteps()])
def test_an_algorithm_that_stacks_and_draws_rows_is_refused(algorithm):
    with pytest.raises(AssertionError, match="stacks = False"):
        check_algorithm(algorithm)


@pytest.mark.parametrize(
    ("algorithm", "law"),
    [
        (CountsSyntheticSamples(), r"replies with weight \d+, but has \d+ samples"),
        (WritesToTheBroadcast(), "of the broadcast; work on a copy"),
        (LosesTheModel(), "the server's state lacks model/"),
        (CountsRowsThatFillUp(), "stacks, but model/"),
        (KeepsOneTensor(), "the server's state or its broadcast lacks model/"),
        (RepliesWithNothing(), "the reply of client 0 lacks model/"),
        (ReturnsNothing(), "ReturnsNothing: client_update must return a Reply and .*, not NoneType"),
        (ReturnsNumbers(), "server_update must return a dictionary of tensors, not {'x': int}"),
        (ReturnsALoss(), "objective must return an Objective, not function"),
        (Diverges(), "the loss is"),
    ],
)
def test_a_wrong_algorithm_is_caught(algorithm, law):
    with pytest.raises(AssertionError, match=law):
        check_algorithm(algorithm)


REPLY = Reply(0, 1, {})


@pytest.mark.parametrize(
    ("method", "answer", "types"),
    [
        ("init", None, "NoneType"),
        ("broadcast", [torch.zeros(1)], "(Tensor)"),
        ("setup_client", {}, "{}"),
        ("setup_server", None, "NoneType"),
        ("objective", (), "()"),
        ("client_update", REPLY, "Reply"),
        ("client_update", (REPLY, None), "(Reply, NoneType)"),
        ("client_update", (REPLY, {"x": 1}), "(Reply, {'x': int})"),
        ("server_update", {"model/x": 1, "y": torch.zeros(1)}, "{'model/x': int}"),
    ],
)
def test_a_method_that_returns_something_else_is_refused(method, answer, types):
    algorithm = type("Other", (FedAvg,), {method: lambda self: answer})()
    with pytest.raises(InputError, match=f"Other: {method} must return .*, not {re.escape(types)}$"):
        getattr(algorithm, method)()


class ByCallOrder:
    num_classes, shape, batch_size, fingerprint = 4, (1, 2, 2), 8, "0" * 64

    def __init__(self):
        self.rng = np.random.default_rng(0)

    def sample(self, labels, index):
        return self.rng.integers(0, 256, (len(labels), *self.shape), dtype=np.uint8)


class ByPlace(ByCallOrder):
    def sample(self, labels, index):
        return np.arange(4 * len(labels), dtype=np.uint8).reshape(-1, *self.shape)


class TakesAnyLabel(ByCallOrder):
    def sample(self, labels, index):
        return np.zeros((len(labels), *self.shape), dtype=np.uint8)


@pytest.mark.parametrize(
    ("generator", "law"),
    [
        (ByCallOrder(), "drawn twice"),
        (ByPlace(), "in another order"),
        (TakesAnyLabel(), "label -1 is not refused"),
    ],
)
def test_a_wrong_generator_is_caught(generator, law):
    with pytest.raises(AssertionError, match=law):
        check_generator(generator)
