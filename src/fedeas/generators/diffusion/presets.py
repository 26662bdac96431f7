"""Presets of network, noise schedule and training of a diffusion model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from fedeas.core.errors import InputError
from fedeas.generators.base import Shape

NOISE_LEVELS = 1000
SMALLEST_OF_QUICK = 16  # pixels; smaller images are quick without patches


@dataclass(frozen=True)
class Network:
    """diffusers' UNet2DModel with a class embedding; one more class stands for "no class".

    Args:
        widths: channels at each resolution, halved from one to the next.
        layers: residual blocks at each resolution.
        attention: resolutions with self-attention, besides the middle.
        groups: groups of group norm.
        schedule: how the noise grows, as in DDPM ("linear") or improved DDPM ("cosine").
        target: what the network predicts: the noise, v (Salimans and Ho 2022), or the clean image ("sample").
    """

    widths: tuple[int, ...]
    layers: int
    attention: tuple[bool, ...]
    groups: int = 32
    schedule: Literal["linear", "cosine"] = "cosine"
    target: Literal["epsilon", "v_prediction", "sample"] = "epsilon"

    def build(self, shape: Shape, num_classes: int, seed: int = 0) -> nn.Module:
        """The network with initial weights that depend on the seed alone."""
        _, height, width = shape
        halvings = 2 ** (len(self.widths) - 1)
        if height % halvings or width % halvings:
            raise InputError(
                f"images of {height} x {width} cannot be halved {len(self.widths) - 1} times; use a smaller preset"
            )
        from diffusers import UNet2DModel  # importing it takes seconds, and most runs need no network

        return _seeded(lambda: UNet2DModel(**self._settings(shape, num_classes)), seed)

    def _settings(self, shape: Shape, num_classes: int) -> dict[str, Any]:
        """Arguments of UNet2DModel for images of this shape."""
        channels, height, width = shape
        return {
            "sample_size": (height, width),
            "in_channels": channels,
            "out_channels": channels,
            "layers_per_block": self.layers,
            "block_out_channels": self.widths,
            "down_block_types": tuple("AttnDownBlock2D" if here else "DownBlock2D" for here in self.attention),
            "up_block_types": tuple("AttnUpBlock2D" if here else "UpBlock2D" for here in reversed(self.attention)),
            "norm_num_groups": self.groups,
            "num_class_embeds": num_classes + 1,
        }

    def scheduler_settings(self) -> dict[str, Any]:
        """Settings that all of diffusers' schedulers share."""
        schedule = {"linear": "linear", "cosine": "squaredcos_cap_v2"}[self.schedule]
        return {"num_train_timesteps": NOISE_LEVELS, "beta_schedule": schedule, "prediction_type": self.target}

    @staticmethod
    def of(fields: dict[str, Any]) -> Network:
        """The network whose fields went through JSON."""
        values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()}
        return PatchNetwork(**values) if "cells" in values else Network(**values)


