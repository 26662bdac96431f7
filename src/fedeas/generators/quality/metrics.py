"""Measures of generated images: do they show the requested class, do they resemble real ones, are they copies?

Every measure is reported beside the same measure of real test images, which shows how good it can get.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torchmetrics.image.fid import FrechetInceptionDistance

from fedeas.core.arrays import FloatArray, IntArray, row_blocks
from fedeas.core.errors import InputError
from fedeas.generators.base import Generator, Images, checked_address, image_index
from fedeas.generators.filtered import check_same_images
from fedeas.generators.quality.classifier import Classifier
from fedeas.generators.quality.membership import MembershipReport

Features = NDArray[np.floating[Any]]

CHECK_CLIENT = 2**31 - 1  # the largest possible client number: images drawn under it for a check belong to no client

BLOCK = 4096  # images at a time

NEAR = 1 / 3  # largest distance of a near-duplicate, in standard deviations of the image's pixels


@dataclass(frozen=True)
class Nearness:
    """How near images are to the nearest training image: root mean square over pixels on [0, 1]."""

    median: float
    first_percentile: float

    @staticmethod
    def of(distances: FloatArray) -> Nearness:
        """Summarise the distances of all images."""
        first, half = np.percentile(distances, [1, 50])
        return Nearness(float(half), float(first))


@dataclass(frozen=True, eq=False)
class Yardstick:
    """Measures of real images, computed once and used for every generator of the same dataset."""

    classifier: Classifier
    training_images: Images = field(repr=False)
    training_features: Features = field(repr=False)
    test_labels: IntArray = field(repr=False)
    test_classes: IntArray = field(repr=False)  # the classes that the classifier sees in the test images
    test_features: Features = field(repr=False)
    test_distances: FloatArray = field(repr=False)  # distance of each test image to the nearest training image

    @staticmethod
    def of(classifier: Classifier, training_images: Images, test_images: Images, test_labels: ArrayLike) -> Yardstick:
        """Measure real images: those that generator and classifier were trained on, and unseen ones."""
        labels, _ = checked_address(test_labels, np.arange(len(test_images)), classifier.num_classes)
        if len(training_images) < 2 or len(test_images) < 2:
            raise InputError("a yardstick needs at least two training images and two test images")
        classes, features = classifier.read(test_images)
        distances = nearest(test_images, training_images, classifier.device)
        _, training = classifier.read(training_images)
        return Yardstick(classifier, training_images, training, labels, classes, features, distances)

    def floor(self, labels: IntArray) -> float:
        """Frechet distance of real test images, for each class as many as in `labels`, if there are that many.

        The distance between samples shrinks with their number, so that only equal numbers can be compared.
        """
        wanted = np.bincount(labels, minlength=self.classifier.num_classes)
        places = [np.flatnonzero(self.test_labels == label)[:count] for label, count in enumerate(wanted)]
        return classifier_frechet(self.training_features, self.test_features[np.concatenate(places)])


@dataclass(frozen=True)
class Report:
    """Measures of generated images, each with the same measure of real test images."""

    images: int
    agreement: float  # share of the images in which the classifier sees the requested class
    ceiling: float  # the same for real test images: the accuracy of the classifier
    agreement_per_class: tuple[float | None, ...]  # None for a class without images
    ceiling_per_class: tuple[float | None, ...]
    classifier_frechet: float
    """Frechet distance to the training images over features of our classifier, not Inception-FID."""
    classifier_frechet_floor: float  # the same for real test images
    nearest: Nearness
    nearest_of_test: Nearness
    suspected_copies: float
    """Share of the images nearer to a training image than the nearest hundredth of the test images is."""
    copies: int  # images equal to a training image, pixel by pixel
    classifier: str  # its fingerprint
    generator: str | None = None  # fingerprint of the generator, if the images come from one
    seconds: float | None = None  # seconds that it took to draw them
    membership: MembershipReport | None = None
    """What an attack on the generator's weights tells of its training images, if they were attacked."""

    @property
    def images_per_second(self) -> float | None:
        """Speed of drawing."""
        return None if not self.seconds else self.images / self.seconds

    def as_dict(self) -> dict[str, Any]:
        """The measures by name, ready for JSON."""
        return asdict(self) | {"images_per_second": self.images_per_second}

    def rows(self, classes: Sequence[str] = ()) -> list[tuple[str, str, str]]:
        """Measure, its value for the generated images and, if meaningful, its value for real test images."""
        near, real = self.nearest, self.nearest_of_test
        rows = [
            ("images", f"{self.images:,}", ""),
            ("agreement with the asked class", f"{self.agreement:.2%}", f"{self.ceiling:.2%}"),
            ("worst class", _worst(self.agreement_per_class, classes), _worst(self.ceiling_per_class, classes)),
            ("classifier Frechet distance", f"{self.classifier_frechet:.3f}", f"{self.classifier_frechet_floor:.3f}"),
            ("nearest training image, median", f"{near.median:.4f}", f"{real.median:.4f}"),
            ("nearest training image, 1st percentile", f"{near.first_percentile:.4f}", f"{real.first_percentile:.4f}"),
            ("suspected copies", f"{self.suspected_copies:.2%}", "about 1%"),
            ("exact copies", f"{self.copies:,}", ""),
        ]
        if self.seconds is not None:
            rows.append(("images per second", f"{self.images_per_second or 0:,.1f}", ""))
        return rows + (self.membership.rows() if self.membership else [])


