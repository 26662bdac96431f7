"""FedGen: a generator of features, trained with the clients' heads, gives every client features of every class."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedeas.algorithms.base import (
    MODEL,
    Arrays,
    ClientJob,
    Fleet,
    Reply,
    as_group,
    group,
    head_of,
    members,
    model_arrays,
)
from fedeas.algorithms.fedavg import FedAvg
from fedeas.algorithms.local_sgd import Batch, Objective
from fedeas.config import hyperparameters
from fedeas.core.arrays import stream_seed

GENERATOR, ADAM, HEAD = "generator/", "adam/", "head/"
COUNTS, SHARES, CLASSES, SEED = "fleet/counts", "fleet/shares", "fleet/classes", "fleet/seed"
ASKED, ASKED_NOISE, OWN_NOISE = "asked", "asked_noise", "own_noise"
WEIGHT, LATENT = "weight/generated", "weight/latent"

DECAY = 0.98  # factor by which the learning rate and the clients' loss weights shrink in each round

WEIGHT_DECAY = 1e-2  # weight decay of Adam, for the generator


class LatentGenerator(nn.Module):
    """G(y, noise): class and noise to a vector of features, through one hidden layer with batch norm."""

    def __init__(self, num_classes: int, noise: int, hidden: int, features: int) -> None:
        super().__init__()
        self.inner = nn.Linear(num_classes + noise, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.outer = nn.Linear(hidden, features)

    def forward(self, labels: Tensor, noise: Tensor) -> Tensor:
        """One vector for each label and its row of noise."""
        hidden: Tensor = self.norm(self.inner(_joined(labels, noise, self.inner.in_features)))
        features: Tensor = self.outer(functional.relu(hidden))
        return features


def generated(weights: Mapping[str, Tensor], labels: Tensor, noise: Tensor) -> Tensor:
    """G(y, noise) under these weights of a `LatentGenerator`, in evaluation mode."""
    hidden = functional.linear(
        _joined(labels, noise, weights["inner.weight"].shape[1]), weights["inner.weight"], weights["inner.bias"]
    )
    hidden = functional.batch_norm(
        hidden, weights["norm.running_mean"], weights["norm.running_var"], weights["norm.weight"], weights["norm.bias"]
    )
    return functional.linear(functional.relu(hidden), weights["outer.weight"], weights["outer.bias"])


def _joined(labels: Tensor, noise: Tensor, width: int) -> Tensor:
    """One-hot labels beside the noise. torch's one_hot would read the labels on the host."""
    classes = labels[:, None] == torch.arange(width - noise.shape[1], device=labels.device)
    return torch.cat([classes.to(noise.dtype), noise], dim=1)


