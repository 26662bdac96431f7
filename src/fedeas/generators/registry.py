"""Generators by their spec in a config: ``gaussian(components=32)``, ``diffusion``, ``python:module:name``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedeas.config import generators as fields
from fedeas.core.arrays import IntArray
from fedeas.core.digests import json_digest
from fedeas.core.errors import InputError
from fedeas.core.spec import refuse_class
from fedeas.generators import kinds
from fedeas.generators.base import Generator
from fedeas.generators.custom import wrap_callable
from fedeas.generators.kinds import Federated, WrapperSettings
from fedeas.generators.settings import GeneratorContext, GeneratorSettings

AnyGenerator = Generator | str | Callable[[IntArray, IntArray], Any]
"""A generator, its spec, or a function from labels and indices to uint8 images."""

GENERATORS: dict[str, type[GeneratorSettings]] = {
    name: getattr(kinds, described.__name__) for name, described in fields.GENERATORS.items()
}


def parse_generator(text: str) -> GeneratorSettings:
    """The settings that a spec describes.

    >>> parse_generator("gaussian(components=16)")
    Gaussian(components=16, shrinkage=0.1, weights='', basis='pca')
    """
    return fields.read_generator(text, GENERATORS, kinds.Python)


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