def measure_generator(generator: Generator, yardstick: Yardstick, per_class: int = 500) -> Report:
    """Draw `per_class` images of every class, under a client number that no client uses, and judge them."""
    check_same_images(generator, yardstick.classifier)
    labels = np.repeat(np.arange(generator.num_classes), per_class)
    index = np.tile(image_index(CHECK_CLIENT, per_class), generator.num_classes)
    start = time.perf_counter()
    images = generator.sample(labels, index)
    seconds = time.perf_counter() - start
    return judge(images, labels, yardstick, generator=generator.fingerprint, seconds=seconds)


def judge(
    images: Images, labels: ArrayLike, yardstick: Yardstick, generator: str | None = None, seconds: float | None = None
) -> Report:
    """Measure two or more generated images, of the requested classes `labels`, against real ones."""
    classifier = yardstick.classifier
    asked, _ = checked_address(labels, np.arange(len(images)), classifier.num_classes)
    seen, features = classifier.read(images)
    distances = nearest(images, yardstick.training_images, classifier.device)
    real = Nearness.of(yardstick.test_distances)
    return Report(
        images=len(images),
        agreement=float((seen == asked).mean()),
        ceiling=float((yardstick.test_classes == yardstick.test_labels).mean()),
        agreement_per_class=_per_class(seen, asked, classifier.num_classes),
        ceiling_per_class=_per_class(yardstick.test_classes, yardstick.test_labels, classifier.num_classes),
        classifier_frechet=classifier_frechet(yardstick.training_features, features),
        classifier_frechet_floor=yardstick.floor(asked),
        nearest=Nearness.of(distances),
        nearest_of_test=real,
        suspected_copies=float((distances < real.first_percentile).mean()),
        copies=int((distances == 0).sum()),
        classifier=classifier.fingerprint,
        generator=generator,
        seconds=seconds,
    )


class _Given(nn.Identity):
    """Passes on computed features where torchmetrics expects a network that extracts them."""

    num_features: int


def classifier_frechet(real: Features, generated: Features) -> float:
    """Frechet distance over features of our classifier, not Inception-FID.

    |m - m'|^2 + tr(S + S' - 2 (S S')^(1/2)) of the two sets' means and covariances, summed and solved in float64. It
    compares generators under one classifier; across classifiers it has no meaning. A network treats the images that it
    was trained on differently, so that even real test images have some distance to them: that is the floor.
    """
    if min(len(real), len(generated)) < 2:
        raise InputError("a Frechet distance needs at least two images on both sides")
    given = _Given()
    given.num_features = real.shape[1]
    metric = FrechetInceptionDistance(feature=given)  # on the CPU: not every GPU build has eigvals
    for features, is_real in ((real, True), (generated, False)):
        for rows in row_blocks(len(features), 1, BLOCK):
            metric.update(torch.from_numpy(features[rows].astype(np.float64)), real=is_real)
    return max(0.0, float(metric.compute()))


def nearest(images: Images, training_images: Images, device: torch.device | str = "cpu") -> FloatArray:
    """Distance of each image to the nearest training image.

    The distance is the root mean square over pixels scaled to [0, 1]. |a - b|^2 = |a|^2 + |b|^2 - 2 ab is found by
    matrix products in float64: pixels are whole numbers and the sums stay below 2^53 for images of any realistic size,
    so that nothing is rounded in any order of summation, and copies have a distance of exactly 0. float32 rounds sums
    beyond 2^24, which 259 pixels can reach.
    """
    if images.shape[1:] != training_images.shape[1:] or not len(training_images):
        raise InputError(f"images of {images.shape[1:]} have no neighbours among {training_images.shape}")

    def pixels(some: Images) -> Tensor:
        return torch.from_numpy(np.array(some)).to(device).flatten(1).double()

    squares = np.empty(len(images))
    for block in row_blocks(len(images), 1, BLOCK):
        rows = pixels(images[block])
        least = torch.full((len(rows),), torch.inf, dtype=torch.float64, device=device)
        for other in row_blocks(len(training_images), 1, BLOCK):
            others = pixels(training_images[other])
            apart = torch.addmm(others.square().sum(dim=1), rows, others.T, alpha=-2)
            least = torch.minimum(least, apart.amin(dim=1))
        squares[block] = (least + rows.square().sum(dim=1)).cpu().numpy()
    return np.sqrt(squares / images[0].size) / 255 if len(images) else squares


def near_duplicates(images: Images, others: Images, device: torch.device | str = "cpu") -> tuple[int, int]:
    """Count the images with a near-duplicate among others, and with one among the others turned by 180 degrees.

    The distance is relative to the deviation of the image's pixels; otherwise pale images would be near to all others.
    Turned images are no duplicates: the second number counts images that are near by chance.
    """
    contrast = images.reshape(len(images), -1).std(axis=1) / 255
    own, turned = (nearest(images, each, device) for each in (others, others[..., ::-1, ::-1]))
    return int((own <= NEAR * contrast).sum()), int((turned <= NEAR * contrast).sum())


def _per_class(seen: IntArray, asked: IntArray, num_classes: int) -> tuple[float | None, ...]:
    shares = (seen[asked == label] == label for label in range(num_classes))
    return tuple(float(own.mean()) if own.size else None for own in shares)


def _worst(shares: tuple[float | None, ...], classes: Sequence[str]) -> str:
    share, label = min((share, label) for label, share in enumerate(shares) if share is not None)
    return f"{share:.2%} ({classes[label] if classes else label})"
