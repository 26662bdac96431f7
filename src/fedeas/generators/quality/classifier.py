"""A classifier trained on real images that judges generated ones: their class and their features."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional

from fedeas.core.arrays import FloatArray, IntArray, digest_of_arrays, json_digest, row_blocks
from fedeas.core.errors import InputError
from fedeas.core.files import PathLike
from fedeas.core.locks import locked
from fedeas.core.provenance import NOT_KNOWN, Seen, seen_in
from fedeas.core.records import is_there
from fedeas.core.weight_files import read_tensors, write_tensors
from fedeas.generators.base import Images, Shape, checked_address, checked_training, fingerprint_of, shape_of
from fedeas.models.build import Model, build_model, suited_to

Device = torch.device | str

FORMAT = "fedeas-classifier-1"

DESCRIBED = ("architecture", "shape", "num_classes", "mean", "std", "class_names", "test_accuracy")
"""The fields that a file keeps beside the weights."""

MOMENT_BLOCK = 4096  # images at a time


@dataclass(frozen=True)
class Recipe:
    """A training with SGD and Nesterov momentum; the rate rises linearly, then falls linearly to 0."""

    epochs: int
    batch_size: int
    peak_rate: float
    momentum: float = 0.9
    weight_decay: float = 5e-4
    label_smoothing: float = 0.05
    warm_up: float = 0.2  # share of the steps in which the rate rises

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of a step, counted from 0."""
        rising = max(1.0, self.warm_up * steps)
        return self.peak_rate * min((step + 1) / rising, (steps - step) / max(1.0, steps - rising), 1.0)


RECIPES = {
    "resnet18": Recipe(epochs=15, batch_size=512, peak_rate=0.3),
    "small-cnn": Recipe(epochs=50, batch_size=64, peak_rate=0.05),
}
"""Recipes by model: 15 passes over CIFAR-10 for a ResNet-18, 50 over scikit-learn's digits for a small network."""


