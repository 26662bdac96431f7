"""The denoising loss of single images at fixed noise levels, for telling which images a model was trained on."""

from __future__ import annotations

import numpy as np
import torch
from diffusers import DDPMScheduler

from fedeas.core.arrays import FloatArray, IntArray
from fedeas.generators.base import Images
from fedeas.generators.diffusion.updates import squared_errors
from fedeas.generators.diffusion.weights import Weights

LEVELS = (50, 100, 200, 300, 400)
"""Of 1,000; with less noise or more of it, the losses of images that were trained on and of others hardly differ."""

DRAWS = 2
"""Draws of noise at each level."""


@torch.inference_mode()
def image_losses(
    weights: Weights, images: Images, labels: IntArray, device: torch.device | str = "cpu", batch: int = 32
) -> FloatArray:
    """A row for each noise level: the loss of each image, a mean over draws of noise.

    The draws are the same for all images, so that the loss of an image does not depend on the others.
    """
    network = weights.build().to(device)
    scheduler = DDPMScheduler(**weights.network.scheduler_settings())
    drawn = torch.randn(len(LEVELS), DRAWS, *weights.shape, generator=torch.Generator().manual_seed(0)).to(device)
    losses = np.empty((len(LEVELS), len(images)))
    for start in range(0, len(images), batch):
        part = slice(start, start + batch)
        clean = torch.from_numpy(np.array(images[part])).to(device).float() / 127.5 - 1
        classes = torch.from_numpy(np.array(labels[part])).to(device)
        for row, level in enumerate(LEVELS):
            levels, total = torch.full_like(classes, level), torch.zeros(len(clean), device=device)
            for noise in drawn[row]:
                fixed = noise.expand_as(clean)
                total += squared_errors(network, scheduler, weights.network.target, clean, fixed, levels, classes)
            losses[row, part] = (total / DRAWS).cpu().numpy()
    return losses
