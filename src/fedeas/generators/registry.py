"""Generators by their spec in a config: ``gaussian(components=32)``, ``diffusion``, ``python:module:name``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedeas.core.arrays import IntArray
from fedeas.core.digests import json_digest
from fedeas.core.own_code import imported_code, split_name
from fedeas.core.provenance import check_clean, unknown_to_be_clean, which_images
from fedeas.core.sentences import first_of
from fedeas.core.spec import Described, own_code_named, read_spec, refuse_class
from fedeas.core.weight_files import description, folder_digest, generator_weights, name_of_dataset, weights_digest
from fedeas.errors import InputError
from fedeas.generators.base import Generator, Shape, shape_of
from fedeas.generators.custom import custom_content, load_custom, wrap_callable
from fedeas.generators.pools import HeldOutImages, SharedPool

if TYPE_CHECKING:
    from fedeas.generators.diffusion.weights import Weights

AnyGenerator = Generator | str | Callable[[IntArray, IntArray], Any]
"""A generator, its spec, or a function from labels and indices to uint8 images."""


@dataclass(frozen=True, eq=False)
class GeneratorContext:
    """What a generator gets from a run: the official training part, the protocol and the device."""

    dataset: str
    images: NDArray[np.uint8]
    labels: IntArray
    classes: tuple[str, ...]
    protocol: str = "clean"
    device: str = "cpu"
    held_out: tuple[NDArray[np.uint8], IntArray] | None = None
    """Images and labels of the training part that no client gets."""

    @staticmethod
    def without_images(dataset: str, classes: tuple[str, ...], shape: Shape, **more: Any) -> GeneratorContext:
        """What is known if there are no images: their classes and shape."""
        return GeneratorContext(dataset, np.empty((0, *shape), np.uint8), np.empty(0, np.int64), classes, **more)

    @property
    def shape(self) -> Shape:
        """Channels, height and width of the images."""
        return shape_of(self.images)


_TYPES: dict[type, tuple[str, Any]] = {
    bool: ("true or false", bool),
    int: ("a whole number", int),
    float: ("a number", int | float),
    type(None): ("a number", int | float | None),
    str: ("text", str),
}
"""The values of a field, in words and as a type, by the type of its default; all other fields hold a generator."""


class GeneratorSettings(Described):
    """A generator as described in a config, before it is fitted or loaded; values of the wrong type are refused."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            words, kind = _TYPES.get(type(field.default), ("a generator", Described))
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
                raise InputError(f"{field.name} must be {words}, not {value!r}")

    @property
    def is_fitted(self) -> bool:
        """Whether it is fitted to the run's images when it is made, of which there must be some of every class."""
        return False

    def ready(self, context: GeneratorContext) -> Generator:
        """Make the generator."""
        raise NotImplementedError

    def content(self, dataset: str) -> dict[str, str]:
        """Hashes of files that determine the images; none if these follow from the fields and the dataset."""
        return {}

    def unknown(self, dataset: str, protocol: str = "clean") -> tuple[str, ...]:
        """What affects the images, or was seen in training, but cannot be known; one sentence each."""
        return ()

    def check_fits(self, dataset: str, classes: tuple[str, ...], shape: Shape) -> None:
        """Nothing to check if no file says which classes the generator makes."""

    def check_plan(self, plan: IntArray) -> None:
        """Refuse more images than the generator has for a client; most make any number."""


