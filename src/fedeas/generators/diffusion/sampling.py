"""From trained weights to images: diffusers' solvers, a fixed batch shape, and noise from the image's address."""

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import torch
from diffusers import DDIMScheduler, DPMSolverMultistepScheduler
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from fedeas.core.arrays import IntArray, json_digest
from fedeas.core.errors import InputError, log
from fedeas.generators.acceleration import captured, load_kernels
from fedeas.generators.base import Shape
from fedeas.generators.diffusion.noise import DeviceNoise
from fedeas.generators.diffusion.presets import NOISE_LEVELS, Network
from fedeas.generators.diffusion.weights import Weights
from fedeas.generators.memory import chosen_precision, in_batches

Solver = Literal["dpm", "dpm-snr", "ddim", "ddpm"]
Precision = Literal["auto", "fp32", "bf16"]

BATCH = {"cuda": 512, "cpu": 32}
FIRST = 5.1


class DiffusionGenerator:
    """Class-conditional images by denoising.

    Args:
        weights: the trained weights, which also hold the defaults of solver, steps and guidance.
        solver: ``dpm``, DPM-Solver++ of second order on evenly spaced noise levels; ``dpm-snr``, the same on levels
            evenly spaced in the log of the signal-to-noise ratio, which needs fewer steps; ``ddim``; ``ddpm``,
            ancestral sampling as in DDPM, on evenly spaced levels.
        guidance: 1 is the plain conditional model; above 1 the class has more influence, at twice the work.
        first: minus the log of signal / noise with which ``dpm`` and ``dpm-snr`` begin. With less noise, such as 3.2,
            a network that has had few updates does not exaggerate colours.
        precision: by default bf16 on a GPU and fp32 elsewhere. A processor without bf16 uses fp32.
        batch_size: smaller requests are padded to it, so that an image never depends on the size of its request.
        compiled: this takes most of a minute and pays for thousands of images.
    """

    def __init__(
        self,
        weights: Weights,
        *,
        solver: str = "",
        steps: int = 0,
        guidance: float | None = None,
        first: float = FIRST,
        precision: str = "auto",
        device: str | torch.device = "cpu",
        batch_size: int = 0,
        compiled: bool = False,
    ) -> None:
        self.weights = weights
        self.device = torch.device(device)
        self.solver = solver or weights.solver
        self.steps = steps or (weights.steps if self.solver == weights.solver else {"ddpm": 250}.get(self.solver, 20))
        self.guidance = float(weights.guidance if guidance is None else guidance)
        self.first = first
        self.precision = chosen_precision(precision, self.device, get_args(Precision), on_gpu="bf16")
        self.batch_size = batch_size or BATCH.get(self.device.type, BATCH["cpu"])
        self.compiled = compiled
        if self.solver not in get_args(Solver):
            raise InputError(f"solver must be one of {', '.join(get_args(Solver))}, not {self.solver!r}")
        if not 1 <= self.steps <= NOISE_LEVELS:
            raise InputError(f"steps must be between 1 and {NOISE_LEVELS}, not {self.steps}")
        if not (math.isfinite(self.guidance) and self.guidance >= 0):
            raise InputError(f"guidance must be 0 or more, not {self.guidance}")
        if self.batch_size < 1:
            raise InputError(f"batch_size must be 1 or more, not {self.batch_size}")
        self._scheduler()  # refuses more steps than it has levels

    @property
    def num_classes(self) -> int:
        """C."""
        return self.weights.num_classes

    @property
    def shape(self) -> Shape:
        """Channels, height and width of the images."""
        return self.weights.shape

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of weights, sampler and precision."""
        first = [] if self.first == FIRST else [self.first]
        return json_digest([self.weights.fingerprint, self.solver, self.steps, self.guidance, self.precision, *first])

    @property
    def description(self) -> str:
        """One readable line."""
        seen = self.weights.provenance
        guided = f", guidance {self.guidance:g}" if self.guidance != 1 else ""
        trained = f"{seen.get('dataset', 'unknown data')} ({seen.get('protocol', 'unknown')})"
        return f"diffusion on {trained}, {self.solver}-{self.steps}{guided}, {self.precision}"

    def sample(self, labels: ArrayLike, index: ArrayLike) -> NDArray[np.uint8]:
        """The images of these addresses."""
        return in_batches(self, self._images, self._go_on_with, labels, index)

    def _go_on_with(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self.__dict__.pop("_network_call", None)
        log.warning("out of memory while sampling; continuing with %d images at a time", batch_size)

    @torch.inference_mode()
    def _images(self, labels: IntArray, index: IntArray) -> NDArray[np.uint8]:
        count, padding = labels.size, (0, self.batch_size - labels.size)
        labels, index = np.pad(labels, padding), np.pad(index, padding)
        noise = DeviceNoise(labels, index, math.prod(self.shape), self.device)
        classes = torch.from_numpy(labels).to(self.device)
        scheduler = self._scheduler()
        sample = noise.piece(0).view(-1, *self.shape)
        levels = scheduler.timesteps.to(self.device)[:, None].expand(-1, len(classes))  # one copy instead of many
        for number, level in enumerate(scheduler.timesteps):
            predicted = self._network_call(sample, levels[number], classes)
            sample = scheduler.step(predicted, level, sample, **self._step_noise(noise, number)).prev_sample
        return ((sample.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)[:count].cpu().numpy()

    def _scheduler(self) -> Any:
        return scheduler_for(self.solver, self.weights.network, self.steps, self.first)

    def _step_noise(self, noise: DeviceNoise, number: int) -> dict[str, Any]:
        """Arguments that turn a step of DDIM into an ancestral one for `ddpm`: eta = 1, and the noise to add.

        DDPM computes the noise from the clipped prediction of the clean image; DDIM does so only on request.
        """
        if self.solver != "ddpm":
            return {}
        fresh = noise.piece(number + 1).view(-1, *self.shape)
        return {"eta": 1.0, "use_clipped_model_output": True, "variance_noise": fresh}

    @cached_property
    def _network_call(self) -> Callable[..., Tensor]:
        # nn.Module's method, since diffusers' own warns about modules that must stay in float32; there are none here.
        network: Any = nn.Module.to(self.weights.build(), self.device, self._dtype)
        network = network.to(memory_format=torch.channels_last)
        if self.compiled:
            network = torch.compile(network, dynamic=False)
        elif self.device.type == "cuda" and self.precision == "bf16":
            denoiser = load_kernels("denoiser")  # the network in fewer kernels
            if denoiser is not None and denoiser.can_fuse(network):
                network = denoiser.FusedNetwork(network)
        return captured(lambda *arguments: self._predict(network, *arguments), self.device, pure=True)

    def _predict(self, network: Any, sample: Tensor, level: Tensor, classes: Tensor) -> Tensor:
        sample = sample.to(self._dtype)
        if self.guidance == 1:
            predicted: Tensor = network(sample, level, class_labels=classes).sample.float()
            return predicted
        nothing = torch.full_like(classes, self.num_classes)
        twice = network(sample.repeat(2, 1, 1, 1), level.repeat(2), class_labels=torch.cat([classes, nothing])).sample
        conditional, plain = twice.float().chunk(2)
        return torch.lerp(plain, conditional, self.guidance)

    @property
    def _dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.precision == "bf16" else torch.float32


class _ClippingSolver(DPMSolverMultistepScheduler):  # type: ignore[misc]
    """DPM-Solver that clips without sorting pixels.

    diffusers clips an image at a quantile of its pixels, which is itself clipped to [1, sample_max_value]. Here that
    maximum is 1, so that the quantile has no effect.
    """

    def _threshold_sample(self, sample: Tensor) -> Tensor:
        return sample.clamp(-1, 1)


def scheduler_for(name: str, network: Network, steps: int, first: float = FIRST) -> Any:
    """The scheduler of this name, set to `steps` steps; it clips predictions of the clean image to their range."""
    settings = network.scheduler_settings()
    scheduler: Any
    if name in ("ddim", "ddpm"):
        scheduler = DDIMScheduler(**settings, clip_sample=True)
    else:
        # Without the cut a cosine schedule starts without a finite signal-to-noise ratio (diffusers' own advice).
        cut = {"lambda_min_clipped": -first}
        scheduler = _ClippingSolver(**settings, algorithm_type="dpmsolver++", thresholding=True, **cut)
    if name == "dpm-snr":  # as nearly evenly spaced as levels allow, from high to low
        log_snr = scheduler.lambda_t
        start, end = log_snr[-1].clamp(min=-first).item(), log_snr[0].item()
        wanted = torch.linspace(start, end, steps, dtype=log_snr.dtype)
        scheduler.set_timesteps(timesteps=(log_snr[:, None] - wanted).abs().argmin(dim=0).tolist())
    else:
        scheduler.set_timesteps(steps)
    levels = len(scheduler.timesteps.unique())
    if levels < steps:  # a step from a level to itself makes DPM-Solver divide by zero
        raise InputError(f"{name} has only {levels} noise levels for {steps} steps; take fewer")
    return scheduler
