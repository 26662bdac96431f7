"""FedGen: a generator of features, taught by the clients' heads, brings every class to every client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedeas.algorithms.base import MODEL, Arrays, ClientJob, Fleet, Reply, group, head_of, model_arrays
from fedeas.algorithms.fedavg import FedAvg
from fedeas.algorithms.local_sgd import Batch, Objective, cross_entropy
from fedeas.errors import InputError
from fedeas.streams import stream_seed

GENERATOR, HEAD_WEIGHT, HEAD_BIAS = "generator/", "head/weight", "head/bias"
COUNTS, SHARES, CLASSES, SEED = "fleet/counts", "fleet/shares", "fleet/classes", "fleet/seed"
ASKED, NOISE = "asked", "noise"


class LatentGenerator(nn.Module):
    """G(y, noise): class and noise to a vector of features, through one hidden layer."""

    def __init__(self, num_classes: int, noise: int, hidden: int, features: int) -> None:
        super().__init__()
        self.inner = nn.Linear(num_classes + noise, hidden)
        self.outer = nn.Linear(hidden, features)

    def forward(self, labels: Tensor, noise: Tensor) -> Tensor:
        """One vector for each label and its row of noise."""
        return generated(dict(self.named_parameters()), labels, noise)


def generated(weights: Mapping[str, Tensor], labels: Tensor, noise: Tensor) -> Tensor:
    """G(y, noise) under these weights of a `LatentGenerator`."""
    num_classes = weights["inner.weight"].shape[1] - noise.shape[1]
    # Compared rather than one_hot, which looks at the labels and makes a GPU wait.
    classes = (labels[:, None] == torch.arange(num_classes, device=labels.device)).to(noise.dtype)
    hidden = functional.linear(torch.cat([classes, noise], dim=1), weights["inner.weight"], weights["inner.bias"])
    return functional.linear(functional.relu(hidden), weights["outer.weight"], weights["outer.bias"])


@dataclass(frozen=True)
class FedGen(FedAvg):
    """Data-free distillation through a latent generator (Zhu, Hong, Zhou, ICML 2021, Eq. 4 and 5).

    After each round the server trains G(y, noise) so that the heads of the round's clients take its features for the
    class asked: labels are drawn by their share among these clients, the loss of client k's head on a sample of class y
    has the weight n_k^y / sum_j n_j^y, the noise is Gaussian, and a diversity term keeps different noise apart. From
    the second round on a client adds the loss of its own head on generated features to that of its data.

    **It needs label counts**: each client tells the server its own, once, at set-up.

    Args:
        ensemble_lr: Adam's learning rate for the generator.
        batch: generated features at a time, at the server and at the clients.
        noise: length of the noise.
        hidden: width of the generator's hidden layer.
        ensemble_epochs: passes of `generator_epochs` steps after each round.
        generator_epochs: steps of a pass.
        weight: of the generated-feature loss at the clients, 1 as in Eq. 5.
        diversity: weight of the diversity term.

    The first six defaults are the paper's, supplement D. Adam starts anew in every round.
    """

    ensemble_lr: float = 3e-4
    batch: int = 32
    noise: int = 128
    hidden: int = 256
    ensemble_epochs: int = 100
    generator_epochs: int = 10
    weight: float = 1.0
    diversity: float = 1.0
    needs_setup: ClassVar[bool] = True
    shares_counts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("ensemble_lr", "batch", "noise", "hidden", "ensemble_epochs", "generator_epochs"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be above 0, not {getattr(self, name)}")
        if not (self.weight >= 0 and self.diversity >= 0):
            raise InputError("weight and diversity must be 0 or more")

    def init(self, model: nn.Module, fleet: Fleet) -> Arrays:
        """The initial weights, and a generator for the features that the model's head reads."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(stream_seed("fedgen-weights", fleet.seed))
            generator = self._generator(fleet.num_classes, head_of(model).in_features)
        generator.to(head_of(model).weight.device)
        known = {CLASSES: torch.tensor(fleet.num_classes), SEED: torch.tensor(stream_seed("fedgen", fleet.seed))}
        return {**model_arrays(model), **_named(generator), **known}

    def setup_client(self, job: ClientJob) -> Reply | None:
        """The client's label counts, of its real samples."""
        counts = torch.bincount(job.data.labels, minlength=int(job.broadcast[CLASSES]))
        return Reply(job.client, job.data.num_real, {COUNTS: counts})

    def setup_server(self, server: Arrays, replies: Sequence[Reply]) -> Arrays:
        """The table of label counts, a row for each client."""
        return {**server, COUNTS: torch.stack([reply.arrays[COUNTS] for reply in replies])}

    def broadcast(self, server: Arrays, round: int) -> Arrays:
        """The global model; once it has been trained, the generator and the shares by which labels are drawn."""
        trained = {**group(server, GENERATOR), SHARES: server[SHARES]} if SHARES in server else {}
        return {**group(server, MODEL), **trained}

    def client_update(self, job: ClientJob) -> tuple[Reply, Arrays]:
        """FedAvg with the generated-feature loss; the head goes along under a name of its own."""
        reply, state = super().client_update(job)
        head = head_of(job.model)
        teacher = {HEAD_WEIGHT: head.weight.detach().clone(), HEAD_BIAS: head.bias.detach().clone()}
        return replace(reply, arrays={**reply.arrays, **teacher}), state

    def objective(self, job: ClientJob) -> Objective:
        """Cross-entropy on the data, plus that of the head on features generated for labels drawn ahead."""
        if SHARES not in job.broadcast:
            return Objective()
        shares = job.broadcast[SHARES]
        stream = torch.Generator(shares.device)
        stream.manual_seed(stream_seed("fedgen-client", job.seed, job.round, job.client))
        labels, noise = zip(*(draw(shares, self.batch, self.noise, stream) for _ in range(job.steps)), strict=True)
        drawn = {ASKED: torch.stack(labels), NOISE: torch.stack(noise)}
        return Objective(self._loss, group(job.broadcast, GENERATOR), per_step=drawn)

    def _loss(self, model: nn.Module, batch: Batch, shared: Arrays) -> Tensor:
        asked, head = batch.drawn[ASKED], head_of(model)
        weights = {key.removeprefix(GENERATOR): tensor for key, tensor in shared.items()}
        with torch.no_grad():
            features = generated(weights, asked, batch.drawn[NOISE])
        return cross_entropy(model, batch, shared) + self.weight * functional.cross_entropy(head(features), asked)

    def server_update(self, server: Arrays, replies: Sequence[Reply], round: int) -> Arrays:
        """FedAvg, then lessons for the generator from the heads of this round."""
        server = super().server_update(server, replies, round)
        heads = torch.stack([reply.arrays[HEAD_WEIGHT] for reply in replies])
        biases = torch.stack([reply.arrays[HEAD_BIAS] for reply in replies])
        counts = server[COUNTS][[reply.client for reply in replies]].to(heads.dtype)
        shares = counts.sum(dim=0) / counts.sum()
        generator = self._loaded(server, counts.shape[1], heads.shape[2])
        optimiser = torch.optim.Adam(generator.parameters(), self.ensemble_lr)
        stream = torch.Generator(shares.device).manual_seed(stream_seed("fedgen-server", int(server[SEED]), round))
        for _ in range(self.ensemble_epochs * self.generator_epochs):
            labels, noise = draw(shares, self.batch, self.noise, stream)
            features = generator(labels, noise)
            lesson = teaching_loss(features, labels, heads, biases, counts) + self.diversity * likeness(features, noise)
            optimiser.zero_grad(set_to_none=True)
            lesson.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        return {**server, **_named(generator), SHARES: shares}

    def _generator(self, num_classes: int, features: int) -> LatentGenerator:
        return LatentGenerator(num_classes, self.noise, self.hidden, features)

    def _loaded(self, arrays: Arrays, num_classes: int, features: int) -> LatentGenerator:
        tensors = {key.removeprefix(GENERATOR): tensor.clone() for key, tensor in group(arrays, GENERATOR).items()}
        generator = self._generator(num_classes, features).to(next(iter(tensors.values())))
        generator.load_state_dict(tensors)
        return generator