@dataclass(frozen=True)
class PatchNetwork(Network):
    """A network that sees an image as a grid of patches, so that large images take little more time than small ones.

    Args:
        cells: patches along the longer side of an image, at most.
    """

    cells: int = 8

    def build(self, shape: Shape, num_classes: int, seed: int = 0) -> nn.Module:
        """The network with initial weights that depend on the seed alone; any size of image will do."""
        channels, height, width = shape
        patch = math.ceil(max(height, width) / self.cells)
        unit = patch * 2 ** (len(self.widths) - 1)
        grid = (channels * patch**2, math.ceil(height / unit) * unit // patch, math.ceil(width / unit) * unit // patch)
        from fedeas.generators.diffusion.patches import PatchUNet

        return _seeded(lambda: PatchUNet.of(patch, self._settings(grid, num_classes)), seed)


def _seeded(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """The network that `make` makes on the CPU with this seed; no random state changes."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        return make()


@dataclass(frozen=True)
class Preset:
    """A network and how it is trained.

    Args:
        batch: images of an update.
        lr: Adam's learning rate, after the warm-up and until the last tenth, in which it falls to zero.
        ema: decay of the averaged weights, which are the result of the training.
        class_dropout: share of images shown without their class, which guidance needs.
        flip: mirror half of the images.
        min_snr: cap of the loss weight (Hang et al. 2023); 0 gives all noise levels the same weight, as in DDPM.
        warm_up: updates in which the learning rate grows.
        solver, steps, guidance: the default sampler.
    """

    network: Network
    batch: int
    updates: int
    lr: float
    ema: float
    class_dropout: float = 0.1
    flip: bool = False
    min_snr: float = 0.0
    warm_up: int = 200
    solver: Literal["dpm", "dpm-snr", "ddim", "ddpm"] = "dpm"
    steps: int = 20
    guidance: float = 1.0

    def rate(self, update: int, updates: int) -> float:
        """The learning rate of update number `update`, from 0, of a training of `updates`."""
        rising, falling = (update + 1) / max(1, self.warm_up), (updates - update) / (0.1 * updates)
        return self.lr * max(0.0, min(1.0, rising, falling))


PRESETS = {
    "digits": Preset(
        Network((24, 48), layers=1, attention=(False, False), groups=8),
        batch=256, updates=3000, lr=2e-3, ema=0.998, steps=10,
    ),
    "quick": Preset(
        PatchNetwork((32, 64), layers=1, attention=(False, False), groups=8, target="sample", cells=8),
        batch=64, updates=1200, lr=2e-3, ema=0.995, min_snr=5.0, guidance=1.5,
    ),
    "small": Preset(
        Network((24, 48, 48), layers=2, attention=(False, True, False), groups=8),
        batch=512, updates=10_000, lr=1e-3, ema=0.999, min_snr=5.0, warm_up=500, guidance=1.5,
    ),
    "compact": Preset(
        Network((96, 192, 192), layers=2, attention=(False, True, False)),
        batch=512, updates=40_000, lr=6e-4, ema=0.9995, flip=True, min_snr=5.0, warm_up=500, guidance=1.5,
    ),
    "paper": Preset(
        Network((64, 128, 256, 512), layers=2, attention=(False, True, False, False), schedule="linear"),
        batch=128, updates=300_000, lr=2e-4, ema=0.9999, flip=True, warm_up=5000, solver="ddpm", steps=250,
    ),
}  # fmt: skip
"""digits: 8 x 8 images, minutes on a CPU. quick: 16 to 32 pixels, ten minutes on a CPU. small: 28 x 28 grey
images, minutes on a GPU, and a file of two megabytes. compact: 32 x 32 colour images, under an hour on one large GPU.
paper: the paper's own."""


def preset(name: str) -> Preset:
    """The preset of this name."""
    if name not in PRESETS:
        raise InputError(f"no preset is called {name!r}; choose one of {', '.join(PRESETS)}")
    return PRESETS[name]


def preset_from(fields: Mapping[str, Any]) -> Preset:
    """The preset whose fields went through JSON."""
    return Preset(**{**fields, "network": Network.of(fields["network"])})


def suited_preset(shape: Shape, device: torch.device) -> str:
    """Name of the preset for images of this shape on this device.

    >>> [suited_preset(shape, torch.device("cpu")) for shape in ((1, 8, 8), (3, 32, 32))]
    ['digits', 'quick']
    """
    if max(shape[1:]) < SMALLEST_OF_QUICK:
        return "digits"
    return "quick" if device.type == "cpu" else "compact"


def suited_to_clients(shape: Shape) -> str:
    """Name of the preset whose network clients can train together on images of this shape, on any device.

    >>> [suited_to_clients(shape) for shape in ((1, 8, 8), (1, 28, 28), (3, 32, 32))]
    ['digits', 'small', 'compact']
    """
    if max(shape[1:]) < SMALLEST_OF_QUICK:
        return "digits"
    return "small" if shape[0] == 1 else "compact"
