"""Generators by their spec in a config, such as ``gaussian(components=32)``, and how each kind is made from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

import fedeas.config.generators as fields
from fedeas.core.arrays import IntArray, json_digest
from fedeas.core.errors import InputError
from fedeas.core.foreign_text import first_of
from fedeas.core.provenance import (
    ALL_PARTS,
    NOT_KNOWN,
    PARTS,
    TEST,
    Answer,
    DatasetParts,
    Seen,
    check_clean,
    check_start,
    seen_by,
    which_images,
)
from fedeas.core.spec import imported_code, refuse_class
from fedeas.core.weight_files import description, folder_digest, generator_weights, name_of_dataset, weights_digest
from fedeas.generators.base import Generator, Shape, checked_shape, shape_of
from fedeas.generators.custom import custom_content, load_custom, wrap_callable
from fedeas.generators.gaussian import GaussianGenerator
from fedeas.generators.pools import HeldOutImages, SharedPool

Form = tuple[tuple[str, ...], Shape]  # names of the classes, and the shape of the images


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
    plan: IntArray | None = None
    """How many images each client gets of each class; None if only one client's part is known."""
    trained: Path | None = None  # the generator that the run's clients have trained
    bank: Path | None = None
    """Folder of the run's image bank, where a classifier that is trained for the generator is kept, too."""

    @staticmethod
    def without_images(dataset: str, classes: tuple[str, ...], shape: Shape, **more: Any) -> GeneratorContext:
        """What is known if there are no images: their classes and shape."""
        return GeneratorContext(dataset, np.empty((0, *shape), np.uint8), np.empty(0, np.int64), classes, **more)

    @property
    def shape(self) -> Shape:
        """Channels, height and width of the images."""
        return shape_of(self.images)


class GeneratorSettings(fields.GeneratorFields):
    """A generator before it is fitted or loaded."""

    remedy: ClassVar[str] = "choose other weights"  # what to do if the weights have seen test images
    needs: ClassVar[str] = ""
    """Why it cannot be made without a run's dataset, and what to give instead; empty if it can."""
    file_holds: ClassVar[str] = "weights"  # what its file holds
    entries: ClassVar[tuple[str, ...]] = ()
    """Entries of the file's description that determine the images, as its tensors do."""

    @property
    def is_fitted(self) -> bool:
        """Whether it is fitted to the run's images when it is made, of which there must be some of every class."""
        return False

    def needs_data(self) -> str:
        """What it needs that no file gives; empty if it can be made without a run's dataset."""
        return "" if getattr(self, "weights", "") else self.needs

    def known_form(self) -> Form | None:
        """Classes and shape of its images, if its file says so."""
        return None

    def ready(self, context: GeneratorContext) -> Generator:
        """Make the generator."""
        raise NotImplementedError

    def content(self, dataset: str) -> dict[str, str]:
        """Hashes of files that determine the images; none if these follow from the fields and the dataset."""
        path = self.file(dataset)
        content = {} if path is None else {self.file_holds: weights_digest(path)}
        if path is not None and self.entries:
            about = description(path)
            name = "settings" if self.file_holds == "weights" else f"{self.file_holds} settings"
            content[name] = json_digest([about.get(entry) for entry in self.entries], sort_keys=True)
        return content

    def file(self, dataset: str) -> Path | None:
        """The file that it is made from, if there is one."""
        return None

    def records(self, dataset: str) -> dict[str, Seen]:
        """Training data of its weights, by their place; none if it comes without weights."""
        path = self.file(dataset)
        return {} if path is None else {str(path): seen_by(path)}

    def seen(self, data: DatasetParts, protocol: str = "clean") -> Answer:
        """Whether it was made from images that a run on these data tests on; the clean protocol refuses that."""
        records, tested = self.records(data.name), TEST if protocol == "clean" else ALL_PARTS
        for place in records if protocol == "clean" else ():
            check_clean(place, records[place], data, self.remedy)
        fitted = [Seen(data.name, PARTS["clean"])] if self.is_fitted else []
        return Answer.worst(each.answer(data, tested) for each in (*fitted, *records.values()))

    def unknown(self, dataset: str, protocol: str = "clean") -> tuple[str, ...]:
        """What affects the images, or was seen in training, but cannot be known; one sentence each."""
        records = self.records(dataset) if protocol == "clean" else {}
        answers = {place: record.answer(DatasetParts(dataset), TEST) for place, record in records.items()}
        return tuple(which_images(place) for place, answer in answers.items() if answer is Answer.UNKNOWN)

    def check_fits(self, dataset: str, classes: tuple[str, ...], shape: Shape) -> Any:
        """Read its file and return what is in it, if it makes these classes and images; None if it has no file."""

    def check_plan(self, plan: IntArray) -> None:
        """Refuse more images than the generator has for a client; most make any number."""


