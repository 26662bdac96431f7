"""A generator with one Gaussian for each class in a shared space of few dimensions, fitted in seconds without a GPU."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from fedeas.core.arrays import FloatArray, IntArray, for_row_blocks, frozen, row_blocks
from fedeas.core.errors import InputError
from fedeas.core.files import PathLike
from fedeas.core.provenance import NOT_KNOWN, Seen, seen_in
from fedeas.core.weight_files import read_tensors, write_tensors
from fedeas.generators.base import (
    Images,
    Shape,
    address_noise,
    check_full,
    checked_address,
    checked_training,
    fingerprint_of,
    shape_of,
)

BASIS_STEPS, SCORE_STEPS = 2**20, 2**6  # basis and scores are in whole multiples of 1 / steps

CENTRE = 128.0  # the pixel value from which scores are measured

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


FORMAT = "fedeas-gaussian-1"  # version of file format and sampler; part of the fingerprint

# Matrix products round differently for different batch shapes, thread counts and processors. Here nothing is rounded:
# noise, roots, scores and basis are whole multiples of 1 / steps, so sums of their products are multiples of 2**-20
# and 2**-26, far below 2**27, and float64 holds them exactly. So the order of summation does not matter.
ROOT_STEPS = 2**8

TENSORS = ("mean", "basis", "class_means", "roots")

FIT_BLOCK = 1024  # images at a time


@dataclass(frozen=True, eq=False)
class GaussianGenerator:
    """Images x = mean + (m_c + R_c z) V: basis V, class mean m_c, root R_c of the class covariance, noise z.

    Make one with `fit`, `of_sums` or `load`, which round the arrays to their steps.
    """

    shape: Shape
    mean: FloatArray = field(repr=False)
    """Of all training images, by pixel; with the fixed basis the same for every pixel."""
    basis: FloatArray = field(repr=False)  # V, components x pixels
    class_means: FloatArray = field(repr=False)  # m, classes x components
    roots: FloatArray = field(repr=False)  # R, classes x components x components
    shrinkage: float
    class_names: tuple[str, ...] | None = None
    dataset: str = ""  # the name of the dataset that it was fitted to; empty if unknown
    batch_size: ClassVar[int] = 4096  # takes a fraction of a second; any number is possible

    @classmethod
    def fit(
        cls,
        images: Images,
        labels: ArrayLike,
        num_classes: int,
        components: int = 32,
        shrinkage: float = 0.1,
        class_names: Sequence[str] | None = None,
        dataset: str = "",
        basis: Literal["pca", "dct"] = "pca",
    ) -> GaussianGenerator:
        """Fit to training images, uint8 (N, channels, height, width), with at least one of every class.

        `shrinkage` is the least weight of the pooled covariance in that of a class; it is larger for classes with few
        images. The basis is ``pca``, the directions of largest variance of these images, or ``dct``, the cosines with
        the fewest waves, which need no images: clients can add their sums, as `of_sums` takes them.
        """
        names = None if class_names is None else tuple(map(str, class_names))
        classes = checked_training(images, labels, num_classes, names)
        rows = images.reshape(len(images), -1)
        check_sizes(0, shape_of(images), components)
        if not 0 <= shrinkage <= 1:
            raise InputError(f"shrinkage must be between 0 and 1, not {shrinkage}")
        if basis not in ("pca", "dct"):
            raise InputError(f"basis must be pca or dct, not {basis!r}")
        if basis == "dct":
            sums = class_sums(images, classes, num_classes, components)
            return replace(cls.of_sums(sums, shape_of(images), components, shrinkage, names), dataset=dataset)
        blocks = [*row_blocks(len(rows), 1, FIT_BLOCK)]
        # Exact sums of whole numbers, so that the order of the images does not matter.
        total, squares = np.zeros(rows.shape[1]), np.zeros((rows.shape[1], rows.shape[1]))
        for block in blocks:
            pixels = rows[block].astype(np.float64)
            total += pixels.sum(axis=0)
            squares += pixels.T @ pixels
        mean = total / len(rows)
        directions = np.linalg.eigh(squares / len(rows) - np.outer(mean, mean))[1].T[::-1][:components]
        largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=1)[:, None], axis=1)
        directions = directions * np.sign(largest)  # LAPACK may return either sign
        scores = np.concatenate([(rows[block] - mean) @ directions.T for block in blocks])
        members = [scores[classes == label] for label in range(num_classes)]
        class_means = np.stack([own.mean(axis=0) for own in members])
        scatters = np.stack(
            [(own - middle).T @ (own - middle) for own, middle in zip(members, class_means, strict=True)]
        )
        covariances = _shrunk(scatters, np.array([len(own) for own in members]), shrinkage)
        return cls(
            shape_of(images),
            _in_steps(mean, SCORE_STEPS),
            _in_steps(directions, BASIS_STEPS),
            _in_steps(class_means, SCORE_STEPS),
            _in_steps(_roots(covariances), ROOT_STEPS),
            float(shrinkage),
            names,
            dataset,
        )

    @classmethod
    def of_sums(
        cls, sums: IntArray, shape: Shape, components: int, shrinkage: float = 0.1, names: tuple[str, ...] | None = None
    ) -> GaussianGenerator:
        """The generator of `class_sums`, of one set of images or added over many.

        Noise in them cannot make means and covariances that no images of this shape have, such as indefinite ones.
        """
        check_full(sums[:, 0], names)
        counts, totals, products = moments_of(sums, components)
        means, largest = totals / counts[:, None], CENTRE * math.sqrt(math.prod(shape))
        covariances = _shrunk(products - means[:, :, None] * totals[:, None, :], counts, shrinkage)
        class_means = _in_steps(np.clip(means, -largest, largest), SCORE_STEPS)
        roots = _in_steps(_roots(covariances, largest), ROOT_STEPS)
        mean, basis = frozen(np.full(math.prod(shape), CENTRE)), frozen(cosine_basis(shape, components))
        return cls(shape, mean, basis, class_means, roots, float(shrinkage), names)

    @property
    def num_classes(self) -> int:
        """C."""
        return len(self.class_means)

    @property
    def components(self) -> int:
        """Dimensions of the basis."""
        return len(self.basis)

    @property
    def description(self) -> str:
        """One readable line."""
        return f"gaussian on {self.dataset or 'unknown data'}, {self.components} components"

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of sampler, settings and arrays; names of classes and dataset do not count."""
        settings = [FORMAT, self.shape, self.components, self.shrinkage]
        return fingerprint_of(settings, {name: own.astype("<f8", copy=False) for name, own in self._tensors().items()})

    def sample(self, labels: ArrayLike, index: ArrayLike) -> Images:
        """The images of these addresses; each depends on its own address alone, whatever the batch."""
        scores = self._scores(*checked_address(labels, index, self.num_classes))
        images = np.empty((len(scores), self.mean.size), dtype=np.uint8)

        def fill(rows: slice) -> None:
            pixels = scores[rows] @ self.basis
            pixels += self.mean
            images[rows] = np.clip(np.rint(pixels, out=pixels), 0, 255, out=pixels)

        for_row_blocks(fill, *images.shape)
        return images.reshape(-1, *self.shape)

    def _scores(self, labels: IntArray, index: IntArray) -> FloatArray:
        """m_c + R_c z for each address, in steps."""
        noise = address_noise(labels, index, self.components)
        for label in np.unique(labels):
            chosen = labels == label
            noise[chosen] = self.class_means[label] + noise[chosen] @ self.roots[label].T
        return _in_steps(noise, SCORE_STEPS)

    def save(self, path: PathLike, seen: Seen = NOT_KNOWN) -> None:
        """Write one ``.safetensors`` file, whole or not at all, with a record of the images that it was fitted to."""
        names = "" if self.class_names is None else json.dumps(self.class_names)
        settings = {
            "format": FORMAT,
            "shape": json.dumps(self.shape),
            "shrinkage": repr(self.shrinkage),
            "class_names": names,
            "about": json.dumps({"seen": seen.record}),
        }
        write_tensors(path, self._tensors(), settings, "numpy")

    @classmethod
    def load(cls, path: PathLike) -> GaussianGenerator:
        """Read what `save` wrote."""
        try:
            settings, tensors = read_tensors(path, "numpy")
            if settings.get("format") != FORMAT:
                raise ValueError(f"its format is {settings.get('format')!r}, not {FORMAT!r}")
            channels, height, width = json.loads(settings["shape"])
            mean, basis, class_means, roots = (frozen(tensors[name]) for name in TENSORS)
            names = tuple(json.loads(settings["class_names"])) if settings["class_names"] else None
            shape, shrinkage = (channels, height, width), float(settings["shrinkage"])
            dataset = seen_in(json.loads(settings.get("about", "{}"))).dataset
            return cls(shape, mean, basis, class_means, roots, shrinkage, names, dataset)
        except InputError as error:
            raise InputError(f"{error}; fit it again") from None
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: not a saved Gaussian generator ({error}); fit it again") from None

    def _tensors(self) -> dict[str, FloatArray]:
        return dict(zip(TENSORS, (self.mean, self.basis, self.class_means, self.roots), strict=True))


