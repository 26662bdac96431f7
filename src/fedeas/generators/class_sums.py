"""Sums over the images of each class in a basis that is known without any image, from which Gaussians follow."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedeas.core.arrays import FloatArray, IntArray, row_blocks
from fedeas.core.errors import InputError
from fedeas.generators.base import Images, Shape, shape_of

BASIS_STEPS, SCORE_STEPS = 2**20, 2**6
"""Basis and scores are in whole multiples of 1 / steps."""

CENTRE = 128.0
"""The pixel value from which scores are measured."""

# Scores of an image of D numbers are at most 128 sqrt(D), so a sum of N products is at most 2**26 N D in steps. float64
# holds it exactly in a block, where N D is at most 2**20 or D, and int64 in sums, where N D is below 2**36.
BLOCK_NUMBERS, MOST_NUMBERS = 2**20, 2**36


@dataclass(frozen=True)
class SumNoise:
    """Gaussian noise for a client's sums, which hides any one of its images: its deviation is `noise` `SENSITIVITY`s.

    Scores of an image whose norm is larger than `clip`, called R, are scaled down to it.
    """

    clip: float
    noise: float


SENSITIVITY = math.sqrt(6)
"""How far (counts, sums / R, products / R²) of a client move at most if one image and its label change.

An image with scores s adds (1, s / R, upper triangle of s sᵀ / R²) to its class, of norm at most sqrt(3), as |s| <= R.
If it moves to another class, two such vectors are orthogonal: sqrt(3 + 3). Within a class it becomes t, and
|s - t|² / R² + |s sᵀ - t tᵀ|² / R⁴ <= 4.5.
"""


def check_sizes(count: int, shape: Shape, components: int) -> None:
    """Refuse a basis larger than the images, and more images than whole numbers can add up exactly."""
    pixels = math.prod(shape)
    if not 1 <= components <= pixels:
        raise InputError(f"components must be between 1 and the {pixels} pixels, not {components}")
    if count * pixels >= MOST_NUMBERS:
        raise InputError(f"{count:,} images of {pixels:,} numbers are too many for exact sums; take fewer")


def cosine_basis(shape: Shape, components: int) -> FloatArray:
    """The products of cosines over channels, rows and columns with the fewest waves, orthonormal but for rounding.

    These are rows of the three-dimensional cosine transform (DCT-II), in the order of (1 + a) (1 + b + c) for a, b and
    c half waves: the same on every machine, and details of colour come later than those of brightness.
    """
    waves = np.indices(shape).reshape(3, -1, 1)
    order = np.argsort(((1 + waves[0]) * (1 + waves[1] + waves[2])).ravel(), kind="stable")[:components]
    factors = [
        np.cos(np.pi * own * (np.arange(size) + 0.5) / size) * np.sqrt(np.where(own > 0, 2, 1) / size)
        for size, own in zip(shape, waves[:, order], strict=True)
    ]
    basis: FloatArray = np.einsum("ka,kb,kc->kabc", *factors).reshape(components, -1)
    return np.asarray(np.rint(basis * BASIS_STEPS) / BASIS_STEPS)


def class_sums(
    images: Images, labels: IntArray, num_classes: int, components: int, noise: SumNoise | None = None
) -> IntArray:
    """A row for each class: how many images, the sums of their scores, and those of the products of two scores.

    Of products it is the upper triangle, row by row. All numbers are whole: sums over clients, added in any order, are
    those over all images, bit for bit. Noise is the system's, so that nobody can draw it again.
    """
    basis, upper = cosine_basis(shape_of(images), components).T, np.triu_indices(components)
    rows, clip = images.reshape(len(images), len(basis)), (math.inf if noise is None else noise.clip) * SCORE_STEPS
    sums = np.zeros((num_classes, 1 + components + len(upper[0])), dtype=np.int64)
    for block in row_blocks(*rows.shape, BLOCK_NUMBERS):
        scores = np.rint((rows[block] - CENTRE) @ basis * SCORE_STEPS)
        norms = np.sqrt(np.square(scores).sum(axis=1, keepdims=True))
        scores = np.trunc(scores * np.minimum(1.0, clip / np.maximum(norms, 1.0)))  # towards zero: lengthens nothing
        for label in np.unique(labels[block]):
            own = scores[labels[block] == label]
            sums[label] += np.concatenate([[len(own)], own.sum(axis=0), (own.T @ own)[upper]]).astype(np.int64)
    if noise is None:
        return sums
    scale = np.repeat([1.0, clip, clip**2], [1, components, len(upper[0])]) * SENSITIVITY * noise.noise
    return sums + np.rint(np.random.default_rng().normal(0.0, scale, sums.shape)).astype(np.int64)


def moments_of(sums: IntArray, components: int) -> tuple[IntArray, FloatArray, FloatArray]:
    """Counts, sums of scores, and symmetric matrices of the sums of products, by class."""
    counts, totals, upper = np.split(sums, [1, 1 + components], axis=1)
    first, second = np.triu_indices(components)
    products = np.empty((len(sums), components, components))
    products[:, first, second] = products[:, second, first] = upper / SCORE_STEPS**2
    return counts[:, 0], totals / SCORE_STEPS, products