@dataclass(frozen=True)
class Gaussian(GeneratorSettings):
    """Settings of `GaussianGenerator`, which is fitted to the training part when the run starts, or read from a file.

    Args:
        components: directions of largest variance that are kept.
        shrinkage: least weight of the pooled covariance.
        weights: a file of `GaussianGenerator.save`, which holds both of the above.
    """

    components: int = 32
    shrinkage: float = 0.1
    weights: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights and (self.components, self.shrinkage) != (Gaussian.components, Gaussian.shrinkage):
            raise InputError("gaussian(weights=...): components and shrinkage are those of the file; leave them out")

    @property
    def is_fitted(self) -> bool:
        """Unless it comes as a file."""
        return not self.weights

    def ready(self, context: GeneratorContext) -> Generator:
        """Fit it to the official training part, or load it if it fits the dataset."""
        from fedeas.generators.gaussian import GaussianGenerator

        if self.weights:
            if context.protocol == "clean":
                check_clean(generator_weights(self.weights), context.dataset, "fit it to training images alone")
            return self._loaded(context.dataset, context.classes, context.shape)
        data = context.images, context.labels, len(context.classes)
        return GaussianGenerator.fit(*data, self.components, self.shrinkage, dataset=context.dataset)

    def _loaded(self, dataset: str, classes: tuple[str, ...], shape: Shape) -> Generator:
        from fedeas.generators.gaussian import GaussianGenerator

        made = GaussianGenerator.load(generator_weights(self.weights))
        form, wanted = _form(made.num_classes, made.shape), _form(len(classes), shape)
        if form != wanted or made.class_names not in (None, classes):
            raise InputError(
                f"generator weights {self.weights!r} make {form}, {dataset} has {wanted}, "
                f"in this order: {first_of(classes)}"
            )
        return made

    def check_fits(self, dataset: str, classes: tuple[str, ...], shape: Shape) -> None:
        """Refuse a file of other classes or shapes."""
        if self.weights:
            self._loaded(dataset, classes, shape)

    def content(self, dataset: str) -> dict[str, str]:
        """A hash of the file's tensors, if there is a file."""
        return {"weights": weights_digest(generator_weights(self.weights))} if self.weights else {}

    def unknown(self, dataset: str, protocol: str = "clean") -> tuple[str, ...]:
        """Which images a file was fitted to, if it does not say."""
        if not self.weights or protocol != "clean":
            return ()
        return unknown_to_be_clean(generator_weights(self.weights), dataset)


@dataclass(frozen=True)
class Diffusion(GeneratorSettings):
    """Settings of `DiffusionGenerator`; weights by file or name, by default those of the run's dataset."""

    weights: str = ""
    solver: str = ""
    steps: int = 0
    guidance: float | None = None
    precision: str = "auto"
    compiled: bool = False

    def ready(self, context: GeneratorContext) -> Generator:
        """Load it, if the weights fit the dataset and, in the clean protocol, have seen no test images."""
        from fedeas.generators.diffusion.sampling import DiffusionGenerator

        weights = self._loaded(context.dataset, context.classes, context.shape)
        if context.protocol == "clean":
            file, remedy = generator_weights(self._place(context.dataset)), "`fedeas generator train --protocol clean`"
            check_clean(file, context.dataset, f"train it with {remedy}")
        return DiffusionGenerator(
            weights, solver=self.solver, steps=self.steps, guidance=self.guidance, precision=self.precision,
            device=context.device, compiled=self.compiled,
        )  # fmt: skip

    def _loaded(self, dataset: str, classes: tuple[str, ...], shape: Shape) -> Weights:
        from fedeas.generators.diffusion.weights import Weights

        place = self._place(dataset)
        weights = Weights.load(place)
        made, wanted = _form(weights.num_classes, weights.shape), _form(len(classes), shape)
        if made != wanted:
            raise InputError(f"generator weights {place!r} make {made}, {dataset} has {wanted}")
        return weights

    def check_fits(self, dataset: str, classes: tuple[str, ...], shape: Shape) -> None:
        """Refuse weights of other classes or shapes."""
        self._loaded(dataset, classes, shape)

    def content(self, dataset: str) -> dict[str, str]:
        """Hashes of the file's tensors and of its settings of network and sampler."""
        path = generator_weights(self._place(dataset))
        return {"weights": weights_digest(path), "settings": _settings(path, "network", "shape", "sampler")}

    def unknown(self, dataset: str, protocol: str = "clean") -> tuple[str, ...]:
        """Which images the weights have seen, if their file does not say."""
        return unknown_to_be_clean(generator_weights(self._place(dataset)), dataset) if protocol == "clean" else ()

    def _place(self, dataset: str) -> str:
        return self.weights or name_of_dataset(dataset)


@dataclass(frozen=True)
class SdTurbo(GeneratorSettings):
    """Settings of `TextToImage`: an off-the-shelf model that is prompted with the names of the classes."""

    model: str = "stabilityai/sd-turbo"
    template: str = "a photo of a {}"
    steps: int = 1
    guidance: float = 0.0
    size: int = 512
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"

    def ready(self, context: GeneratorContext) -> Generator:
        """Load it from a folder or from the Hugging Face Hub."""
        from fedeas.generators.text import TextToImage

        return TextToImage.load(
            self.model, class_names=context.classes, shape=context.shape, template=self.template, steps=self.steps,
            guidance=self.guidance, size=self.size, precision=self.precision, device=context.device,
        )  # fmt: skip

    def content(self, dataset: str) -> dict[str, str]:
        """A hash of the folder's files; empty for a model on the Hub."""
        return {"model": folder_digest(self.model)} if self._is_local else {}

    def unknown(self, dataset: str, protocol: str = "clean") -> tuple[str, ...]:
        """The revision of a model on the Hub, and the images that the model was trained on."""
        revision = () if self._is_local else (f"{self.model}: the revision that the hub serves",)
        return (*revision, *_images_seen(self.model, protocol))

    @property
    def _is_local(self) -> bool:
        return Path(self.model).is_dir()


