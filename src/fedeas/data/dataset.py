"""A dataset in memory: labelled images in a training and a test part."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from fedeas.core.arrays import BLOCK_CELLS, ByteArray, IntArray, digest_of_arrays, for_row_blocks
from fedeas.core.errors import InputError
from fedeas.core.provenance import DatasetParts

Normalisation = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation of each channel, with pixels from 0 to 1."""

MIDDLE = 0.5
"""Mean and deviation of pixels that are scaled to -1 to 1."""

Part = Literal["train", "test"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled images with their official training and test parts; the arrays are read-only, perhaps memory-mapped."""

    name: str
    images: ByteArray = field(repr=False)
    """The training part, (N, channels, height, width)."""
    labels: IntArray = field(repr=False)
    test_images: ByteArray = field(repr=False)
    test_labels: IntArray = field(repr=False)
    classes: tuple[str, ...]
    clients: tuple[str, ...] | None = None
    """Names of the clients, if the dataset comes with its clients."""
    owners: IntArray | None = field(default=None, repr=False)
    """The client of each training image, by its place in `clients`."""
    sample_names: tuple[str, ...] = field(default=(), repr=False)
    """Names of the training images, if they have any; likewise of the test images. Rows of a file have numbers."""
    test_names: tuple[str, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = field(default=(), repr=False)
    """What a user should know of how the dataset was read."""
    normalisation: Normalisation | None = field(default=None, repr=False)
    """Mean and deviation of each channel, if they do not follow from the training part because there is none."""
    has_class_names: bool = field(default=True, repr=False)
    """False if a client's own data came without names of classes: `classes` are then the numbers of the labels."""

    @property
    def num_classes(self) -> int:
        """C."""
        return len(self.classes)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of each image."""
        _, channels, height, width = self.images.shape
        return channels, height, width

    def seen_under(self, protocol: str) -> tuple[ByteArray, IntArray]:
        """Images and labels: ``clean`` is the training part alone, ``merged`` the training part, then the test part."""
        if protocol == "clean":
            return self.images, self.labels
        if protocol == "merged":
            return np.concatenate([self.images, self.test_images]), np.concatenate([self.labels, self.test_labels])
        raise InputError(f"protocol must be clean or merged, not {protocol!r}")

    @cached_property
    def parts(self) -> DatasetParts:
        """Name and content of both parts, to compare with the training data of weights."""
        return DatasetParts(self.name, (self.images, self.labels), (self.test_images, self.test_labels))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all images, labels and class names: two datasets with the same content have the same digest."""
        names = np.array(list("\n".join(self.classes).encode()), dtype=np.uint8)
        given = () if self.normalisation is None else (np.array(self.normalisation),)
        return digest_of_arrays((self.images, self.labels, self.test_images, self.test_labels, names, *given))

    @property
    def channel_mean(self) -> tuple[float, ...]:
        """Mean of each channel over the training part, with pixels from 0 to 1."""
        return tuple(mean for mean, _ in self._moments)

    @property
    def channel_std(self) -> tuple[float, ...]:
        """Standard deviation of each channel over the training part, with pixels from 0 to 1."""
        return tuple(std for _, std in self._moments)

    @cached_property
    def _moments(self) -> list[tuple[float, float]]:
        """Mean and deviation from sums of whole numbers, which are exact in any order of the blocks."""
        if self.normalisation is not None:
            return list(zip(*self.normalisation, strict=True))
        images, sums = np.asarray(self.images), []

        def add(rows: slice) -> None:
            pixels = images[rows].astype(np.float64).reshape(-1, self.shape[0], math.prod(self.shape[1:]))
            sums.append([pixels.sum(axis=(0, 2)), np.einsum("ncp,ncp->c", pixels, pixels)])

        for_row_blocks(add, len(images), math.prod(self.shape), 8 * BLOCK_CELLS)
        count = images.size // self.shape[0]
        pairs = np.sum(sums, axis=0).astype(np.int64).T.tolist()
        return [(s / count / 255, math.sqrt(count * squares - s * s) / count / 255) for s, squares in pairs]
