"""The only local training loop. Algorithms hand it another loss or a correction of the gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedeas.algorithms.base import ClientJob
from fedeas.config import TrainConfig
from fedeas.errors import RunError

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]
Correction = Callable[[nn.Module], None]


@dataclass(frozen=True)
class LocalResult:
    """Steps taken and the mean loss over all samples seen."""

    steps: int
    loss: float


def cross_entropy(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """The loss of plain training."""
    return functional.cross_entropy(model(images), labels)


def local_sgd(job: ClientJob, loss: Loss = cross_entropy, correct: Correction | None = None) -> LocalResult:
    """Train the job's model on the client's data for the configured epochs, the last small batch included.

    The order of samples and the augmentation depend on (seed, round, client) alone. `correct` may change the gradients
    between backward and step.
    """
    model, data, train = job.model, job.data, job.train
    rng = np.random.default_rng((job.seed, job.round, job.client))
    optimiser = torch.optim.SGD(
        model.parameters(), learning_rate(job), momentum=train.momentum, weight_decay=train.weight_decay
    )
    model.train()
    steps, total = 0, torch.zeros((), device=data.labels.device)
    for index in batches(len(data), train, rng):
        images, labels = data.batch(index.to(data.labels.device))
        value = loss(model, data.normalise(augmented(images, train.augment, rng)), labels)
        optimiser.zero_grad(set_to_none=True)
        value.backward()  # type: ignore[no-untyped-call]
        if correct is not None:
            correct(model)
        optimiser.step()
        total += value.detach() * len(index)
        steps += 1
    return LocalResult(steps, _finite(total.item() / (len(data) * train.epochs), job))


def batches(size: int, train: TrainConfig, rng: np.random.Generator) -> Iterator[Tensor]:
    """Index tensors of all batches of all epochs, shuffled anew in each epoch."""
    for _ in range(train.epochs):
        order = torch.from_numpy(rng.permutation(size))
        yield from (order[start : start + train.batch_size] for start in range(0, size, train.batch_size))


def learning_rate(job: ClientJob) -> float:
    """The round's learning rate: constant, or a half cosine over all rounds."""
    if job.train.schedule == "constant":
        return job.train.lr
    return job.train.lr * 0.5 * (1 + math.cos(math.pi * job.round / job.total_rounds))


def augmented(images: Tensor, how: str, rng: np.random.Generator) -> Tensor:
    """Flip half of the images, and with ``crop-flip`` also shift them by up to an eighth of their size."""
    if how == "none":
        return images
    flip = torch.from_numpy(rng.random(len(images)) < 0.5).to(images.device)
    images = torch.where(flip[:, None, None, None], images.flip(-1), images)
    return _shifted(images, rng) if how == "crop-flip" else images


def _shifted(images: Tensor, rng: np.random.Generator) -> Tensor:
    number, _, height, width = images.shape
    reach = max(1, height // 8)
    padded = functional.pad(images, (reach, reach, reach, reach))
    down, right = (torch.from_numpy(rng.integers(0, 2 * reach + 1, number)).to(images.device) for _ in range(2))
    rows = down[:, None] + torch.arange(height, device=images.device)
    columns = right[:, None] + torch.arange(width, device=images.device)
    each = torch.arange(number, device=images.device)[:, None, None, None]
    channels = torch.arange(images.shape[1], device=images.device)[None, :, None, None]
    return padded[each, channels, rows[:, None, :, None], columns[:, None, None, :]]


def _finite(loss: float, job: ClientJob) -> float:
    if not math.isfinite(loss):
        raise RunError(f"client {job.client}, round {job.round}: the loss is {loss}; lower train.lr")
    return loss
