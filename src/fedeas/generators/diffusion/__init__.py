"""Class-conditional diffusion on diffusers' UNet2DModel and schedulers: presets, training, weights, sampling."""

from __future__ import annotations

from fedeas.generators.diffusion.presets import PRESETS, Network, Preset, preset, suited_preset
from fedeas.generators.diffusion.sampling import DiffusionGenerator
from fedeas.generators.diffusion.trainer import Trainer
from fedeas.generators.diffusion.training import Progress, train
from fedeas.generators.diffusion.weights import Weights

__all__ = [
    "PRESETS",
    "DiffusionGenerator",
    "Network",
    "Preset",
    "Progress",
    "Trainer",
    "Weights",
    "preset",
    "suited_preset",
    "train",
]
