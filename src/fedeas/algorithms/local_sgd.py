"""The local training loop of all algorithms, and the batches that it takes.

Each algorithm gives it an objective: a loss, its tensors, a gradient correction. Which samples a client sees, in which
order, and how each is augmented: all is drawn before training starts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import SupportsFloat

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.sgd import sgd

from fedeas.algorithms.base import Arrays, ClientJob, batch_sizes, head_of
from fedeas.config.hyperparameters import CrossEntropy, parse_loss
from fedeas.config.sections import TrainConfig
from fedeas.core.arrays import IntArray, stream
from fedeas.core.devices import autocast
from fedeas.core.errors import RunError


class Descent:
    """SGD with momentum and weight decay; the parameters of the model are updated in place.

    It calls torch's function, because the overhead of torch.optim is a large part of a step where networks are small.
    """

    fused: bool | None = None  # whether torch updates all parameters in one kernel; None leaves the choice to torch

    def __init__(self, model: nn.Module, train: TrainConfig, rate: float | Tensor) -> None:
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.velocities: list[Tensor | None] = [None] * len(self.parameters)
        self.momentum, self.weight_decay = train.momentum, train.weight_decay
        self.rate = rate

    def expect(self, loss: Tensor, corrected: bool) -> None:
        """Get ready for the backward pass of this loss; `corrected` says whether gradients will be changed after it."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters that have a gradient."""
        moved = [i for i, parameter in enumerate(self.parameters) if parameter.grad is not None]
        velocities = [self.velocities[i] for i in moved]
        sgd(
            [self.parameters[i] for i in moved],
            [self.parameters[i].grad for i in moved],  # type: ignore[misc]
            velocities,
            fused=self.fused,
            weight_decay=self.weight_decay,
            momentum=self.momentum,
            lr=self.rate,  # type: ignore[arg-type]
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )
        for i, velocity in zip(moved, velocities, strict=True):
            self.velocities[i] = velocity


TERMS = "loss/terms"  # in the shared tensors of an objective: what is added to the logit of each class, (classes,)


@dataclass(frozen=True, eq=False)
class Batch:
    """Samples of one step, normalised and augmented, and what the algorithm drew for them.

    Args:
        images: of one client, or of several clients one after the other, each with the same number of rows.
        labels: of the images.
        drawn: rows that the algorithm drew for these samples or for this step.
        shares: for several clients; the weight of each row in its client's mean, (clients, rows), 0 for rows that only
            fill up the batch. None for one client whose rows all count.
        terms: what is added to the logits of each class, (classes,), or (clients, classes) for several clients; None
            for plain cross-entropy.
    """

    images: Tensor
    labels: Tensor
    drawn: Mapping[str, Tensor] = field(default_factory=dict)
    shares: Tensor | None = None
    terms: Tensor | None = None

    def adjusted(self, logits: Tensor) -> Tensor:
        """The logits of these samples as the run's loss takes them (``train.loss``)."""
        if self.terms is None:
            return logits
        rows = logits.view(-1, len(logits) if self.shares is None else self.shares.shape[1], logits.shape[1])
        return (rows + self.terms.view(-1, 1, logits.shape[1])).view(logits.shape)

    def mean(self, values: Tensor) -> Tensor:
        """The mean over samples: one number, or one for each client."""
        return values.mean() if self.shares is None else (values.view(self.shares.shape) * self.shares).sum(dim=1)

    def cross_entropy(self, logits: Tensor) -> Tensor:
        """The mean loss over samples, with the logits as the run's loss takes them."""
        return self.mean(functional.cross_entropy(self.adjusted(logits), self.labels, reduction="none"))

    def total(self, values: Tensor) -> Tensor:
        """The sum over a tensor shaped like a model's parameter: one number, or one for each client."""
        return values.sum() if self.shares is None else values.flatten(1).sum(dim=1)


def cross_entropy(model: nn.Module, batch: Batch, shared: Arrays) -> Tensor:
    """The loss of plain training."""
    return batch.cross_entropy(model(batch.images))


