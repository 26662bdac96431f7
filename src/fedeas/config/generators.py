"""Settings of generators: fields, defaults and checks.

Configs can be checked early, as no generator is loaded. The kinds of `fedeas.generators` inherit from these classes and
make the generators.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar

from fedeas.core.errors import InputError
from fedeas.core.spec import (
    Described,
    Limit,
    NotNegativeSingle,
    PositiveSingle,
    number,
    own_code_named,
    read_spec,
    split_name,
    whole,
)


class GeneratorFields(Described):
    """A generator as described in a config; values beyond their limits are refused."""


GENERATOR = Limit("a generator", lambda value: isinstance(value, GeneratorFields))
MULTIPLE_OF_8 = Limit("a multiple of 8", lambda size: whole(8).holds(size) and size % 8 == 0)  # as diffusers wants it


@dataclass(frozen=True)
class Gaussian(GeneratorFields):
    """Fields of `GaussianGenerator`, which is fitted to the training part when the run starts, or read from a file."""

    components: Annotated[int, whole(1)] = 32  # dimensions of the basis
    # Least weight of the pooled covariance.
    shrinkage: Annotated[float, number("a number from 0 to 1", lambda share: 0 <= share <= 1)] = 0.1
    weights: str = ""  # a file of `GaussianGenerator.save`, which holds all other fields
    basis: Literal["pca", "dct"] = "pca"  # directions of largest variance, or cosines, the same for all images

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights and Gaussian(self.components, self.shrinkage, basis=self.basis) != Gaussian():
            raise InputError("gaussian(weights=...): components, shrinkage and basis are the file's; leave them out")


@dataclass(frozen=True)
class Diffusion(GeneratorFields):
    """Fields of `DiffusionGenerator`; weights by file or name, by default those of the run's dataset."""

    weights: str = ""
    solver: Literal["", "dpm", "dpm-snr", "ddim", "ddpm"] = ""
    steps: Annotated[int, whole(0)] = 0
    guidance: NotNegativeSingle | None = None
    first: PositiveSingle = 5.1  # minus the log of signal / noise with which dpm and dpm-snr begin
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    compiled: bool = False


@dataclass(frozen=True)
class SdTurbo(GeneratorFields):
    """Fields of `TextToImage`: an off-the-shelf model that is prompted with the names of the classes."""

    model: str = "stabilityai/sd-turbo"
    template: str = "a photo of a {}"
    steps: Annotated[int, whole(1)] = 1
    guidance: NotNegativeSingle = 0.0
    size: Annotated[int, MULTIPLE_OF_8] = 512
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"


@dataclass(frozen=True)
class Wrapper(GeneratorFields):
    """Fields of a generator that takes the images of another one."""

    of: Annotated[GeneratorFields, GENERATOR] = Diffusion()


@dataclass(frozen=True)
class ClassifierFiltered(Wrapper):
    """Fields of `Filtered`: only the images of another generator whose class a classifier confirms."""

    classifier: str = ""  # a file of `fedeas generator check`; without it one is trained on the official training part

    @classmethod
    def name(cls) -> str:
        """The name in specs, which is part of fingerprints."""
        return "agreeing"


@dataclass(frozen=True)
class Shared(Wrapper):
    """Fields of `SharedPool`: all clients take their images from one pool."""

    each: Annotated[int, whole(0)] = 0  # images of each class in the pool; with 0, as many as a client needs at most


