"""A dataset of one's own: a function that gives arrays.

From the root of the repository:

    fedeas run digits "data.dataset=python:examples.own_dataset:discs(train=3000)" generator=gaussian
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

CLASSES = ("small", "medium", "large")


def discs(size: int = 12, train: int = 600, test: int = 150) -> dict[str, Any]:
    """Noisy discs of three radii as uint8 (N, height, width); colour images are (N, height, width, 3)."""
    labels, test_labels = np.arange(train) % 3, np.arange(test) % 3
    return {
        "images": _draw(labels, size, seed=0),
        "labels": labels,
        "test_images": _draw(test_labels, size, seed=1),
        "test_labels": test_labels,
        "classes": CLASSES,
    }


def _draw(labels: NDArray[np.int64], size: int, seed: int) -> NDArray[np.uint8]:
    rng = np.random.default_rng(seed)
    rows, columns = np.indices((size, size)) - (size - 1) / 2
    radius = size * (0.15 + 0.1 * labels[:, None, None])
    grey = 200 * (np.hypot(rows, columns) < radius) + rng.normal(20, 20, (labels.size, size, size))
    return np.clip(grey, 0, 255).astype(np.uint8)
