"""Estimate how long a check of a generator will take, from parts of it that are timed."""

from __future__ import annotations

import numpy as np
import torch

from fedeas.core.devices import seconds_of
from fedeas.generators.base import Generator, Images, image_index, shape_of
from fedeas.generators.quality.classifier import RECIPES, Classifier, suited_judge
from fedeas.generators.quality.metrics import CHECK_CLIENT, nearest

FEW = 64
"""Images of a part that is timed. A GPU trains on so few in less time than it takes to set the training up."""

PART = 10
"""A GPU is timed on one in this many images."""


def training_seconds(images: Images, num_classes: int, device: torch.device) -> float:
    """Seconds of training the classifier that judges these images."""
    count = max(FEW, num_classes, len(images) // PART if device.type == "cuda" else 0)
    few, classes = images[np.arange(count) % len(images)], np.arange(count) % num_classes
    name = suited_judge(shape_of(images), device)
    one = seconds_of(
        lambda: Classifier.train(few, classes, num_classes, epochs=1, device=device, architecture=name), device
    )
    return RECIPES[name].epochs * one * len(images) / count


def drawing_seconds(generator: Generator, count: int, device: torch.device) -> float:
    """Seconds of drawing this many images."""
    batch = min(generator.batch_size, count)
    labels, index = np.zeros(batch, np.int64), image_index(CHECK_CLIENT, batch)
    return seconds_of(lambda: generator.sample(labels, index), device) * count / batch


def comparing_seconds(images: Images, others: int, device: torch.device) -> float:
    """Seconds of searching the nearest of these images for this many others."""
    few, some = images[: FEW * FEW], images[: 8 * FEW]  # enough that converting the images hardly counts
    return seconds_of(lambda: nearest(some, few, device), device) * others * len(images) / (len(some) * len(few))