@dataclass(frozen=True)
class Federated(Wrapper):
    """Fields of a generator that the run's clients train together before the first round; no images leave them.

    They train `of`: `diffusion(...)`, whose fields say how images are drawn, or `gaussian(...)`.
    """

    start: str = ""  # weights to start from, by file or name; by default random ones
    preset: str = ""  # of `fedeas generator train`; by default that of the start, or one that suits the images
    rounds: Annotated[int, whole(1)] = 100
    clients: Annotated[int, whole(1)] = 10  # that train in each round
    steps: Annotated[int, whole(1)] = 10  # updates of a client in a round
    batch: Annotated[int, whole(1)] = 128  # images of an update
    lr: PositiveSingle = 4e-4  # Adam's learning rate; it grows in the first updates and falls to zero in the last tenth
    # Largest decay of the mean over rounds, which is the result.
    ema: Annotated[float, number("a number from 0 to below 1", lambda decay: 0 <= decay < 1)] = 0.95
    # What travels of Adam's moments: both, means of the second one's rows and columns, or nothing.
    moments: Literal["all", "factored", "none"] = "factored"
    messages: Literal["bf16", "fp32"] = "bf16"  # the numbers in messages
    seed: Annotated[int, whole(0)] = 0  # of initial weights, chosen clients and noise; not that of the run
    allow_seen: bool = False  # accept a start that has seen images of the run's clients or test part

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.of, Diffusion | Gaussian) or self.of.weights:
            raise InputError(f"federated(of={self.of.spec}): clients train diffusion or gaussian, without weights")
        given = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        if isinstance(self.of, Gaussian) and (odd := [name for name in given if name != "of"]):
            raise InputError(f"federated(of=gaussian, {odd[0]}=...): its sums need one round; leave {odd[0]} out")


@dataclass(frozen=True)
class HeldOut(GeneratorFields):
    """Fields of `HeldOutImages`: the real images of ``data.held_out``, which no client holds."""

    # Whether no two clients get the same image, as long as there are enough. This needs the plan of all clients.
    disjoint: bool = False

    @property
    def spec(self) -> str:
        """The name alone if nothing is given; other specs always show their first field."""
        return f"{self.name()}(disjoint=true)" if self.disjoint else self.name()


@dataclass(frozen=True)
class Python(GeneratorFields):
    """The name of a user's own callable, ``python:module:name``."""

    code: str

    def __post_init__(self) -> None:
        split_name(self.code, "generator")

    @property
    def spec(self) -> str:
        """The name alone."""
        return self.code


GENERATORS: Mapping[str, type[GeneratorFields]] = {
    kind.name(): kind for kind in (Gaussian, Diffusion, SdTurbo, ClassifierFiltered, Shared, HeldOut, Federated)
}


G = TypeVar("G", bound=GeneratorFields)


def read_generator(text: str, kinds: Mapping[str, type[G]], from_own_code: Callable[[str], G]) -> G:
    """The generator that a spec describes, as one of these kinds; an error if none has this name.

    >>> read_generator("gaussian(components=16)", GENERATORS, Python)
    Gaussian(components=16, shrinkage=0.1, weights='', basis='pca')
    """
    if own := own_code_named(text, kinds, "generator"):
        return from_own_code(own)
    return read_spec(text, kinds, "generator", from_own_code=from_own_code)


@lru_cache(maxsize=1024)
def without_places(text: str) -> str:
    """The spec without names and paths of files, for use together with hashes of their content.

    >>> without_places("agreeing(of=diffusion(weights=mine, steps=9), classifier=judge)")
    'agreeing(of=diffusion(steps=9))'
    """
    return _replaced(read_generator(text, GENERATORS, Python), weights="", classifier="", start="").spec


def with_weights(text: str, place: str) -> str:
    """The spec with its generator's weights in another file; an error if it has no weights.

    >>> with_weights("shared(of=diffusion(weights=theirs, steps=9))", "mine")
    'shared(of=diffusion(weights=mine, steps=9))'
    """
    source = inner = read_generator(text, GENERATORS, Python)
    while isinstance(inner, Wrapper):
        inner = inner.of
    if not hasattr(inner, "weights"):
        raise InputError(f"generator {text} does not come as a file")
    return _replaced(source, weights=place).spec


def _replaced(source: Described, **values: str) -> Described:
    """The settings with other values of these fields, also in the settings inside, where there are such fields."""
    own = {field.name: getattr(source, field.name) for field in fields(source)}
    given: dict[str, Any] = {name: value for name, value in values.items() if name in own}
    inner = {name: _replaced(value, **values) for name, value in own.items() if isinstance(value, Described)}
    return replace(source, **given, **inner)