@dataclass(frozen=True, eq=False)
class Classifier:
    """A trained network with the normalisation of its inputs; make one with `train` or `load`.

    The network is the one that a run uses for images of this shape, unless another is chosen.
    """

    model: Model = field(repr=False)
    architecture: str
    shape: Shape
    num_classes: int
    mean: tuple[float, ...]  # mean of each channel of the training images, scaled to [0, 1]
    std: tuple[float, ...]
    class_names: tuple[str, ...] | None = None
    test_accuracy: float | None = None  # on the images given to `measured`
    seen: Seen = NOT_KNOWN  # what it was trained on

    @classmethod
    def train(
        cls,
        images: Images,
        labels: ArrayLike,
        num_classes: int,
        *,
        seed: int = 0,
        epochs: int | None = None,
        device: Device = "cpu",
        class_names: Sequence[str] | None = None,
        seen: Seen = NOT_KNOWN,
        architecture: str = "",
    ) -> Classifier:
        """Train on real images, at least one of every class; on a CPU the same arguments give the same weights.

        The architecture is ``resnet18`` or ``small-cnn``, by default by the size of the images; the default of `epochs`
        depends on it.
        """
        names = None if class_names is None else tuple(map(str, class_names))
        classes = checked_training(images, labels, num_classes, names)
        shape = shape_of(images)
        architecture = architecture or suited_to(shape)
        recipe = RECIPES[architecture] if epochs is None else replace(RECIPES[architecture], epochs=epochs)
        if recipe.epochs < 1:
            raise InputError(f"epochs must be 1 or more, not {epochs}")
        mean, std = _moments(images)
        model = build_model(architecture, shape, num_classes, seed=seed).to(device)
        classifier = cls(model, architecture, shape, num_classes, mean, std, names, seen=seen)
        _fit(classifier, _TrainingSet.of(images, classes, classifier), recipe, seed)
        model.eval().requires_grad_(False)
        return classifier

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return self.model.head.weight.device

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of weights and settings; names of classes and the measured accuracy do not count."""
        settings = [FORMAT, self.architecture, self.shape, self.num_classes, self.mean, self.std]
        tensors = self.model.state_dict()
        return fingerprint_of(settings, {name: tensor.cpu().numpy() for name, tensor in tensors.items()})

    def predict(self, images: Images) -> IntArray:
        """The class it sees in each image."""
        return self.read(images)[0]

    def measured(self, images: Images, labels: ArrayLike) -> Classifier:
        """The same classifier with its accuracy on these images, which `save` writes, too."""
        classes, _ = checked_address(labels, np.arange(len(images)), self.num_classes)
        return replace(self, test_accuracy=float((self.predict(images) == classes).mean()))

    def read(self, images: Images) -> tuple[IntArray, NDArray[np.float32]]:
        """The class it sees in each image, and the input of its last layer, (N, d).

        Batches are padded to one size, so that the arithmetic, and with it the result for an image, does not depend on
        the rest of the batch.
        """
        if images.dtype != np.uint8 or images.shape[1:] != self.shape:
            wanted = ", ".join(map(str, self.shape))
            raise InputError(f"images must be uint8 of (N, {wanted}), not {images.dtype} {images.shape}")
        classes = np.empty(len(images), dtype=np.int64)
        features = np.empty((len(images), self.model.head.in_features), dtype=np.float32)
        with torch.inference_mode():
            for rows in row_blocks(len(images), 1, self._batch_size):
                batch = torch.zeros((self._batch_size, *self.shape), dtype=torch.uint8)
                length = len(images[rows])
                batch[:length] = torch.from_numpy(np.array(images[rows]))
                seen = self.model.features(self._normalised(batch.to(self.device)))
                classes[rows] = self.model.head(seen)[:length].argmax(dim=1).cpu().numpy()
                features[rows] = seen[:length].float().cpu().numpy()
        return classes, features

    @property
    def _batch_size(self) -> int:
        return 512 if self.device.type == "cuda" else 64

    def _normalised(self, batch: Tensor) -> Tensor:
        mean, std = self._mean_and_std
        return (batch.float() / 255 - mean) / std

    @cached_property
    def _mean_and_std(self) -> tuple[Tensor, ...]:
        """Mean and deviation of each channel; copied once, since copies while training would wait."""
        return torch.tensor([self.mean, self.std], dtype=torch.float32, device=self.device)[..., None, None].unbind()

    def save(self, path: PathLike) -> None:
        """Write one ``.safetensors`` file, whole or not at all."""
        about = {name: getattr(self, name) for name in DESCRIBED} | {"seen": self.seen.record}
        tensors = {name: tensor.cpu().contiguous() for name, tensor in self.model.state_dict().items()}
        write_tensors(path, tensors, {"format": FORMAT, "about": json.dumps(about)})

    @classmethod
    def load(cls, path: PathLike, device: Device = "cpu") -> Classifier:
        """Read a file of `save`; anything else is refused, in particular pickled weights."""
        try:
            settings, tensors = read_tensors(path)
            if settings.get("format") != FORMAT:
                raise ValueError(f"its format is {settings.get('format')!r}, not {FORMAT!r}")
            about = json.loads(settings["about"])
            kept = ((name, about[name]) for name in DESCRIBED)
            values: dict[str, Any] = {name: tuple(own) if isinstance(own, list) else own for name, own in kept}
            model = build_model(values["architecture"], values["shape"], values["num_classes"], seed=0)
            model.load_state_dict(tensors)
            model.eval().requires_grad_(False).to(device)
            return cls(model, **values, seen=seen_in(about))
        except InputError as error:
            raise InputError(f"{error}; train it again") from None
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            reason = str(error).partition("\n")[0]
            raise InputError(f"{path}: not a saved classifier ({reason}); train it again") from None


def kept_classifier(
    bank: Path | None, images: Images, labels: IntArray, num_classes: int, device: Device = "cpu"
) -> Classifier:
    """The classifier of these images that a bank keeps; it is trained if there is none, or no bank.

    On a GPU a second training may give other weights, and so other images; a run that resumes needs the same.
    """
    train = partial(Classifier.train, images, labels, num_classes, device=device)
    if bank is None:
        return train()
    recipe = asdict(RECIPES[suited_to(shape_of(images))])
    about = [FORMAT, digest_of_arrays([images, labels]), num_classes, torch.device(device).type, recipe]
    path = bank / "classifiers" / f"{json_digest(about)[:16]}.safetensors"
    with locked(path.with_suffix(".lock")):  # another process may be training it
        if is_there(path):
            with suppress(InputError):  # a damaged file
                return Classifier.load(path, device)
        made = train()
        made.save(path)
        return made


@dataclass(frozen=True, eq=False)
class _TrainingSet:
    """All images on the device, with a frame around them for random crops; batches are selected by index."""

    crops: Tensor  # views of each uint8 image in its frame: (N, channels, places down, places right, height, width)
    labels: Tensor
    flip: bool

    @staticmethod
    def of(images: Images, labels: IntArray, classifier: Classifier) -> _TrainingSet:
        """Crops shift by at most an eighth of the side; digits of 8 pixels are not shifted at all.

        Only large colour images are mirrored, whose objects look alike from both sides: grey ones may be letters.
        """
        channels, height, width = classifier.shape
        large = classifier.architecture == "resnet18"
        frame = min(height, width) // 8 if large else 0
        mean = torch.tensor(classifier.mean, device=classifier.device).mul(255).round().byte()
        room = (len(images), channels, height + 2 * frame, width + 2 * frame)
        framed = mean[:, None, None].expand(room).clone(memory_format=torch.contiguous_format)
        crops = framed.unfold(2, height, 1).unfold(3, width, 1)
        crops[:, :, frame, frame] = torch.from_numpy(np.array(images)).to(classifier.device)
        where = torch.from_numpy(np.array(labels)).to(classifier.device)
        return _TrainingSet(crops, where, large and channels > 1)

    def batch(self, index: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Randomly cropped and mirrored images at these positions, and their labels."""
        places, count = self.crops.shape[2], len(index)
        if places == 1 and not self.flip:
            return self.crops[index, :, 0, 0], self.labels[index]
        down, right = (torch.randint(places, (count,), device=index.device, generator=generator) for _ in range(2))
        images = self.crops[index, :, down, right]
        if self.flip:
            mirrored = torch.rand(count, 1, 1, 1, device=index.device, generator=generator) < 0.5
            images = torch.where(mirrored, images.flip(3), images)
        return images, self.labels[index]