@dataclass(frozen=True)
class WrapperSettings(GeneratorSettings):
    """Settings of a generator that wraps another one."""

    of: GeneratorSettings = Diffusion()

    @property
    def is_fitted(self) -> bool:
        """Whether the other generator is."""
        return self.of.is_fitted

    def content(self, dataset: str) -> dict[str, str]:
        """That of the other generator, with "of" before each name."""
        return {f"of {name}": value for name, value in self.of.content(dataset).items()}

    def unknown(self, dataset: str, protocol: str = "clean") -> tuple[str, ...]:
        """That of the other generator."""
        return self.of.unknown(dataset, protocol)

    def check_fits(self, dataset: str, classes: tuple[str, ...], shape: Shape) -> None:
        """Refuse a file of the other generator that does not fit."""
        self.of.check_fits(dataset, classes, shape)


@dataclass(frozen=True)
class ClassifierFiltered(WrapperSettings):
    """Settings of `Filtered`: only the images of another generator whose class a classifier confirms.

    Args:
        of: the other generator.
        classifier: a classifier file of `fedeas generator check`; without it one is trained on the official
            training part.
    """

    classifier: str = ""

    @classmethod
    def name(cls) -> str:
        """The name in specs, which is part of fingerprints."""
        return "agreeing"

    @property
    def is_fitted(self) -> bool:
        """Whether the other generator is, or the classifier is trained here."""
        return self.of.is_fitted or not self.classifier

    def ready(self, context: GeneratorContext) -> Generator:
        """Make the other generator, load or train the classifier, and join them."""
        from fedeas.generators.filtered import Filtered
        from fedeas.generators.quality.classifier import Classifier

        if self.classifier and context.protocol == "clean":
            check_clean(self.classifier, context.dataset, "leave it out, and one is trained on the training part")
        if self.classifier:
            judge = Classifier.load(self.classifier, context.device)
        else:
            judge = Classifier.train(context.images, context.labels, len(context.classes), device=context.device)
        return Filtered(self.of.ready(context), judge)

    def content(self, dataset: str) -> dict[str, str]:
        """That of the other generator, and the classifier's file if one is named."""
        content = super().content(dataset)
        if self.classifier:
            settings = _settings(Path(self.classifier), "architecture", "shape", "num_classes", "mean", "std")
            content |= {"classifier": weights_digest(self.classifier), "classifier settings": settings}
        return content

    def unknown(self, dataset: str, protocol: str = "clean") -> tuple[str, ...]:
        """That of the other generator, and which images the classifier has seen, if its file does not say."""
        asked = self.classifier and protocol == "clean"
        judge = unknown_to_be_clean(self.classifier, dataset) if asked else ()
        return (*super().unknown(dataset, protocol), *judge)


@dataclass(frozen=True)
class Shared(WrapperSettings):
    """Settings of `SharedPool`: all clients take their images from one pool.

    Args:
        of: the generator that makes the images.
        each: images of each class in the pool; with 0, as many as the client that needs most.
    """

    each: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.each < 0:
            raise InputError(f"each must be 0 or more, not {self.each}")

    def check_plan(self, plan: IntArray) -> None:
        """Refuse a plan in which a client would get an image twice."""
        self.of.check_plan(plan)
        most = int(plan.max(initial=0))
        if self.each and most > self.each:
            raise InputError(
                f"a client needs {most} images of a class, the pool has {self.each}; set each={most}, or leave each out"
            )

    def ready(self, context: GeneratorContext) -> Generator:
        """Make the other generator, and the pool around it."""
        return SharedPool(self.of.ready(context), self.each)


@dataclass(frozen=True)
class HeldOut(GeneratorSettings):
    """Settings of `HeldOutImages`: the real images of ``data.held_out``, which no client holds."""

    @property
    def is_fitted(self) -> bool:
        """It consists of the run's images."""
        return True

    def ready(self, context: GeneratorContext) -> Generator:
        """Make it from the images that were held out."""
        if context.held_out is None:
            raise InputError("generator held-out needs images that no client has; set data.held_out, such as 10000")
        return HeldOutImages(*context.held_out, len(context.classes))


