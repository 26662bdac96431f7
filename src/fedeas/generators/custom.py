"""Generators of one's own: ``python:package.module:name`` names a function, a generator object or what makes one."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, reduce
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas.core.arrays import IntArray
from fedeas.errors import InputError, RunError, SpecError
from fedeas.generators.base import Generator, checked_address

Images = NDArray[np.uint8]

FORMAT = "fedeas-custom-1"
"""Names what the fingerprint is made of; part of it."""

PREFIX = "python:"
BATCH_SIZE = 256
TRIED = 3
"""How many addresses are drawn twice before the first images are handed out."""

_imported_sources: WeakKeyDictionary[ModuleType, tuple[Any, str]] = WeakKeyDictionary()
"""What a module's file was when it was first used here, with the ``__spec__`` that it had."""

_DOTTED = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_SPEC = re.compile(rf"{PREFIX}(?P<module>{_DOTTED}):(?P<name>{_DOTTED})")


@dataclass(eq=False)
class Custom:
    """A user's function ``(labels, index) -> uint8 array`` as a generator; see `load_custom`.

    Each answer is checked, and before the first one the law is: image i must be a function of
    ``(labels[i], index[i])`` alone. The function gets at most `batch_size` addresses at once, and never none.
    """

    spec: str
    num_classes: int
    shape: tuple[int, int, int]
    thing: Any = field(repr=False)
    """What the spec names, or what that made: the function, or an object with a `sample`."""
    sources: tuple[str, ...] = field(repr=False)
    """Hashes of the files that it is named and defined in; empty if it has none."""
    _lawful: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        if not callable(self._function):
            raise InputError(f"{self.spec} is of type {type(self.thing).__name__}; name a function or a generator")
        for what in ("num_classes", "shape"):
            wanted = getattr(self, what)
            if getattr(self.thing, what, wanted) != wanted:
                raise InputError(f"{self.spec} has {what} {getattr(self.thing, what)}, but the data have {wanted}")

    @property
    def batch_size(self) -> int:
        """The function's own `batch_size`, if it has one."""
        size = getattr(self.thing, "batch_size", BATCH_SIZE)
        if not isinstance(size, int) or size < 1:
            raise InputError(f"{self.spec}: its batch_size must be a whole number from 1 on, not {size!r}")
        return size

    @property
    def description(self) -> str:
        """One line: the spec."""
        return self.spec

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of name, classes, shape and either the function's `fingerprint` or its module's source.

        A change in code that the module imports, or in a file that it reads, is not noticed: let the function have a
        `fingerprint` attribute then, text that changes when its images do.
        """
        code = _code(self.spec, self.thing, self.sources)
        determining = [FORMAT, self.spec, self.num_classes, self.shape, code]
        return hashlib.sha256(json.dumps(determining).encode()).hexdigest()

    def sample(self, labels: ArrayLike, index: ArrayLike) -> Images:
        """The images of these addresses, as the function gives them."""
        classes, numbers = checked_address(labels, index, self.num_classes)
        if classes.size and not self._lawful:
            self._try(classes[:TRIED], numbers[:TRIED])
            self._lawful = True
        return self._in_batches(classes, numbers)

    @property
    def _function(self) -> Callable[[IntArray, IntArray], Any]:
        function: Callable[[IntArray, IntArray], Any] = getattr(self.thing, "sample", self.thing)
        return function

    def _in_batches(self, labels: IntArray, index: IntArray) -> Images:
        """All answers in one array of their own: the function may use its arrays again, and write to those it gets."""
        images = np.empty((labels.size, *self.shape), dtype=np.uint8)
        for start in range(0, labels.size, self.batch_size):
            rows = slice(start, start + self.batch_size)
            images[rows] = self._answer(labels[rows].copy(), index[rows].copy())
        return images

    def _answer(self, labels: IntArray, index: IntArray) -> Images:
        wanted = (labels.size, *self.shape)
        try:
            given = self._function(labels, index)
        except Exception as error:
            raise _failed(self.spec, error) from error
        try:
            images = np.asarray(given)
        except Exception as error:  # ragged lists, tensors on a GPU and whatever else is no array
            raise InputError(
                f"{self.spec} must give uint8 {wanted}; its answer is no array ({_told(error)})"
            ) from error
        if images.dtype != np.uint8 or images.shape != wanted:
            raise InputError(f"{self.spec} must give uint8 {wanted}, not {images.dtype} {images.shape}")
        return images

    def _try(self, labels: IntArray, index: IntArray) -> None:
        """Some addresses, each alone, then in one batch from first to last and back.

        Only addresses that were asked for: a collection of images need not have others.
        """
        alone = np.concatenate([self._in_batches(labels[i : i + 1], index[i : i + 1]) for i in range(labels.size)])
        to_and_fro = np.append(np.arange(labels.size), np.arange(labels.size)[::-1])
        together = self._in_batches(labels[to_and_fro], index[to_and_fro])
        differing = (together != alone[to_and_fro]).any(axis=(1, 2, 3))
        if differing.any():
            first = to_and_fro[differing.argmax()]
            raise InputError(
                f"{self.spec} gave two images for one address, label {labels[first]} and index {index[first]}; "
                "seed by (label, index), not by call order"
            )


def load_custom(spec: str, num_classes: int, shape: tuple[int, int, int]) -> Generator:
    """The generator that ``python:module:name`` names; modules in the current folder are found too.

    The name is that of one of these:

    - a function of two int64 arrays, labels and index, that gives the images as uint8 (N, *shape), image i a function
      of ``labels[i]`` and ``index[i]`` alone, as with ``numpy.random.default_rng((label, index))``;
    - an object with such a function as its `sample`;
    - a class, or a function without arguments, that makes one of both.

    Optional attributes of it: `batch_size`, how many addresses it gets at once (256), and `fingerprint`, text that
    changes when its images do (else the source of its module stands for it).
    """
    spec = spec.strip()
    module, named = _found(spec)
    thing = _made(named, spec)
    channels, height, width = map(int, shape)
    return Custom(spec, num_classes, (channels, height, width), thing, _sources(spec, module, named, thing))


def custom_content(spec: str) -> str:
    """A hash of what stands for the code of ``python:module:name``, by the rule of `Custom.fingerprint`.

    A class, or a function without arguments, is called unless it has a `fingerprint` itself.
    """
    spec = spec.strip()
    module, named = _found(spec)
    own = isinstance(getattr(named, "fingerprint", None), str)
    thing = named if own else _made(named, spec)
    code = _code(spec, thing, _sources(spec, module, named, thing))
    return hashlib.sha256(json.dumps([FORMAT, code]).encode()).hexdigest()


def _found(spec: str) -> tuple[ModuleType, Any]:
    """The module of a spec and what it calls by the name."""
    module_name, name = check_custom(spec)
    module = _imported(module_name, spec)
    try:
        return module, reduce(getattr, name.split("."), module)
    except AttributeError:
        raise InputError(f"{spec}: module {module_name} has no {name}") from None


def _code(spec: str, thing: Any, sources: tuple[str, ...]) -> list[str]:
    """What stands for the code: the thing's own fingerprint, or the hashes of its files."""
    own = getattr(thing, "fingerprint", None)
    if own is not None and not (isinstance(own, str) and own):
        raise InputError(f"{spec}: its fingerprint must be text, not {own!r}")
    if own is None and not sources:
        raise InputError(f"{spec} has no source file; give it a fingerprint attribute")
    return list(sources) if own is None else [own]