def _fit(classifier: Classifier, data: _TrainingSet, recipe: Recipe, seed: int) -> None:
    """Train in place; the loop never waits for the device, so that the device is never idle."""
    model, device = classifier.model.train(), classifier.device
    on_gpu = device.type == "cuda"
    if on_gpu:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing from torch's stubs
    optimiser = torch.optim.SGD(
        model.parameters(), lr=0.0, momentum=recipe.momentum, weight_decay=recipe.weight_decay, nesterov=True
    )
    count, generator = len(data.labels), torch.Generator(device).manual_seed(seed)
    size = min(recipe.batch_size, count)
    per_epoch = count // size  # images that do not fill a last batch are left out
    steps = recipe.epochs * per_epoch
    for step in range(steps):
        place = step % per_epoch * size
        if not place:  # a new order every epoch
            order = torch.randperm(count, device=device, generator=generator)
        images, labels = data.batch(order[place : place + size], generator)
        x = classifier._normalised(images)
        if on_gpu:
            x = x.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=on_gpu):
            logits = model(x)
        loss = functional.cross_entropy(logits.float(), labels, label_smoothing=recipe.label_smoothing)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.param_groups[0]["lr"] = recipe.rate(step, steps)
        optimiser.step()
    model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]


def _moments(images: Images) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel on [0, 1], from counts of the 256 values, so exact in any order."""
    counts = np.zeros((images.shape[1], 256), dtype=np.int64)
    for rows in row_blocks(len(images), 1, MOMENT_BLOCK):
        for channel, own in enumerate(counts):
            own += np.bincount(images[rows, channel].ravel(), minlength=256)
    shares: FloatArray = counts / counts.sum(axis=1, keepdims=True)
    values = np.arange(256) / 255
    mean = shares @ values
    std = np.sqrt((shares * (values - mean[:, None]) ** 2).sum(axis=1))
    return tuple(mean.tolist()), tuple(np.maximum(std, 1e-6).tolist())