@dataclass(frozen=True)
class Python(GeneratorSettings):
    """Settings of `Custom`: a user's own callable, ``python:module:name``."""

    code: str

    def __post_init__(self) -> None:
        split_name(self.code, "generator")

    @property
    def spec(self) -> str:
        """The name alone."""
        return self.code

    def ready(self, context: GeneratorContext) -> Generator:
        """Import it; its first `sample` checks it on a few addresses."""
        return load_custom(self.code, len(context.classes), context.shape)

    def content(self, dataset: str) -> dict[str, str]:
        """Its own fingerprint, or the source of its module."""
        return {"code": custom_content(self.code)}

    def unknown(self, dataset: str, protocol: str = "clean") -> tuple[str, ...]:
        """Other code and files that it depends on, and the images that it was trained on."""
        return (imported_code(self.code), *_images_seen(self.code, protocol))


GENERATORS: dict[str, type[GeneratorSettings]] = {
    kind.name(): kind for kind in (Gaussian, Diffusion, SdTurbo, ClassifierFiltered, Shared, HeldOut)
}


def parse_generator(text: str) -> GeneratorSettings:
    """The settings that a spec describes.

    >>> parse_generator("gaussian(components=16)")
    Gaussian(components=16, shrinkage=0.1, weights='')
    """
    if own := own_code_named(text, GENERATORS, "generator"):
        return Python(own)
    return read_spec(text, GENERATORS, "generator")


def generator_from(given: AnyGenerator, context: Callable[[], GeneratorContext]) -> Generator:
    """Make what a user gives as a generator ready; `context` is called only for a spec or a function."""
    if isinstance(given, str):
        return parse_generator(given).ready(context())
    refuse_class(given, "generator")
    own: Any = given
    if all(hasattr(own, name) for name in ("sample", "num_classes", "shape", "fingerprint")):
        has_size = hasattr(own, "batch_size")  # else the wrapper has one
        return own if has_size else wrap_callable(own, own.num_classes, own.shape)
    if callable(own) or callable(getattr(own, "sample", None)):
        known = context()
        return wrap_callable(own, len(known.classes), known.shape)
    kind = type(own).__name__
    raise InputError(f"generator must be a Generator, a spec such as python:module:name or a function, not {kind}")


def content_digest(text: str, dataset: str) -> str:
    """One hash of the files and the code that a spec refers to; empty if it refers to none."""
    content = parse_generator(text).content(dataset)
    return json_digest(content, sort_keys=True) if content else ""


def _images_seen(place: str, protocol: str) -> tuple[str, ...]:
    """A sentence on the images that were seen; only the clean protocol needs it."""
    return (which_images(place),) if protocol == "clean" else ()


def _settings(path: Path, *names: str) -> str:
    """A hash of these entries of a file's description."""
    about = description(path)
    return json_digest([about.get(name) for name in names], sort_keys=True)


def _form(classes: int, shape: Shape) -> str:
    return f"{classes} classes of {' x '.join(map(str, shape))}"


def without_places(text: str) -> str:
    """The spec without names and paths of files, for use together with hashes of their content.

    >>> without_places("agreeing(of=diffusion(weights=mine, steps=9), classifier=judge)")
    'agreeing(of=diffusion(steps=9))'
    """
    return _replaced(parse_generator(text), weights="", classifier="").spec


def with_weights(text: str, place: str) -> str:
    """The spec with its generator's weights in another file; an error if it has no weights.

    >>> with_weights("shared(of=diffusion(weights=theirs, steps=9))", "mine")
    'shared(of=diffusion(weights=mine, steps=9))'
    """
    source = parse_generator(text)
    inner = source
    while isinstance(inner, WrapperSettings):
        inner = inner.of
    if not hasattr(inner, "weights"):
        raise InputError(f"generator {text} does not come as a file")
    return _replaced(source, weights=place).spec


def _replaced(source: Described, **values: str) -> Described:
    """The settings with other values of these fields, also in the settings inside, where there are such fields."""
    own = {field.name: getattr(source, field.name) for field in fields(source)}
    given = {name: value for name, value in values.items() if name in own}
    inner = {name: _replaced(value, **values) for name, value in own.items() if isinstance(value, Described)}
    return replace(source, **given, **inner)