def _sources(spec: str, module: ModuleType, *things: Any) -> tuple[str, ...]:
    """Hashes of the files that these things are named and defined in; none if one of them has no file."""
    homes = (sys.modules.get(getattr(thing, "__module__", None) or module.__name__, module) for thing in things)
    hashes = [_source(spec, own) for own in dict.fromkeys((module, *homes))]
    return tuple(own for own in hashes if own) if all(hashes) else ()


def _source(spec: str, module: ModuleType) -> str | None:
    """The hash of a module's file, if that is still what this process has imported.

    A module that is reloaded has a new ``__spec__``.
    """
    try:
        now = hashlib.sha256(Path(str(module.__file__)).read_bytes()).hexdigest()
    except (AttributeError, OSError):
        return None
    loaded, before = _imported_sources.get(module, (None, now))
    if loaded is module.__spec__ and before != now:
        raise InputError(f"{spec}: {module.__file__} has changed since it was imported; restart to use what it is now")
    _imported_sources[module] = module.__spec__, now
    return now


def check_custom(spec: str) -> tuple[str, str]:
    """Module and name of ``python:module:name``; an error if the spec is not of that form."""
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise SpecError(f"generator spec {spec!r}: expected {PREFIX}module:name, as in {PREFIX}package.module:function")
    return match["module"], match["name"]


def _imported(module: str, spec: str) -> ModuleType:
    try:
        with _current_folder_first():
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise _not_imported(module, spec, error) from error  # something that the module itself imports
        raise InputError(f"{spec}: no module {error.name} in {Path.cwd()} nor among the installed ones") from None
    except Exception as error:  # a user's module can fail in any way
        raise _not_imported(module, spec, error) from error


@contextmanager
def _current_folder_first() -> Iterator[None]:
    """As ``python -m`` has it, and only for now; what a module itself adds to the path stays."""
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    importlib.invalidate_caches()  # the file may have been written a moment ago
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _made(thing: Any, spec: str) -> Any:
    """The thing itself, or what it makes if it is a class or a function without arguments."""
    if not isinstance(thing, type) and not (inspect.isfunction(thing) and not inspect.signature(thing).parameters):
        return thing
    try:
        return thing()
    except Exception as error:
        raise _failed(spec, error) from error


def _failed(spec: str, error: Exception) -> RunError:
    return RunError(f"{spec} failed with {_told(error)}")


def _not_imported(module: str, spec: str, error: Exception) -> InputError:
    return InputError(f"{spec}: importing {module} failed with {_told(error)}")


def _told(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