@dataclass(frozen=True, eq=False)
class Objective:
    """The objective of a client: functions of tensors alone, the same for every client.

    An algorithm that `stacks` cannot draw rows (`per_sample`, `per_step`): batches of its clients are filled up.

    Args:
        loss: of a model and a batch, given the shared tensors; it sums over samples and parameters only by the batch's
            `mean` and `total`, so that the same function works for several clients at once.
        shared: tensors that all steps read, by ``group/name``; one named like a parameter or buffer has its shape.
        per_sample: a row for each sample in the order in which they are seen, over all epochs.
        per_step: a row for each step.
        correct: changes the gradients between backward and step, given the shared tensors.
    """

    loss: Callable[[nn.Module, Batch, Arrays], Tensor] = cross_entropy
    shared: Arrays = field(default_factory=dict)
    per_sample: Arrays = field(default_factory=dict)
    per_step: Arrays = field(default_factory=dict)
    correct: Callable[[nn.Module, Arrays], None] | None = None

    def batch(self, images: Tensor, labels: Tensor, start: int = 0, step: int = 0) -> Batch:
        """A batch with the rows that were drawn for it, from row `start` on."""
        drawn = {name: rows[start : start + len(labels)] for name, rows in self.per_sample.items()}
        drawn |= {name: rows[step] for name, rows in self.per_step.items()}
        return Batch(images, labels, drawn, terms=self.shared.get(TERMS))

    def knowing_counts(self, job: ClientJob) -> Objective:
        """The same objective with the loss of the run, which may depend on the client's label counts."""
        loss = parse_loss(job.train.loss)
        if loss == CrossEntropy():
            return self
        counts = torch.bincount(job.data.labels, minlength=head_of(job.model).out_features)
        terms = torch.from_numpy(loss.logit_terms(counts.cpu().numpy()))
        return replace(self, shared={**self.shared, TERMS: terms.to(job.data.normalise.scale)})


@dataclass(frozen=True)
class LocalResult:
    """Steps taken, images seen (an image counts each time it is seen), the mean loss over these, and more metrics."""

    steps: int
    samples: int
    loss: SupportsFloat
    more: Mapping[str, SupportsFloat] = field(default_factory=dict)

    @property
    def metrics(self) -> dict[str, SupportsFloat]:
        """The metrics that a client reports."""
        return {"loss": self.loss, "steps": self.steps, "samples": self.samples, **self.more}


def local_sgd(job: ClientJob, objective: Objective | None = None) -> LocalResult:
    """Train the job's model on the client's data, in the batches of `plan_batches`.

    The order of samples and the augmentation depend on (seed, round, client) alone.
    """
    objective, data = (objective or Objective()).knowing_counts(job), job.data
    if job.trainer is not None:
        result: LocalResult = job.trainer(job, objective)
        return result
    plan, descent = plan_batches(job), Descent(job.model, job.train, learning_rate(job))
    job.model.train()
    total = torch.zeros((), device=data.labels.device)
    for step, rows in enumerate(plan.batches()):
        images, labels = data.batch(plan.index[rows])
        images = data.normalise(augmented(images, {name: drawn[rows] for name, drawn in plan.drawn.items()}))
        batch = objective.batch(images, labels, rows.start, step)
        value = one_step(job.model, descent, objective, batch, job.precision)
        total += value * len(labels)
    return LocalResult(len(plan.sizes), len(plan.index), mean_loss(total, len(plan.index), job))


def one_step(model: nn.Module, descent: Descent, objective: Objective, batch: Batch, precision: str = "fp32") -> Tensor:
    """Take one step of SGD; returns the loss before it, one for each client if there are several."""
    with autocast(precision, batch.labels.device):
        value = objective.loss(model, batch, objective.shared)
    descent.expect(value, corrected=objective.correct is not None)
    value.sum().backward()  # type: ignore[no-untyped-call]
    if objective.correct is not None:
        objective.correct(model, objective.shared)
    descent.step()
    return value.detach()


