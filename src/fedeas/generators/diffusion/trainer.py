"""A class-conditional diffusion model in training: one captured update, averaged weights, and a state to resume."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers.training_utils import EMAModel
from numpy.typing import NDArray
from torch import Tensor

from fedeas.core.arrays import IntArray, json_digest
from fedeas.core.devices import seconds_of
from fedeas.core.errors import InputError, log
from fedeas.core.provenance import data_digest
from fedeas.core.weight_files import described, read_tensors, write_tensors
from fedeas.generators.base import checked_address, shape_of
from fedeas.generators.diffusion.presets import Preset
from fedeas.generators.diffusion.updates import Updates, initial_network
from fedeas.generators.diffusion.weights import Weights, trained_weights
from fedeas.generators.memory import as_memory_allows

FEW, PATIENCE = 64, 5.0  # so many images are timed together, or fewer if one by one they would take longer than this


class Trainer(Updates):
    """A diffusion model in training.

    Images are on the device as bytes; an update draws its batch, classes to drop, noise and noise levels there, so that
    on a GPU the whole update is one CUDA graph. The random stream is part of the state: a training that is interrupted
    and resumed equals an uninterrupted one (on a CPU, bit for bit).

    `updates` is 0 for those of the preset. The training images of the weights in `start` count as seen; classes that
    these do not have by name start from random vectors.
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
        self.class_names, self.shape, self.start, self.seed = tuple(class_names), shape_of(images), start, seed
        network = initial_network(preset, self.shape, self.class_names, seed, start)
        super().__init__(network, preset, len(self.class_names), torch.device(device), compiled)
        self.random.manual_seed(seed)
        self.updates = updates or preset.updates
        self.images = torch.from_numpy(np.array(images)).to(self.device)
        self.labels = torch.from_numpy(np.array(labels)).to(self.device)
        self.data = data_digest(images, labels)
        self.ema = EMAModel(self.parameters, decay=preset.ema, foreach=True)
        self.loss_sum = torch.zeros((), device=self.device)
        self.update_number = self.images_seen = 0
        self.seconds = 0.0

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
        tensors = dict(zip(names, self.ema.shadow_params, strict=True))
        spent = self.update_number, self.images_seen, self.seconds
        about = self.preset, self.shape, self.class_names, self.start
        return trained_weights(tensors, *about, *spent, {"data": self.data, **provenance})

    def save(self, path: Path) -> None:
        """Write the whole state."""
        tensors = {name: tensor.contiguous() for name, tensor in self._tensors().items()}
        spent = {"update": self.update_number, "images": self.images_seen, "seconds": self.seconds}
        numbers = {**spent, "batch": self.batch}
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
        numbers = about["numbers"]
        self.update_number, self.images_seen, self.seconds = numbers["update"], numbers["images"], numbers["seconds"]
        self.ema.optimization_step = about["ema"]
        if numbers["batch"] != self.batch:
            self.batch, self._step = numbers["batch"], self._captured()

    def _images(self) -> tuple[Tensor, Tensor]:
        index = torch.randint(len(self.labels), (self.batch,), generator=self.random, device=self.device)
        return self.images[index], self.labels[index]

    def _go_on_with(self, batch: int) -> None:
        self.batch, self._step = batch, self._captured()
        log.warning("out of memory while training; continuing with batches of %d", batch)

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {f"network/{name}": tensor for name, tensor in self.network.state_dict().items()}
        tensors |= {f"ema/{number}": tensor for number, tensor in enumerate(self.ema.shadow_params)}
        for number, parameter in enumerate(self.parameters):
            tensors |= {f"adam/{number}/{name}": value for name, value in self.optimiser.state[parameter].items()}
        return {**tensors, "random": self.random.get_state(), "loss": self.loss_sum}

    def _identity(self) -> str:
        recipe = [repr(self.preset), self.updates, self.data, self.class_names, self.seed]
        recipe += [self.start.fingerprint] if self.start is not None else []
        return json_digest(recipe)
