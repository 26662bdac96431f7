"""Which samples a client sees, in which order, and how each is augmented: drawn ahead, so that steps draw nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedeas.config import TrainConfig

Draws = Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class Plan:
    """All batches of all epochs; the last small batch of each epoch is one of them.

    Args:
        index: places of the samples in the client's data, epoch after epoch.
        drawn: for each of these what its augmentation needs: ``flip``, ``down``, ``right``, or nothing.
        size: samples of an epoch.
        batch_size: of all batches but the last of an epoch.
    """

    index: Tensor
    drawn: Draws
    size: int
    batch_size: int

    @staticmethod
    def of(size: int, height: int, train: TrainConfig, rng: np.random.Generator, device: torch.device) -> Plan:
        """Shuffled anew in each epoch; images are flipped, and shifted by up to an eighth of their height."""
        orders = [rng.permutation(size) for _ in range(train.epochs)]
        index, seen, drawn = np.concatenate(orders), size * train.epochs, {}
        if train.augment != "none":
            drawn["flip"] = rng.random(seen) < 0.5
        if train.augment == "crop-flip":
            drawn["down"], drawn["right"] = rng.integers(0, 2 * reach(height) + 1, (2, seen))
        tensors = {name: torch.from_numpy(values).to(device) for name, values in drawn.items()}
        return Plan(torch.from_numpy(index).to(device), tensors, size, train.batch_size)

    @property
    def steps(self) -> int:
        """Batches in all."""
        return len(self.index) // self.size * -(-self.size // self.batch_size)

    def batches(self) -> Iterator[slice]:
        """The places of each batch in `index`."""
        for epoch in range(0, len(self.index), self.size):
            for start in range(epoch, epoch + self.size, self.batch_size):
                yield slice(start, min(start + self.batch_size, epoch + self.size))


def reach(height: int) -> int:
    """How far an image can be shifted."""
    return max(1, height // 8)


def augmented(images: Tensor, drawn: Draws) -> Tensor:
    """Flip and shift the images as was drawn for them; pixels that come in are black."""
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
