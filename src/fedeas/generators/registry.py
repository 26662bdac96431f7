"""Generators by name, as a config gives them: ``gaussian(components=32)``, ``diffusion``, ``python:module:name``."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fedeas.arrays import IntArray
from fedeas.errors import InputError
from fedeas.generators.base import Generator
from fedeas.generators.custom import PREFIX, load_custom
from fedeas.generators.gaussian import GaussianGenerator
from fedeas.spec import Described, read_spec


@dataclass(frozen=True, eq=False)
class Setting:
    """What a run tells a generator: the official training part, and where to compute."""

    dataset: str
    images: NDArray[np.uint8]
    labels: IntArray
    classes: tuple[str, ...]
    protocol: str = "clean"
    device: str = "cpu"

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the images."""
        _, channels, height, width = self.images.shape
        return channels, height, width


class Source(Protocol):
    """A generator as described in a config, before it is fitted or loaded."""

    @property
    def spec(self) -> str:
        """One line that can be read back."""

    def ready(self, setting: Setting) -> Generator:
        """The generator itself."""


_TYPES: dict[type, tuple[str, Any]] = {
    bool: ("true or false", bool),
    int: ("a whole number", int),
    float: ("a number", int | float),
    type(None): ("a number", int | float | None),
    str: ("text", str),
}
"""What a field takes, in words and as a type, by the type of its default; all others take a generator."""


class Settings(Described):
    """Fields of a kind of generator; a value of another type, such as a word for a number, is refused."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            words, kind = _TYPES.get(type(field.default), ("a generator", Described))
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
                raise InputError(f"{field.name} must be {words}, not {value!r}")


@dataclass(frozen=True)
class Gaussian(Settings):
    """Settings of `GaussianGenerator`, which is fitted to the training part when the run begins."""

    components: int = 32
    shrinkage: float = 0.1

    def ready(self, setting: Setting) -> Generator:
        """Fitted to the official training part."""
        classes = len(setting.classes)
        return GaussianGenerator.fit(setting.images, setting.labels, classes, self.components, self.shrinkage)


@dataclass(frozen=True)
class Diffusion(Settings):
    """Settings of `DiffusionGenerator`; weights by file or name, by default those of the run's dataset."""

    weights: str = ""
    solver: str = ""
    steps: int = 0
    guidance: float | None = None
    precision: str = "auto"
    compiled: bool = False

    def ready(self, setting: Setting) -> Generator:
        """Loaded, if the weights fit the dataset and saw nothing that the protocol tests on."""
        from fedeas.generators.diffusion import DiffusionGenerator, Weights

        place = self.weights or setting.dataset
        weights = Weights.load(place)
        made, wanted = _form(weights.class_names, weights.shape), _form(setting.classes, setting.shape)
        if made != wanted:
            raise InputError(f"generator weights {place!r} make {made}, {setting.dataset} has {wanted}")
        if setting.protocol == "clean" and weights.provenance.get("protocol") != "clean":
            raise InputError(f"generator weights {place!r} saw test images; train them with --protocol clean")
        return DiffusionGenerator(
            weights, solver=self.solver, steps=self.steps, guidance=self.guidance, precision=self.precision,
            device=setting.device, compiled=self.compiled,
        )  # fmt: skip


@dataclass(frozen=True)
class SdTurbo(Settings):
    """Settings of `TextToImage`: an off-the-shelf model that is told the names of the classes."""

    model: str = "stabilityai/sd-turbo"
    template: str = "a photo of a {}"
    steps: int = 1
    guidance: float = 0.0
    size: int = 512
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"

    def ready(self, setting: Setting) -> Generator:
        """Loaded from a folder or from the Hugging Face Hub."""
        from fedeas.generators.text import TextToImage

        return TextToImage.load(
            self.model, class_names=setting.classes, shape=setting.shape, template=self.template, steps=self.steps,
            guidance=self.guidance, size=self.size, precision=self.precision, device=setting.device,
        )  # fmt: skip


@dataclass(frozen=True)
class Agreeing(Settings):
    """Only the images of another generator whose class a classifier confirms.

    Args:
        of: the other generator.
        classifier: file of one that `fedeas generator check` left behind; without it one is trained on the official
            training part.
    """

    of: Described = Diffusion()
    classifier: str = ""

    def ready(self, setting: Setting) -> Generator:
        """The filter around the other generator."""
        from fedeas.generators.classifier import Classifier
        from fedeas.generators.filtered import Filtered

        if self.classifier:
            judge = Classifier.load(self.classifier, setting.device)
        else:
            judge = Classifier.train(setting.images, setting.labels, len(setting.classes), device=setting.device)
        source: Source = self.of  # type: ignore[assignment]
        return Filtered(source.ready(setting), judge)


@dataclass(frozen=True)
class Python:
    """A user's own callable, ``python:module:name``."""

    spec: str

    def ready(self, setting: Setting) -> Generator:
        """Imported; its first `sample` tries it on a few addresses."""
        return load_custom(self.spec, len(setting.classes), setting.shape)


GENERATORS: dict[str, type[Described]] = {kind.name(): kind for kind in (Gaussian, Diffusion, SdTurbo, Agreeing)}


def parse_generator(text: str) -> Source:
    """The settings that a spec describes.

    >>> parse_generator("gaussian(components=16)")
    Gaussian(components=16, shrinkage=0.1)
    """
    if text.startswith(PREFIX):
        return Python(text)
    source: Source = read_spec(text, GENERATORS, "generator")  # type: ignore[assignment]
    return source


def _form(classes: tuple[str, ...], shape: tuple[int, int, int]) -> str:
    return f"{len(classes)} classes of {' x '.join(map(str, shape))}"
