"""A generator of one's own: any function from addresses (label, index) to images.

From the root of the repository:

    fedeas run digits generator=python:examples.custom_generator:stripes

FedEAS looks for the module in the current folder first, then among the installed ones. The one rule: an image is a
function of its own label and index, so that every policy and every restarted run gets the same one. Seeding by both, as
here, is enough; a generator that draws from one stream call after call is noticed and refused.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SIZE, CLASSES = 8, 10  # those of scikit-learn's digits


def stripes(labels: NDArray[np.int64], index: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Stripes whose direction tells the class, with a random place, width and noise: uint8 (N, 1, 8, 8).

    They look like no digit. As a stand-in for a bad generator they show what synthetic data of no use do to a
    federation; put a model of your own in their place.
    """
    images = [_stripes(int(label), int(number)) for label, number in zip(labels, index, strict=True)]
    return np.stack(images)[:, None]


def _stripes(label: int, number: int) -> NDArray[np.uint8]:
    rng = np.random.default_rng((label, number))
    angle, phase, width = np.pi * label / CLASSES, rng.uniform(0, 2 * np.pi), rng.uniform(3, 5)
    rows, columns = np.indices((SIZE, SIZE))
    along = rows * np.cos(angle) + columns * np.sin(angle)
    grey = 128 + 100 * np.sin(2 * np.pi * along / width + phase) + rng.normal(0, 10, (SIZE, SIZE))
    image: NDArray[np.uint8] = np.clip(np.rint(grey), 0, 255).astype(np.uint8)
    return image