def draw(shares: Tensor, count: int, length: int, stream: torch.Generator) -> tuple[Tensor, Tensor]:
    """Labels by their shares, and a row of standard normal noise for each."""
    labels = torch.multinomial(shares, count, replacement=True, generator=stream)
    return labels, torch.randn(count, length, generator=stream, device=shares.device, dtype=shares.dtype)


def teaching_loss(features: Tensor, labels: Tensor, heads: Tensor, biases: Tensor, counts: Tensor) -> Tensor:
    """Loss of each head on each sample, weighed by how many samples of the class its client holds.

    Losses and weights are both tables of clients x samples; the weights of a sample sum to 1.
    """
    logits = torch.einsum("bd,kcd->kbc", features, heads) + biases[:, None, :]
    losses = functional.cross_entropy(logits.flatten(0, 1), labels.repeat(len(heads)), reduction="none")
    weights = (counts / counts.sum(dim=0).clamp_min(1))[:, labels]
    return (losses.view(len(heads), -1) * weights).sum(dim=0).mean()


def likeness(features: Tensor, noise: Tensor) -> Tensor:
    """The diversity term, exp(-mean |z_i - z_j| |e_i - e_j|): 1 if all features are alike, less if they differ."""
    apart = (features[:, None] - features[None]).abs().mean(dim=2)
    wanted = (noise[:, None] - noise[None]).abs().mean(dim=2)
    return torch.exp(-(apart * wanted).mean())


def _named(generator: LatentGenerator) -> Arrays:
    return {GENERATOR + name: tensor.detach().clone() for name, tensor in generator.state_dict().items()}
