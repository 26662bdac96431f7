"""A class-conditional diffusion model in training: one captured update, averaged weights, and a state to resume."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import DDPMScheduler
from diffusers.training_utils import EMAModel, compute_snr
from numpy.typing import NDArray
from torch import Tensor

from fedeas.core.arrays import IntArray
from fedeas.core.devices import seconds_of
from fedeas.core.digests import json_digest
from fedeas.core.errors import InputError
from fedeas.core.log import log
from fedeas.core.provenance import Seen, data_digest
from fedeas.core.tensor_files import described, read_tensors, write_tensors
from fedeas.generators.acceleration import captured
from fedeas.generators.base import checked_address, shape_of
from fedeas.generators.diffusion.presets import NOISE_LEVELS, Preset
from fedeas.generators.diffusion.weights import Weights, half
from fedeas.generators.memory import as_memory_allows

CLASSES = "class_embedding.weight"
"""The vectors of the classes, and at last that of "no class"."""

FEW, PATIENCE = 64, 5.0  # so many images are timed together, or fewer if one by one they would take longer than this


class Trainer:
    """A diffusion model in training.

    Images are on the device as bytes; an update draws its batch, classes to drop, noise and noise levels there, so that
    on a GPU the whole update is one CUDA graph. The random stream is part of the state: a training that is interrupted
    and resumed equals an uninterrupted one (on a CPU, bit for bit).

    Args:
        images, labels, class_names: uint8 (N, channels, height, width), and their labels from 0 to C - 1.
        preset: network and recipe.
        updates: updates of the whole training; the preset's if 0.
        seed: seed of initial weights and random stream.
        device: where it trains; on a GPU the network computes in bf16.
        compiled: compile the network first.
        start: weights to start from instead of random ones; their training images count as seen. Classes that they do
            not have by name start from random vectors.
    """

    def __init__(
        self,
        images: NDArray[np.uint8],
        labels: IntArray,
        class_names: Sequence[str],
        preset: Preset,
        *,
        updates: int = 0,
        seed: int = 0,
        device: str | torch.device = "cpu",
        compiled: bool = False,
        start: Weights | None = None,
    ) -> None:
        if not len(images):
            raise InputError("there are no images to train on")
        labels, _ = checked_address(labels, np.arange(len(images)), len(class_names))
        self.seed = seed
        self.preset, self.class_names, self.device = preset, tuple(class_names), torch.device(device)
        self.updates, self.batch = updates or preset.updates, preset.batch
        self.images = torch.from_numpy(np.array(images)).to(self.device)
        self.labels = torch.from_numpy(np.array(labels)).to(self.device)
        self.data = data_digest(images, labels)
        self.start, self.shape, self.num_classes = start, shape_of(images), len(self.class_names)
        self._build(compiled)
        self.scheduler = DDPMScheduler(**preset.network.scheduler_settings())
        self.loss_weight = _loss_weight(self.scheduler, preset).to(self.device)
        self.random = torch.Generator(self.device).manual_seed(seed)
        self.loss_sum = torch.zeros((), device=self.device)
        self.update_number = self.images_seen = 0
        self.seconds = 0.0
        self._step = self._captured()

    def _build(self, compiled: bool) -> None:
        """Make the network, its optimiser, and the average of its weights."""
        on_gpu = self.device.type == "cuda"
        self.network = self._initial().to(self.device)
        if on_gpu:
            self.network.to(memory_format=torch.channels_last)
        self.called: Any = torch.compile(self.network, dynamic=False) if compiled else self.network
        self.parameters = list(self.network.parameters())
        rate = torch.tensor(self.preset.lr, device=self.device) if on_gpu else self.preset.lr
        self.optimiser = torch.optim.Adam(self.parameters, lr=rate, fused=True, capturable=on_gpu)
        self.ema = EMAModel(self.parameters, decay=self.preset.ema, foreach=True)

    def _initial(self) -> Any:
        network: Any = self.preset.network.build(self.shape, self.num_classes, self.seed)
        if self.start is None:
            return network
        if (self.start.network, self.start.shape) != (self.preset.network, self.shape):
            raise InputError("the weights to start from are of another preset or image shape")
        tensors = {name: tensor.float() for name, tensor in self.start.tensors.items()}
        network.load_state_dict(
            {**tensors, CLASSES: self._known_classes(network.state_dict()[CLASSES], tensors[CLASSES])}
        )
        return network

    def _known_classes(self, fresh: Tensor, before: Tensor) -> Tensor:
        """The vectors of the classes: from the start for classes that it has by name and for "no class"."""
        rows = {name: row for row, name in enumerate(self.start.class_names)} if self.start is not None else {}
        known = [rows.get(name) for name in self.class_names] + [len(before) - 1]
        return torch.stack([own if row is None else before[row] for own, row in zip(fresh, known, strict=True)])

    def update(self) -> None:
        """One update of weights and averaged weights; if memory runs out, the batch is halved."""
        self._set_rate(self.preset.rate(self.update_number, self.updates))
        self.loss_sum += as_memory_allows(lambda _: self._step(), self.batch, self._go_on_with)
        self.ema.step(self.parameters)
        self.update_number += 1
        self.images_seen += self.batch

    def forecast(self) -> float:
        """Seconds of the updates that are left on a CPU, from timing the network on one image or a few.

        No random number is drawn and no weight changes.
        """
        each = self._seconds_of_images(1)
        few = min(FEW, self.batch, int(PATIENCE / each))
        if few > 1:
            each = self._seconds_of_images(few) / few
        return each * self.batch * (self.updates - self.update_number)

    def _seconds_of_images(self, images: int) -> float:
        """Seconds through the network and back with so many images."""
        noisy = torch.zeros(images, *self.shape, device=self.device)
        levels = torch.zeros(images, dtype=torch.int64, device=self.device)

        def there_and_back() -> None:
            self.optimiser.zero_grad(set_to_none=True)
            self.called(noisy, levels, class_labels=levels).sample.square().mean().backward()

        seconds = seconds_of(there_and_back, self.device)
        self.optimiser.zero_grad(set_to_none=True)
        return seconds

    def averaged(self, **provenance: Any) -> Weights:
        """A copy of the averaged weights."""
        names = [name for name, _ in self.network.named_parameters()]
        tensors = half(dict(zip(names, self.ema.shadow_params, strict=True)))
        before = self.start.provenance if self.start is not None else {}
        start = None if self.start is None else self.start.seen
        own = Seen.under(provenance.get("protocol"), provenance.get("dataset"), self.data, start)
        seen = {"data": self.data, **provenance, "seen": own.record}
        if self.start is not None and before.get("protocol") != "clean":
            seen["protocol"] = before.get("protocol", "unknown")  # images of earlier trainings stay seen
        seen["updates"] = self.update_number + before.get("updates", 0)
        seen["images"] = self.images_seen + before.get("images", 0)
        seen["minutes"] = round(self.seconds / 60 + before.get("minutes", 0), 2)
        preset = self.preset
        sampler = preset.solver, preset.steps, preset.guidance
        return Weights(preset.network, self.shape, self.class_names, tensors, *sampler, provenance=seen)

    def save(self, path: Path) -> None:
        """Write the whole state."""
        tensors = {name: tensor.contiguous() for name, tensor in self._tensors().items()}
        numbers = {
            "update": self.update_number,
            "images": self.images_seen,
            "seconds": self.seconds,
            "batch": self.batch,
        }
        about = {"identity": self._identity(), "numbers": numbers, "ema": self.ema.optimization_step}
        write_tensors(path, tensors, {"fedeas": json.dumps(about)})

    def restore(self, path: Path) -> None:
        """Resume from a saved state."""
        try:
            metadata, tensors = read_tensors(path, device=str(self.device))
        except InputError as error:
            raise InputError(f"{error}; remove it to start again") from None
        about = described(metadata)
        if about.get("identity") != self._identity():
            raise InputError(f"{path}: a training of other data, preset, updates, seed or start; choose another folder")
        self._take(tensors)
        numbers = about["numbers"]
        self.update_number, self.images_seen, self.seconds = numbers["update"], numbers["images"], numbers["seconds"]
        self.ema.optimization_step = about["ema"]
        if numbers["batch"] != self.batch:
            self.batch, self._step = numbers["batch"], self._captured()

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
        noisy = self.scheduler.add_noise(clean, noise, level)
        target = self._target(clean, noise, level)
        with torch.autocast(self.device.type, torch.bfloat16, self.device.type == "cuda", cache_enabled=False):
            predicted = self.called(noisy, level, class_labels=classes).sample
        errors = (predicted.float() - target).square().mean(dim=(1, 2, 3))
        loss: Tensor = (errors * self.loss_weight[level]).mean()
        return loss

    def _target(self, clean: Tensor, noise: Tensor, level: Tensor) -> Tensor:
        """What the network should predict."""
        kind = self.preset.network.target
        if kind == "v_prediction":
            velocity: Tensor = self.scheduler.get_velocity(clean, noise, level)
            return velocity
        return clean if kind == "sample" else noise

    def _batch(self) -> tuple[Tensor, Tensor]:
        """Images scaled to [-1, 1], and their classes, some of them dropped."""

        def chosen(share: float) -> Tensor:
            return torch.rand(self.batch, generator=self.random, device=self.device) < share

        index = torch.randint(len(self.labels), (self.batch,), generator=self.random, device=self.device)
        clean = self.images[index].float() / 127.5 - 1
        if self.preset.flip:
            clean = torch.where(chosen(0.5)[:, None, None, None], clean.flip(-1), clean)
        return clean, torch.where(chosen(self.preset.class_dropout), self.num_classes, self.labels[index])

    def _set_rate(self, rate: float) -> None:
        group = self.optimiser.param_groups[0]
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)  # in place: the graph reads it there
        else:
            group["lr"] = rate

    def _go_on_with(self, batch: int) -> None:
        self.batch, self._step = batch, self._captured()
        log.warning("out of memory while training; continuing with batches of %d", batch)

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {f"network/{name}": tensor for name, tensor in self.network.state_dict().items()}
        tensors |= {f"ema/{number}": tensor for number, tensor in enumerate(self.ema.shadow_params)}
        for number, parameter in enumerate(self.parameters):
            tensors |= {f"adam/{number}/{name}": value for name, value in self.optimiser.state[parameter].items()}
        return {**tensors, "random": self.random.get_state(), "loss": self.loss_sum}

    def _take(self, tensors: dict[str, Tensor]) -> None:
        self.network.load_state_dict({name: tensors[f"network/{name}"] for name in self.network.state_dict()})
        for number, average in enumerate(self.ema.shadow_params):
            average.copy_(tensors[f"ema/{number}"])
        for number, parameter in enumerate(self.parameters):
            prefix = f"adam/{number}/"
            own = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
            # Fused Adam wants its moments in the parameter's memory layout; a file has none.
            moments = {name: torch.empty_like(parameter).copy_(value) for name, value in own.items() if value.dim()}
            self.optimiser.state[parameter] = own | moments
        self.random.set_state(tensors["random"].cpu())
        self.loss_sum.copy_(tensors["loss"])

    def _identity(self) -> str:
        recipe = [repr(self.preset), self.updates, self.data, self.class_names, self.seed]
        recipe += [self.start.fingerprint] if self.start is not None else []
        return json_digest(recipe)


def _loss_weight(scheduler: DDPMScheduler, preset: Preset) -> Tensor:
    """The weight of each noise level: min(SNR, gamma), divided by what the target itself weighs (Hang et al. 2023).

    That is SNR for a network that predicts noise, SNR + 1 for v, and 1 for clean images.
    """
    if not preset.min_snr:
        return torch.ones(NOISE_LEVELS)
    ratio = compute_snr(scheduler, torch.arange(NOISE_LEVELS))
    own = {"epsilon": ratio, "v_prediction": ratio + 1, "sample": torch.ones_like(ratio)}[preset.network.target]
    weight: Tensor = ratio.clamp(max=preset.min_snr) / own
    return weight.nan_to_num(1.0)
