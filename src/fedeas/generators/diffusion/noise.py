"""The noise of an address, on the device: the same numbers as `address_noise`, without a copy from the host."""

import numpy as np
import torch
from torch import Tensor

from fedeas.core.arrays import IntArray
from fedeas.generators.base import noise_keys, normal_quantiles

# SplitMix64 as in `base`, in torch's signed integers, which wrap around in the same way.
_GOLDEN, _FIRST, _SECOND = (
    int(np.uint64(value).astype(np.int64)) for value in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


class DeviceNoise:
    """Standard normal numbers of the addresses of one batch, in pieces of a fixed size."""

    def __init__(self, labels: IntArray, index: IntArray, size: int, device: torch.device) -> None:
        self.keys = torch.from_numpy(noise_keys(labels, index).view(np.int64)).to(device)[:, None]
        self.size = size
        self.words = -(-size // 4)  # a piece starts with a new word of four numbers
        self.table = torch.from_numpy(normal_quantiles().astype(np.float32)).to(device)

    def piece(self, number: int) -> Tensor:
        """Piece `number` of each address, float32 (addresses, size)."""
        first = number * self.words + 1
        counter = torch.arange(first, first + self.words, device=self.keys.device) * _GOLDEN
        words = self.keys + counter
        words = (words ^ _shifted(words, 30)) * _FIRST
        words = (words ^ _shifted(words, 27)) * _SECOND
        words = words ^ _shifted(words, 31)
        quarters = torch.stack([_shifted(words, 16 * place) & 0xFFFF for place in range(4)], dim=-1)
        return self.table[quarters.flatten(1)[:, : self.size]]


def _shifted(words: Tensor, places: int) -> Tensor:
    """Right shift that fills with zeros; torch's own fills with the sign."""
    return (words >> places) & ((1 << (64 - places)) - 1) if places else words