if TYPE_CHECKING:
    from fedeas.generators.diffusion.presets import Preset
    from fedeas.generators.diffusion.weights import Weights


class Gaussian(fields.Gaussian, GeneratorSettings):
    """Makes a `GaussianGenerator`."""

    remedy = "fit it to training images alone"
    needs = "gaussian is fitted to images of all classes; fit a GaussianGenerator to some and give it"

    @property
    def is_fitted(self) -> bool:
        """Unless it comes as a file."""
        return not self.weights

    def known_form(self) -> Form | None:
        """Classes and shape of a file."""
        if not self.weights:
            return None
        made = GaussianGenerator.load(generator_weights(self.weights))
        return made.class_names or tuple(map(str, range(made.num_classes))), made.shape

    def ready(self, context: GeneratorContext) -> Generator:
        """Fit it to the official training part, or load it if it fits the dataset."""
        if self.weights:
            self.seen(DatasetParts(context.dataset), context.protocol)
            made: Generator = self.check_fits(context.dataset, context.classes, context.shape)
            return made
        data = context.images, context.labels, len(context.classes)
        return GaussianGenerator.fit(*data, self.components, self.shrinkage, dataset=context.dataset, basis=self.basis)

    def check_fits(self, dataset: str, classes: tuple[str, ...], shape: Shape) -> Any:
        """Refuse a file of other classes or shapes."""
        if not self.weights:
            return None
        made = GaussianGenerator.load(generator_weights(self.weights))
        form, wanted = _form(made.num_classes, made.shape), _form(len(classes), shape)
        if form != wanted or made.class_names not in (None, classes):
            raise InputError(
                f"generator weights {self.weights!r} make {form}, {dataset} has {wanted}, "
                f"in this order: {first_of(classes)}"
            )
        return made

    def file(self, dataset: str) -> Path | None:
        """The file of a fitted one, if it is given."""
        return generator_weights(self.weights) if self.weights else None


@dataclass(frozen=True)
class Diffusion(fields.Diffusion, GeneratorSettings):
    """Makes a `DiffusionGenerator`."""

    remedy = "train it with `fedeas generator train --protocol clean`"
    needs = "diffusion needs the name or file of its weights, as in diffusion(weights=digits)"
    entries = "network", "shape", "sampler"

    def known_form(self) -> Form | None:
        """Classes and shape of the weights' file."""
        if not self.weights:
            return None
        path = generator_weights(self.weights)
        about = description(path)
        if "shape" not in about:
            raise InputError(f"{path}: does not say which images it makes; give weights of `fedeas generator train`")
        return tuple(map(str, about.get("class_names") or ())), checked_shape(about["shape"])

    def ready(self, context: GeneratorContext) -> Generator:
        """Load it, if the weights fit the dataset and, in the clean protocol, have seen no test images."""
        from fedeas.generators.diffusion.sampling import DiffusionGenerator

        weights = self.check_fits(context.dataset, context.classes, context.shape)
        self.seen(DatasetParts(context.dataset), context.protocol)
        return DiffusionGenerator(
            weights, solver=self.solver, steps=self.steps, guidance=self.guidance, first=self.first,
            precision=self.precision, device=context.device, compiled=self.compiled,
        )  # fmt: skip

    def check_fits(self, dataset: str, classes: tuple[str, ...], shape: Shape) -> Any:
        """Refuse weights of other classes or shapes."""
        from fedeas.generators.diffusion.weights import Weights

        place = self.weights or name_of_dataset(dataset)
        weights = Weights.load(place)
        made, wanted = _form(weights.num_classes, weights.shape), _form(len(classes), shape)
        if made != wanted:
            raise InputError(f"generator weights {place!r} make {made}, {dataset} has {wanted}")
        return weights

    def file(self, dataset: str) -> Path | None:
        """The weights; by default those of the dataset."""
        return generator_weights(self.weights or name_of_dataset(dataset))


