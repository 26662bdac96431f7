"""Sums over the images of each class in a basis that is known without any image, from which Gaussians follow.

Clients add their sums, and nothing else of their images is needed. All numbers are whole, so that the order of images
and of clients does not matter: sums over clients equal those over all images, bit for bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedeas.core.arrays import FloatArray, IntArray, row_blocks
from fedeas.core.errors import InputError
from fedeas.generators.base import Images, Shape, shape_of

BASIS_STEPS = 2**20
SCORE_STEPS = 2**6
"""Basis and scores are in whole multiples of 1 / steps."""

CENTRE = 128.0
"""The pixel value from which scores are measured."""

# A score is at most 128 sqrt(D) for images of D numbers, so a sum of N products at most 2**26 N D in steps. In a block,
# N D is at most the larger of 2**20 and D: float64 holds such a sum exactly. int64 holds it for N D below 2**37.
BLOCK_NUMBERS = 2**20
MOST_NUMBERS = 2**37


@dataclass(frozen=True)
class SumNoise:
    """Gaussian noise for one client's sums, which hides any one image among its others.

    Args:
        clip: the largest norm R of an image's scores; longer ones are scaled down.
        noise: z, deviation of the noise in units of the sensitivity.
    """

    clip: float
    noise: float

    @property
    def sensitivity(self) -> float:
        """How far (counts, sums / R, products / R²) of a client move at most if one image and its label change.

        An image with scores s adds (1, s / R, upper triangle of s sᵀ / R²) to its class, of norm at most sqrt(3), as
        |s| <= R. To change it takes away one such vector and adds another: to another class they are orthogonal, so
        the norm is sqrt(3 + 3); to the same class it is less, as |s - t|² / R² + |s sᵀ - t tᵀ|² / R⁴ <= 4.5.
        """
        return math.sqrt(6.0)

    def deviations(self, components: int) -> FloatArray:
        """The deviation of the noise in each number of a row of sums, in steps."""
        clip, products = self.clip * SCORE_STEPS, components * (components + 1) // 2
        return self.noise * self.sensitivity * np.repeat([1.0, clip, clip**2], [1, components, products])

    def added_to(self, sums: IntArray, components: int) -> IntArray:
        """The sums with noise from the system, which nobody can draw again; whole numbers, as before."""
        drawn = np.random.default_rng().normal(0.0, self.deviations(components), sums.shape)
        return sums + np.rint(drawn).astype(np.int64)


def cosine_basis(shape: Shape, components: int) -> FloatArray:
    """The products of cosines over channels, rows and columns with the fewest waves, orthonormal but for rounding.

    These are rows of the three-dimensional cosine transform, in the order of (1 + a) (1 + b + c) for a, b and c half
    waves: details of colour come later than those of brightness. The order is made of whole numbers, so that it is the
    same on every machine.

    >>> cosine_basis((1, 1, 2), 2)[0].round(3)
    array([0.707, 0.707])
    """
    waves = np.indices(shape).reshape(3, -1)
    order = np.argsort((1 + waves[0]) * (1 + waves[1] + waves[2]), kind="stable")[:components]
    factors = [_cosines(size)[chosen] for size, chosen in zip(shape, waves[:, order], strict=True)]
    basis: FloatArray = np.einsum("ka,kb,kc->kabc", *factors).reshape(components, -1)
    return np.asarray(np.rint(basis * BASIS_STEPS) / BASIS_STEPS)


def _cosines(size: int) -> FloatArray:
    """The orthonormal cosine transform of this many numbers (DCT-II), a row for each number of half waves."""
    waves, places = np.indices((size, size))
    rows = np.cos(np.pi * waves * (2 * places + 1) / (2 * size)) * math.sqrt(2 / size)
    rows[0] = math.sqrt(1 / size)
    return np.asarray(rows)


def width(components: int) -> int:
    """How many numbers the sums of a class are: a count, a sum for each component, and one for each pair."""
    return 1 + components + components * (components + 1) // 2


def check_room(images: int, shape: Shape) -> None:
    """Refuse more images than whole numbers can add up exactly."""
    if images * math.prod(shape) >= MOST_NUMBERS:
        size = " x ".join(map(str, shape))
        raise InputError(f"{images:,} images of {size} are too many for exact sums; take fewer or smaller ones")


def class_sums(images: Images, labels: IntArray, num_classes: int, components: int, clip: float = math.inf) -> IntArray:
    """A row for each class: how many images, the sums of their scores, and those of the products of two scores.

    Of products it is the upper triangle, row by row. With `clip`, scores of a larger norm are scaled down to it.
    """
    check_room(len(images), shape_of(images))
    rows, upper = images.reshape(len(images), math.prod(shape_of(images))), np.triu_indices(components)
    basis = cosine_basis(shape_of(images), components).T
    sums = np.zeros((num_classes, width(components)), dtype=np.int64)
    for block in row_blocks(*rows.shape, BLOCK_NUMBERS):
        scores = np.rint((rows[block] - CENTRE) @ basis * SCORE_STEPS)
        norms = np.sqrt(np.square(scores).sum(axis=1, keepdims=True))
        shares = np.minimum(1.0, clip * SCORE_STEPS / np.maximum(norms, 1.0))
        scores = np.trunc(scores * shares)  # towards zero, so that rounding lengthens nothing
        for label in np.unique(labels[block]):
            own = scores[labels[block] == label]
            added = np.concatenate([[len(own)], own.sum(axis=0), (own.T @ own)[upper]])
            sums[label] += added.astype(np.int64)
    return sums


def moments_of(sums: IntArray, components: int) -> tuple[IntArray, FloatArray, FloatArray]:
    """Counts, sums of scores, and symmetric matrices of the sums of products, by class."""
    counts, totals, upper = np.split(sums, [1, 1 + components], axis=1)
    first, second = np.triu_indices(components)
    products = np.empty((len(sums), components, components))
    products[:, first, second] = products[:, second, first] = upper / SCORE_STEPS**2
    return counts[:, 0], totals / SCORE_STEPS, products
