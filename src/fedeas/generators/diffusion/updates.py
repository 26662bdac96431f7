"""Updates of a diffusion model: its loss, and one step of Adam, captured on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from fedeas.core.arrays import FloatArray, IntArray
from fedeas.core.devices import copy_all
from fedeas.core.errors import InputError
from fedeas.generators.acceleration import captured
from fedeas.generators.base import Images, Shape
from fedeas.generators.diffusion.presets import NOISE_LEVELS, Network, Preset
from fedeas.generators.diffusion.weights import Weights

if TYPE_CHECKING:
    from diffusers import DDPMScheduler

CLASSES = "class_embedding.weight"
"""The vectors of the classes, and at last that of "no class"."""

LEVELS, DRAWS = (50, 100, 200, 300, 400), 2
"""Noise levels and draws of noise for `image_losses`; at other levels, images that were seen hardly stand out."""

Moments = Literal["all", "factored", "none"]
FIRST, SECOND = "exp_avg/", "exp_avg_sq/"
ROWS, COLUMNS = SECOND + "rows/", SECOND + "columns/"


class Updates:
    """A network in training: an update draws noise, noise levels and classes to drop, and takes one step of Adam.

    A subclass says which images an update sees. All random numbers come from one stream on the device, so that on a GPU
    the whole update is one CUDA graph, in which the network computes in bf16.
    """

    def __init__(
        self, network: nn.Module, preset: Preset, num_classes: int, device: torch.device, compiled: bool
    ) -> None:
        on_gpu = device.type == "cuda"
        self.preset, self.num_classes, self.device, self.batch = preset, num_classes, device, preset.batch
        self.network = network.to(device)
        if on_gpu:
            self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.called: Any = torch.compile(self.network, dynamic=False) if compiled else self.network
        self.parameters = list(self.network.parameters())
        rate = torch.tensor(preset.lr, device=device) if on_gpu else preset.lr
        self.optimiser = torch.optim.Adam(self.parameters, lr=rate, fused=True, capturable=on_gpu)
        self.scheduler = _scheduler(preset.network)
        self.loss_weight = _loss_weight(self.scheduler, preset).to(device)
        self.random = torch.Generator(device)
        self._step = self._captured()

    def _images(self) -> tuple[Tensor, Tensor]:
        """The images of an update, uint8, and their labels."""
        raise NotImplementedError

    def _captured(self) -> Callable[[], Tensor]:
        return captured(self._one_step, self.device, (self.random,))

    def _one_step(self) -> Tensor:
        self.optimiser.zero_grad(set_to_none=True)
        loss = self._loss()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        self.optimiser.step()
        return loss.detach()

    def _loss(self) -> Tensor:
        clean, classes = self._batch()
        noise = torch.randn(clean.shape, generator=self.random, device=self.device)
        level = torch.randint(NOISE_LEVELS, (self.batch,), generator=self.random, device=self.device)
        with torch.autocast(self.device.type, torch.bfloat16, self.device.type == "cuda", cache_enabled=False):
            kind = self.preset.network.target
            errors = squared_errors(self.called, self.scheduler, kind, clean, noise, level, classes)
        loss: Tensor = (errors * self.loss_weight[level]).mean()
        return loss

    def _batch(self) -> tuple[Tensor, Tensor]:
        """Images scaled to [-1, 1], and their classes, some of them dropped."""

        def chosen(share: float) -> Tensor:
            return torch.rand(self.batch, generator=self.random, device=self.device) < share

        images, labels = self._images()
        clean = images.float() / 127.5 - 1
        if self.preset.flip:
            clean = torch.where(chosen(0.5)[:, None, None, None], clean.flip(-1), clean)
        return clean, torch.where(chosen(self.preset.class_dropout), self.num_classes, labels)

    def _set_rate(self, rate: float) -> None:
        group = self.optimiser.param_groups[0]
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)  # in place: the graph reads it there
        else:
            group["lr"] = rate


class ClientUpdates(Updates):
    """A few updates of one client after the other, each from the weights and moments of Adam that it was sent."""

    def __init__(
        self, network: nn.Module, preset: Preset, shape: Shape, num_classes: int, device: torch.device, compiled: bool
    ) -> None:  # fmt: skip
        super().__init__(network, preset, num_classes, device, compiled)
        self.images = torch.zeros(self.batch, *shape, dtype=torch.uint8, device=device)
        self.labels = torch.zeros(self.batch, dtype=torch.int64, device=device)
        for parameter in self.parameters:
            zeros = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
            self.optimiser.state[parameter] = {"step": torch.zeros((), device=device), **zeros}

    @torch.no_grad()
    def begin(self, arrays: Mapping[str, Tensor], moments: Moments, taken: int, seed: int) -> None:
        """Take weights and moments after `taken` updates; the random stream begins anew."""
        names = [name for name, _ in self.network.named_parameters()]
        sent = read_moments(arrays, names, moments)
        copy_all(self.parameters, [arrays[f"model/{name}"] for name in names])  # in place: a CUDA graph reads there
        for kind in ("exp_avg", "exp_avg_sq"):
            copy_all(self._state(kind), sent[kind])
        self.taken = 0 if moments == "none" else taken
        self.first_taken = taken if moments == "all" else 0
        for step in self._state("step"):
            step.fill_(self.taken)
        self.random.manual_seed(seed)

    def train(self, images: Tensor, labels: Tensor, rates: Sequence[float]) -> Tensor:
        """An update at each of these learning rates, on images drawn with replacement; returns their mean loss."""
        total = torch.zeros((), device=self.device)
        for number, rate in enumerate(rates, 1):
            drawn = torch.randint(len(labels), (self.batch,), generator=self.random, device=self.device)
            self.images.copy_(images[drawn])
            self.labels.copy_(labels[drawn])
            # Adam corrects both moments by the updates of the second one; the first may have begun later.
            self._set_rate(rate * _filled(self.taken + number) / _filled(self.first_taken + number))
            total += self._step()
        return total / len(rates)

    def result(self, moments: Moments) -> dict[str, Tensor]:
        """The weights and the moments that are sent, all in fp32."""
        names = [name for name, _ in self.network.named_parameters()]
        weights = {f"model/{name}": own.detach() for name, own in zip(names, self.parameters, strict=True)}
        kept = {kind: dict(zip(names, self._state(kind), strict=True)) for kind in ("exp_avg", "exp_avg_sq")}
        return weights | sent_moments(kept["exp_avg"], kept["exp_avg_sq"], moments)

    def _images(self) -> tuple[Tensor, Tensor]:
        return self.images, self.labels

    def _state(self, kind: str) -> list[Tensor]:
        return [self.optimiser.state[parameter][kind] for parameter in self.parameters]


def sent_moments(first: Mapping[str, Tensor], second: Mapping[str, Tensor], moments: Moments) -> dict[str, Tensor]:
    """What travels of Adam's moments: both, the means of the second one's rows and columns, or nothing.

    Means of rows and columns (Shazeer and Stern 2018) are about a thousandth of the weights. They are linear, so that
    the mean over clients is that of the whole moments.
    """
    if moments == "none":
        return {}
    if moments == "all":
        return {FIRST + name: own for name, own in first.items()} | {SECOND + name: own for name, own in second.items()}
    sent: dict[str, Tensor] = {}
    for name, own in second.items():
        matrix = own.reshape(len(own), -1)
        sent |= {ROWS + name: matrix.mean(1), COLUMNS + name: matrix.mean(0)} if own.ndim > 1 else {ROWS + name: own}
    return sent


def read_moments(arrays: Mapping[str, Tensor], names: Sequence[str], moments: Moments) -> dict[str, list[Tensor]]:
    """Both moments of each weight, from what was sent; zeros where nothing is."""
    weights = [arrays[f"model/{name}"] for name in names]
    if moments == "all":
        return {"exp_avg": [arrays[FIRST + name] for name in names], "exp_avg_sq": [arrays[SECOND + n] for n in names]}
    zeros = [torch.zeros_like(weight) for weight in weights]
    if moments == "none":
        return {"exp_avg": zeros, "exp_avg_sq": zeros}
    second = []
    for name, weight in zip(names, weights, strict=True):
        rows = arrays[ROWS + name].float()
        if weight.ndim > 1:
            columns, mean = arrays[COLUMNS + name].float(), rows.mean().clamp_min(torch.finfo(torch.float32).tiny)
            rows = (rows[:, None] * (columns / mean)).reshape(weight.shape)
        second.append(rows)
    return {"exp_avg": zeros, "exp_avg_sq": second}


def initial_network(
    preset: Preset, shape: Shape, classes: Sequence[str], seed: int, start: Weights | None
) -> nn.Module:
    """The network with random weights, or with those of the start; classes that it has not by name begin randomly."""
    network = preset.network.build(shape, len(classes), seed)
    if start is None:
        return network
    if (start.network, start.shape) != (preset.network, shape):
        raise InputError("the weights to start from are of another preset or image shape")
    tensors = {name: tensor.float() for name, tensor in start.tensors.items()}
    fresh, before = network.state_dict()[CLASSES], tensors[CLASSES]
    rows = {name: row for row, name in enumerate(start.class_names)}
    known = [rows.get(name) for name in classes] + [len(before) - 1]
    vectors = [own if row is None else before[row] for own, row in zip(fresh, known, strict=True)]
    network.load_state_dict({**tensors, CLASSES: torch.stack(vectors)})
    return network


def squared_errors(
    network: Any, scheduler: DDPMScheduler, target: str, clean: Tensor, noise: Tensor, level: Tensor, classes: Tensor
) -> Tensor:
    """The loss of each image before noise levels are weighted: how far the network is from what it should predict."""
    wanted = clean if target == "sample" else noise
    if target == "v_prediction":
        wanted = scheduler.get_velocity(clean, noise, level)
    predicted = network(scheduler.add_noise(clean, noise, level), level, class_labels=classes).sample
    errors: Tensor = (predicted.float() - wanted).square().mean(dim=(1, 2, 3))
    return errors


@torch.inference_mode()
def image_losses(
    weights: Weights, images: Images, labels: IntArray, device: torch.device | str = "cpu", batch: int = 32
) -> FloatArray:
    """A row for each of `LEVELS`: the loss of each image, with the same noise for all images."""
    network, scheduler = weights.build().to(device), _scheduler(weights.network)
    drawn = torch.randn(len(LEVELS), DRAWS, 1, *weights.shape, generator=torch.Generator().manual_seed(0)).to(device)
    losses = np.zeros((len(LEVELS), len(images)))
    for start in range(0, len(images), batch):
        part = slice(start, start + batch)
        clean = torch.from_numpy(np.array(images[part])).to(device).float() / 127.5 - 1
        classes = torch.from_numpy(np.array(labels[part])).to(device)
        for row, level in enumerate(LEVELS):
            for noise in drawn[row]:
                rest = noise.expand_as(clean), torch.full_like(classes, level), classes
                errors = squared_errors(network, scheduler, weights.network.target, clean, *rest)
                losses[row, part] += errors.cpu().numpy() / DRAWS
    return losses


def _filled(updates: int) -> float:
    """How much of Adam's first moment, which begins at zero, is filled after so many updates."""
    return 1 - 0.9**updates if updates else 1.0


def _scheduler(network: Network) -> DDPMScheduler:
    """The noise that training adds, which diffusers computes; importing it takes seconds, and most runs need none."""
    from diffusers import DDPMScheduler

    return DDPMScheduler(**network.scheduler_settings())


def _loss_weight(scheduler: DDPMScheduler, preset: Preset) -> Tensor:
    """The weight of each noise level: min(SNR, gamma), divided by what the target itself weighs (Hang et al. 2023).

    That is SNR for a network that predicts noise, SNR + 1 for v, and 1 for clean images.
    """
    if not preset.min_snr:
        return torch.ones(NOISE_LEVELS)
    from diffusers.training_utils import compute_snr

    ratio = compute_snr(scheduler, torch.arange(NOISE_LEVELS))
    own = {"epsilon": ratio, "v_prediction": ratio + 1, "sample": torch.ones_like(ratio)}[preset.network.target]
    weight: Tensor = ratio.clamp(max=preset.min_snr) / own
    return weight.nan_to_num(1.0)
