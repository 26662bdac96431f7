"""Which samples a client sees, in which order, and how each is augmented: all drawn before training starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedeas.config.sections import TrainConfig
from fedeas.core.arrays import IntArray

Draws = Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """All batches of a client's part of a round.

    Args:
        index: positions of the samples in the client's data, batch after batch.
        drawn: random draws for the augmentation of each sample: ``flip``, ``down``, ``right``, or none.
        sizes: sizes of the batches.
    """

    index: Tensor
    drawn: Draws
    sizes: Sequence[int]

    @staticmethod
    def of(
        labels: Tensor, height: int, train: TrainConfig, rng: np.random.Generator, device: torch.device
    ) -> BatchPlan:
        """Shuffle the samples in each pass; draw flips, and shifts of up to an eighth of the image height."""
        index, drawn = _order(labels, train, rng), {}
        if train.augment != "none":
            drawn["flip"] = rng.random(len(index)) < 0.5
        if train.augment == "crop-flip":
            drawn["down"], drawn["right"] = rng.integers(0, 2 * reach(height) + 1, (2, len(index)))
        tensors = {name: torch.from_numpy(values).to(device) for name, values in drawn.items()}
        return BatchPlan(torch.from_numpy(index).to(device), tensors, batch_sizes(len(labels), train))

    def batches(self) -> Iterator[slice]:
        """The rows of `index` that belong to each batch."""
        return (slice(stop - size, stop) for size, stop in zip(self.sizes, accumulate(self.sizes), strict=True))


def batch_sizes(size: int, train: TrainConfig) -> list[int]:
    """Sizes of the batches that a client with `size` samples trains on in a round.

    A last batch of one image is left out of its epoch, because batch norm cannot train on a single image; each epoch
    leaves out a different image. A client with one image sees it twice in one batch. With ``train.steps`` every batch
    is full.

    >>> batch_sizes(65, TrainConfig(batch_size=32, epochs=1)), batch_sizes(66, TrainConfig(batch_size=32, epochs=1))
    ([32, 32], [32, 32, 2])
    """
    if train.steps:
        return [train.batch_size] * train.steps
    whole, rest = divmod(size, train.batch_size)
    if size == 1 < train.batch_size:
        rest = 2
    return ([train.batch_size] * whole + [rest] * (rest > 1)) * train.epochs


def one_pass(size: int, batch_size: int, rng: np.random.Generator) -> list[IntArray]:
    """Shuffled batches that hold every sample once; a single image left over joins the batch before it.

    A client with one image sees it twice, which does not change the mean over its data.
    """
    order = rng.permutation(size) if size > 1 else np.zeros(2, dtype=np.int64)
    return np.split(order, range(batch_size, size - 1, batch_size))


def _order(labels: Tensor, train: TrainConfig, rng: np.random.Generator) -> IntArray:
    """Positions of the samples in the order in which they are seen, pass after pass."""
    size = len(labels)
    seen = sum(batch_sizes(size, train))
    if train.sampling == "balanced":
        held, passes = labels.cpu().numpy(), 1 if train.steps else train.epochs
        return np.concatenate([_balanced_pass(held, seen // passes, rng) for _ in range(passes)])
    if train.steps:  # passes are joined end to end, so that a batch may span two
        return np.concatenate([rng.permutation(size) for _ in range(-(-seen // size))])[:seen]
    if size == 1:
        return np.zeros(seen, dtype=np.int64)
    return np.concatenate([rng.permutation(size)[: seen // train.epochs] for _ in range(train.epochs)])


def _balanced_pass(labels: IntArray, count: int, rng: np.random.Generator) -> IntArray:
    """Positions of `count` samples, equally many of each class up to one; none comes again before all of its class."""
    classes = rng.permutation(np.unique(labels))  # which of them get one more
    shares = np.diff(np.arange(len(classes) + 1) * count // len(classes))
    members = [rng.permutation(np.flatnonzero(labels == label)) for label in classes]
    return rng.permutation(np.concatenate([np.resize(own, share) for own, share in zip(members, shares, strict=True)]))


def reach(height: int) -> int:
    """The largest shift of an image, in pixels."""
    return max(1, height // 8)


def augmented(images: Tensor, drawn: Draws) -> Tensor:
    """Flip and shift the images by their draws; new pixels at the border are black."""
    if "flip" in drawn:
        images = torch.where(drawn["flip"][:, None, None, None], images.flip(-1), images)
    return _shifted(images, drawn["down"], drawn["right"]) if "down" in drawn else images


def _shifted(images: Tensor, down: Tensor, right: Tensor) -> Tensor:
    number, colours, height, width = images.shape
    padded = functional.pad(images, (reach(height),) * 4)
    rows = down[:, None] + torch.arange(height, device=images.device)
    columns = right[:, None] + torch.arange(width, device=images.device)
    each = torch.arange(number, device=images.device)[:, None, None, None]
    channels = torch.arange(colours, device=images.device)[None, :, None, None]
    return padded[each, channels, rows[:, None, :, None], columns[:, None, None, :]]