def _shrunk(scatters: FloatArray, counts: IntArray, shrinkage: float) -> FloatArray:
    """Covariances of classes: one with f degrees of freedom in d components has weight f / (f + d) at most.

    This equals a prior of d observations of the pooled covariance.
    """
    freedom = (counts - 1.0)[:, None, None]
    pooled = scatters.sum(axis=0) / max(freedom.sum(), 1.0)
    weight = (1 - shrinkage) * freedom / (freedom + scatters.shape[1])
    return np.asarray(weight * scatters / np.maximum(freedom, 1.0) + (1 - weight) * pooled)


def _roots(covariances: FloatArray, largest: float = math.inf) -> FloatArray:
    """Symmetric square roots, of eigenvalues up to `largest`: unlike Cholesky factors they exist if some are zero."""
    values, vectors = np.linalg.eigh(covariances)
    return np.asarray((vectors * np.sqrt(np.clip(values, 0, largest**2))[:, None, :]) @ vectors.transpose(0, 2, 1))


def _in_steps(values: FloatArray, steps: int) -> FloatArray:
    """The nearest whole multiples of 1 / steps; the last zero turns -0 into 0.

    In C order, because safetensors writes the memory of an array as it is.
    """
    return frozen(np.ascontiguousarray(np.rint(values * steps) / steps + 0.0))