def learning_rate(job: ClientJob) -> float:
    """The round's learning rate: constant, or a half cosine over all rounds."""
    if job.train.schedule == "constant":
        return job.train.lr
    return job.train.lr * 0.5 * (1 + math.cos(math.pi * job.round / job.total_rounds))


def mean_loss(total: SupportsFloat, samples: int, job: ClientJob) -> float:
    """The mean loss, given its sum; if it is not finite, an error that names client and round, counted from 1."""
    loss = float(total) / samples
    if not math.isfinite(loss):
        remedy = "lower train.lr, or mend the loss if it is your own"
        raise RunError(f"client {job.client}, round {job.round + 1}: the loss is {loss}; {remedy}")
    return loss


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """All batches of a client's part of a round.

    Args:
        index: positions of the samples in the client's data, batch after batch.
        drawn: random draws for the augmentation of each sample: ``flip``, ``down``, ``right``, or none.
        sizes: sizes of the batches.
    """

    index: Tensor
    drawn: Mapping[str, Tensor]
    sizes: Sequence[int]

    def batches(self) -> Iterator[slice]:
        """The rows of `index` that belong to each batch."""
        return (slice(stop - size, stop) for size, stop in zip(self.sizes, accumulate(self.sizes), strict=True))


def plan_batches(job: ClientJob, device: torch.device | None = None) -> BatchPlan:
    """Draw the client's batches of this round: shuffle the samples in each pass, draw flips, and shifts.

    The plan is put on `device`, by default the one that holds the data.
    """
    rng, labels, train = stream("batches", job.seed, job.round, job.client), job.data.labels, job.train
    index, drawn = _order(labels, train, rng), {}
    if train.augment != "none":
        drawn["flip"] = rng.random(len(index)) < 0.5
    if train.augment == "crop-flip":
        drawn["down"], drawn["right"] = rng.integers(0, 2 * reach(job.data.images.shape[-2]) + 1, (2, len(index)))
    place = device or labels.device
    tensors = {name: torch.from_numpy(values).to(place) for name, values in drawn.items()}
    return BatchPlan(torch.from_numpy(index).to(place), tensors, batch_sizes(len(labels), train))


def _order(labels: Tensor, train: TrainConfig, rng: np.random.Generator) -> IntArray:
    """Positions of the samples in the order in which they are seen, pass after pass.

    In a pass of balanced sampling, there are equally many of each class up to one, and no sample comes again before
    all others of its class.
    """
    size = len(labels)
    seen = sum(batch_sizes(size, train))
    passes = 1 if train.steps else train.epochs
    if train.sampling == "balanced":
        held, parts = labels.cpu().numpy(), []
        for _ in range(passes):
            classes = rng.permutation(np.unique(held))  # which of them get one more
            shares = np.diff(np.arange(len(classes) + 1) * (seen // passes) // len(classes))
            members = [rng.permutation(np.flatnonzero(held == label)) for label in classes]
            chosen = [np.resize(own, share) for own, share in zip(members, shares, strict=True)]
            parts.append(rng.permutation(np.concatenate(chosen)))
        return np.concatenate(parts)
    if train.steps:  # passes are joined end to end, so that a batch may span two
        return np.concatenate([rng.permutation(size) for _ in range(-(-seen // size))])[:seen]
    if size == 1:
        return np.zeros(seen, dtype=np.int64)
    return np.concatenate([rng.permutation(size)[: seen // passes] for _ in range(passes)])


def reach(height: int) -> int:
    """The largest shift of an image, in pixels."""
    return max(1, height // 8)


def augmented(images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
    """Flip and shift the images by their draws; new pixels at the border are black."""
    if "flip" in drawn:
        images = torch.where(drawn["flip"][:, None, None, None], images.flip(-1), images)
    if "down" not in drawn:
        return images
    height, width = images.shape[2:]
    crops = functional.pad(images, (reach(height),) * 4).unfold(2, height, 1).unfold(3, width, 1)
    return crops[torch.arange(len(images), device=images.device), :, drawn["down"], drawn["right"]]
