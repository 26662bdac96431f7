"""One client's samples, real and synthetic, as uint8 tensors on the device; batches are selected by index."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedeas.core.arrays import IntArray


@dataclass(frozen=True, eq=False)
class Normaliser:
    """uint8 images to normalised floats, (x / 255 - mean) / std for each channel."""

    scale: Tensor
    shift: Tensor

    @staticmethod
    def of(mean: tuple[float, ...], std: tuple[float, ...], device: torch.device | str = "cpu") -> Normaliser:
        """The normaliser of a dataset whose channels, scaled to [0, 1], have this mean and deviation."""
        centre, spread = (torch.tensor(values, dtype=torch.float64)[:, None, None] for values in (mean, std))
        spread = spread.clamp_min(1e-6)
        scale, shift = 1 / (255 * spread), -centre / spread
        return Normaliser(scale.float().to(device), shift.float().to(device))

    def __call__(self, images: Tensor) -> Tensor:
        """Normalise a batch."""
        return torch.addcmul(self.shift, images.float(), self.scale)


@dataclass(frozen=True, eq=False)
class ClientData:
    """The samples of one client: `num_real` real ones first, then synthetic ones.

    Training uses all of them in the same way; the client's weight in the federation is `num_real`.
    """

    images: Tensor
    labels: Tensor
    num_real: int
    normalise: Normaliser

    @staticmethod
    def of(images: NDArray[np.uint8], labels: IntArray, normalise: Normaliser) -> ClientData:
        """Real samples only."""
        device = normalise.scale.device
        given = [torch.from_numpy(np.array(each)) for each in (images, labels)]
        if device.type == "cuda":  # the host does not wait for the GPU
            given = [each.pin_memory() for each in given]
        pixels, classes = (each.to(device, non_blocking=True) for each in given)
        return ClientData(pixels, classes, num_real=len(labels), normalise=normalise)

    def joined(self, images: NDArray[np.uint8], labels: IntArray) -> ClientData:
        """The same client with these synthetic samples added."""
        if not len(labels):
            return self
        more = ClientData.of(images, labels, self.normalise)
        both = torch.cat([self.images, more.images]), torch.cat([self.labels, more.labels])
        return ClientData(*both, num_real=self.num_real, normalise=self.normalise)

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Images (uint8) and labels at these positions."""
        return self.images[index], self.labels[index]