class SdTurbo(fields.SdTurbo, GeneratorSettings):
    """Makes a `TextToImage`."""

    needs = "sd-turbo needs the names of the classes; give TextToImage.load(..., class_names=...)"

    def ready(self, context: GeneratorContext) -> Generator:
        """Load it from a folder or from the Hugging Face Hub."""
        from fedeas.generators.text import TextToImage

        return TextToImage.load(
            self.model, class_names=context.classes, shape=context.shape, template=self.template, steps=self.steps,
            guidance=self.guidance, size=self.size, precision=self.precision, device=context.device,
        )  # fmt: skip

    def content(self, dataset: str) -> dict[str, str]:
        """A hash of the folder's files; empty for a model on the Hub."""
        return {"model": folder_digest(self.model)} if Path(self.model).is_dir() else {}

    def records(self, dataset: str) -> dict[str, Seen]:
        """Nobody knows which images the model was trained on."""
        return {self.model: NOT_KNOWN}

    def unknown(self, dataset: str, protocol: str = "clean") -> tuple[str, ...]:
        """The revision of a model on the Hub, and the images that the model was trained on."""
        revision = () if Path(self.model).is_dir() else (f"{self.model}: the revision that the hub serves",)
        return (*revision, *super().unknown(dataset, protocol))


@dataclass(frozen=True)
class WrapperSettings(fields.Wrapper, GeneratorSettings):
    """Settings of a generator that wraps another one."""

    of: Annotated[GeneratorSettings, fields.GENERATOR] = Diffusion()

    @property
    def is_fitted(self) -> bool:
        """Whether the other generator is."""
        return self.of.is_fitted

    def needs_data(self) -> str:
        """What the other generator needs."""
        return self.of.needs_data()

    def known_form(self) -> Form | None:
        """That of the other generator."""
        return self.of.known_form()

    def content(self, dataset: str) -> dict[str, str]:
        """That of the other generator, with "of" before each name, and its own."""
        of = {f"of {name}": value for name, value in self.of.content(dataset).items()}
        return of | super().content(dataset)

    def seen(self, data: DatasetParts, protocol: str = "clean") -> Answer:
        """The worse answer of its own and that of the other generator."""
        return Answer.worst([super().seen(data, protocol), self.of.seen(data, protocol)])

    def unknown(self, dataset: str, protocol: str = "clean") -> tuple[str, ...]:
        """That of the other generator, and its own."""
        return (*self.of.unknown(dataset, protocol), *super().unknown(dataset, protocol))

    def check_fits(self, dataset: str, classes: tuple[str, ...], shape: Shape) -> Any:
        """Refuse a file of the other generator that does not fit."""
        return self.of.check_fits(dataset, classes, shape)

    def check_plan(self, plan: IntArray) -> None:
        """Refuse more images than the other generator has for a client."""
        self.of.check_plan(plan)


@dataclass(frozen=True)
class ClassifierFiltered(WrapperSettings, fields.ClassifierFiltered):
    """Makes a `Filtered`."""

    remedy = "leave it out, and one is trained on the training part"
    needs = 'agreeing needs a trained classifier, as in agreeing(classifier="check/...safetensors")'
    file_holds = "classifier"
    entries = "architecture", "shape", "num_classes", "mean", "std"

    @property
    def is_fitted(self) -> bool:
        """Whether the other generator is, or the classifier is trained here."""
        return self.of.is_fitted or not self.classifier

    def needs_data(self) -> str:
        """What the other generator needs, and training images for a classifier if none is named."""
        return super().needs_data() if self.classifier else self.needs

    def ready(self, context: GeneratorContext) -> Generator:
        """Make the other generator, load or train the classifier, and join them."""
        from fedeas.generators.filtered import Filtered
        from fedeas.generators.quality.classifier import Classifier, kept_classifier

        if self.classifier:
            self.seen(DatasetParts(context.dataset), context.protocol)
            judge = Classifier.load(self.classifier, context.device)
        else:
            data = context.images, context.labels, len(context.classes)
            judge = kept_classifier(context.bank, *data, device=context.device)
        return Filtered(self.of.ready(context), judge)

    def file(self, dataset: str) -> Path | None:
        """The classifier, if one is named."""
        return Path(self.classifier) if self.classifier else None


@dataclass(frozen=True)
class Shared(WrapperSettings, fields.Shared):
    """Makes a `SharedPool`."""

    def check_plan(self, plan: IntArray) -> None:
        """Refuse a plan in which a client would get an image twice."""
        super().check_plan(plan)
        most = int(plan.max(initial=0))
        if self.each and most > self.each:
            raise InputError(
                f"a client needs {most} images of a class, the pool has {self.each}; set each={most}, or leave each out"
            )

    def ready(self, context: GeneratorContext) -> Generator:
        """Make the other generator, and the pool around it."""
        return SharedPool(self.of.ready(context), self.each)