class FedGen(hyperparameters.FedGen, FedAvg):
    """Data-free distillation through a latent generator (Zhu, Hong, Zhou, ICML 2021, Eq. 4 and 5).

    After each round the server trains G(y, noise) so that the heads of the round's clients classify its features as
    class y: the loss of client k's head on a sample of class y has the weight n_k^y / sum_j n_j^y, and a diversity
    term keeps the features of different noise apart. From the second round on a client adds two terms to the loss of
    its data: the loss of its head on generated features of random classes, and the divergence of its predictions on
    its samples from those on features generated for the same labels. The weights of both shrink from round to round.

    **It needs label counts**: each client sends its own to the server, once, at set-up.
    """

    needs_setup = True
    shares_counts = True

    def init(self, model: nn.Module, fleet: Fleet) -> Arrays:
        """The initial weights, and a generator for the features that the model's head reads."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(stream_seed("fedgen-weights", fleet.seed))
            generator = LatentGenerator(fleet.num_classes, self.noise, self.hidden, head_of(model).in_features)
        generator.to(head_of(model).weight.device)
        known = {CLASSES: torch.tensor(fleet.num_classes), SEED: torch.tensor(stream_seed("fedgen", fleet.seed))}
        return {**model_arrays(model), **as_group(generator.state_dict(), GENERATOR), **known}

    def setup_client(self, job: ClientJob) -> Reply | None:
        """The label counts of the client's real samples."""
        counts = torch.bincount(job.data.labels, minlength=int(job.broadcast[CLASSES]))
        return Reply(job.client, job.data.num_real, {COUNTS: counts})

    def setup_server(self, server: Arrays, replies: Sequence[Reply]) -> Arrays:
        """The table of label counts, a row for each client."""
        return {**server, COUNTS: torch.stack([reply.arrays[COUNTS] for reply in replies])}

    def broadcast(self, server: Arrays, round: int) -> Arrays:
        """The global model; from the second round on also the generator and the probabilities of labels."""
        if round == 0:
            return group(server, MODEL)
        shares = equal_shares(server[COUNTS]).to(server[GENERATOR + "outer.weight"])
        return {**group(server, MODEL), **group(server, GENERATOR), SHARES: shares}

    def client_update(self, job: ClientJob) -> tuple[Reply, Arrays]:
        """FedAvg with two more losses; the reply also holds the head, under separate names."""
        reply, state = super().client_update(job)
        teacher = {HEAD + name: tensor.clone() for name, tensor in head_of(job.model).state_dict().items()}
        return replace(reply, arrays={**reply.arrays, **teacher}), state

    def objective(self, job: ClientJob) -> Objective:
        """Cross-entropy on the data and the two terms on generated features, with labels and noise drawn ahead."""
        if SHARES not in job.broadcast:
            return Objective()
        shares = job.broadcast[SHARES]
        stream = torch.Generator(shares.device)
        stream.manual_seed(stream_seed("fedgen-client", job.seed, job.round, job.client))
        asked, noise = draw(shares, job.steps * self.batch, self.noise, stream)
        own = torch.rand(job.samples_seen, self.noise, generator=stream, device=shares.device, dtype=shares.dtype)
        per_step = {ASKED: asked.view(job.steps, self.batch), ASKED_NOISE: noise.view(job.steps, self.batch, -1)}
        faded = DECAY**job.round
        shared = group(job.broadcast, GENERATOR)
        shared[WEIGHT] = shares.new_tensor(self.weight * faded * self.batch / job.train.batch_size)
        shared[LATENT] = shares.new_tensor(self.latent * faded)
        return Objective(self.loss, shared, {OWN_NOISE: own}, per_step)

    def loss(self, model: nn.Module, batch: Batch, shared: Arrays) -> Tensor:
        """The loss on the data and the two terms on generated features, for one batch."""
        head, asked = head_of(model), batch.drawn[ASKED]
        weights = members(shared, GENERATOR)
        with torch.no_grad():
            features = generated(weights, asked, batch.drawn[ASKED_NOISE])
            alike = head(generated(weights, batch.labels, batch.drawn[OWN_NOISE]))
        logits = model(batch.images)
        own = functional.cross_entropy(batch.adjusted(logits), batch.labels)
        asked_loss = functional.cross_entropy(head(features), asked)
        return own + shared[WEIGHT] * asked_loss + shared[LATENT] * divergence(logits, alike)

    def server_update(self, server: Arrays, replies: Sequence[Reply], round: int) -> Arrays:
        """FedAvg, then training of the generator with the heads of this round."""
        server = super().server_update(server, replies, round)
        heads, biases = (torch.stack([reply.arrays[HEAD + name] for reply in replies]) for name in ("weight", "bias"))
        counts = server[COUNTS][[reply.client for reply in replies]].to(heads.dtype)
        shares, generator = equal_shares(counts), self._load_generator(server)
        rate = self.ensemble_lr * DECAY**round
        optimiser = torch.optim.Adam(generator.parameters(), rate, weight_decay=WEIGHT_DECAY)
        for place, parameter in enumerate(generator.parameters()):
            if moments := {name: tensor.clone() for name, tensor in members(server, f"{ADAM}{place}/").items()}:
                optimiser.state[parameter] = {**moments, "step": moments["step"].cpu()}
        stream = torch.Generator(shares.device).manual_seed(stream_seed("fedgen-server", int(server[SEED]), round))
        for _ in range(self.ensemble_epochs):
            labels, noise = draw(shares, self.batch, self.noise, stream)
            features = generator(labels, noise)
            lesson = teaching_loss(features, labels, heads, biases, counts) + self.diversity * likeness(features, noise)
            optimiser.zero_grad(set_to_none=True)
            lesson.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        server |= as_group(generator.state_dict(), GENERATOR)
        for place, moments in optimiser.state_dict()["state"].items():
            server |= as_group(moments, f"{ADAM}{place}/")
        return server

    def _load_generator(self, arrays: Arrays) -> LatentGenerator:
        tensors = members(arrays, GENERATOR)
        features, classes = len(tensors["outer.bias"]), tensors["inner.weight"].shape[1] - self.noise
        generator = LatentGenerator(classes, self.noise, self.hidden, features).to(tensors["inner.weight"])
        generator.load_state_dict(tensors)
        return generator


def equal_shares(counts: Tensor) -> Tensor:
    """Equal probability for each class that these clients hold a sample of."""
    held = (counts.sum(dim=0) > 0).to(counts.dtype if counts.is_floating_point() else torch.float32)
    return held / held.sum()


def draw(shares: Tensor, count: int, length: int, stream: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw labels with these probabilities, and for each a row of noise, uniform between 0 and 1."""
    labels = torch.multinomial(shares, count, replacement=True, generator=stream)
    return labels, torch.rand(count, length, generator=stream, device=shares.device, dtype=shares.dtype)


def teaching_loss(features: Tensor, labels: Tensor, heads: Tensor, biases: Tensor, counts: Tensor) -> Tensor:
    """Loss of each head on each sample, weighted by how many samples of the class its client holds.

    Losses and weights are both tables of clients x samples; the weights of a sample sum to 1.
    """
    logits = torch.einsum("bd,kcd->kbc", features, heads) + biases[:, None, :]
    losses = functional.cross_entropy(logits.flatten(0, 1), labels.repeat(len(heads)), reduction="none")
    weights = (counts / counts.sum(dim=0).clamp_min(1))[:, labels]
    return (losses.view(len(heads), -1) * weights).sum(dim=0).mean()


def likeness(features: Tensor, noise: Tensor) -> Tensor:
    """The diversity term, exp(-mean |z_i - z_j| (e_i - e_j)^2): 1 if all features are alike, less if they differ."""
    apart = (features[:, None] - features[None]).abs().mean(dim=2)
    wanted = (noise[:, None] - noise[None]).square().mean(dim=2)
    return torch.exp(-(apart * wanted).mean())


def divergence(logits: Tensor, wanted: Tensor) -> Tensor:
    """KL(softmax(wanted) || softmax(logits)), averaged over the batch."""
    return functional.kl_div(
        functional.log_softmax(logits, dim=1), functional.softmax(wanted, dim=1), reduction="batchmean"
    )