@dataclass(frozen=True)
class Federated(fields.Federated, GeneratorSettings):
    """Makes a `DiffusionGenerator` or a `GaussianGenerator` from the weights that a run's clients have trained."""

    needs = "federated trains with the clients of a run; give the weights of `fedeas generator train --federated`"
    file_holds = "start"
    entries = "network", "shape", "class_names"

    of: Annotated[GeneratorSettings, fields.GENERATOR] = Diffusion()

    def ready(self, context: GeneratorContext) -> Generator:
        """Load what the clients have trained, from a start that `seen` has checked."""
        if context.trained is None:
            raise InputError(self.needs)
        weights, context = str(context.trained), replace(context, protocol="")
        of = replace(self.of, weights=weights) if isinstance(self.of, Diffusion) else Gaussian(weights=weights)
        return of.ready(context)

    def file(self, dataset: str) -> Path | None:
        """The start, if one is given."""
        return generator_weights(self.start) if self.start else None

    def seen(self, data: DatasetParts, protocol: str = "clean") -> Answer:
        """Whether the start has seen images of the run's clients or test part, under any protocol."""
        return check_start(self.start, data, self.allow_seen) if self.start else Answer.CLEAN

    def check_fits(self, dataset: str, classes: tuple[str, ...], shape: Shape) -> None:
        """Refuse a start for images of another shape."""
        self.recipe(shape)

    def recipe(self, shape: Shape) -> tuple[Preset, Weights | None]:
        """Network and recipe for images of this shape, and the weights to start from."""
        from fedeas.generators.diffusion.presets import preset, suited_to_clients
        from fedeas.generators.diffusion.weights import Weights

        start = Weights.load(self.start) if self.start else None
        chosen = preset(self.preset or suited_to_clients(shape))
        if start is not None and not self.preset:
            sampler: dict[str, Any] = {"solver": start.solver, "steps": start.steps, "guidance": start.guidance}
            chosen = replace(chosen, network=start.network, **sampler)
        if start is not None and (start.shape, start.network) != (shape, chosen.network):
            made, wanted = (" x ".join(map(str, one)) for one in (start.shape, shape))
            raise InputError(
                f"federated(start={self.start}): it makes images of {made} and the run has {wanted}, "
                f"or its network is not of preset {self.preset or 'its own'}; leave start or preset out"
            )
        warm_up = min(100, self.rounds * self.steps // 10)
        return replace(chosen, batch=self.batch, lr=self.lr, warm_up=warm_up), start


class HeldOut(fields.HeldOut, GeneratorSettings):
    """Makes `HeldOutImages`."""

    is_fitted = True  # it consists of the run's images
    needs = "held-out takes its images from the dataset of a run; give another generator"

    def ready(self, context: GeneratorContext) -> Generator:
        """Make it from the images that were held out."""
        if context.held_out is None:
            raise InputError("generator held-out needs images that no client has; set data.held_out, such as 10000")
        if self.disjoint and context.plan is None:
            raise InputError(f"{self.spec} needs the plan of all clients in one place; give held-out")
        return HeldOutImages(*context.held_out, len(context.classes), context.plan if self.disjoint else None)


class Python(fields.Python, GeneratorSettings):
    """Makes a `Custom`."""

    def ready(self, context: GeneratorContext) -> Generator:
        """Import it; its first `sample` checks it on a few addresses."""
        return load_custom(self.code, len(context.classes), context.shape)

    def content(self, dataset: str) -> dict[str, str]:
        """Its own fingerprint, or the source of its module."""
        return {"code": custom_content(self.code)}

    def records(self, dataset: str) -> dict[str, Seen]:
        """Nobody knows which images it was made from."""
        return {self.code: NOT_KNOWN}

    def unknown(self, dataset: str, protocol: str = "clean") -> tuple[str, ...]:
        """Other code and files that it depends on, and the images that it was trained on."""
        return (imported_code(self.code), *super().unknown(dataset, protocol))


def _form(classes: int, shape: Shape) -> str:
    return f"{classes} classes of {' x '.join(map(str, shape))}"


AnyGenerator = Generator | str | Callable[[IntArray, IntArray], Any]
"""A generator, its spec, or a function from labels and indices to uint8 images."""

KINDS = Gaussian, Diffusion, SdTurbo, ClassifierFiltered, Shared, HeldOut, Federated
GENERATORS: dict[str, type[GeneratorSettings]] = {kind.name(): kind for kind in KINDS}


def parse_generator(text: str) -> GeneratorSettings:
    """The settings that a spec describes.

    >>> parse_generator("gaussian(components=16)")
    Gaussian(components=16, shrinkage=0.1, weights='', basis='pca')
    """
    return fields.read_generator(text, GENERATORS, Python)


def federated_in(text: str) -> Federated | None:
    """The generator that clients must train first, also inside another one; None if there is none.

    >>> federated_in("shared(of=federated(rounds=9))").rounds
    9
    """
    settings = parse_generator(text)
    while isinstance(settings, WrapperSettings):
        settings = settings.of
    return settings if isinstance(settings, Federated) else None


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
