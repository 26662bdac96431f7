"""Generators of one's own: ``python:package.module:name`` names a function, a generator object or what makes one."""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedeas.core.arrays import IntArray, json_digest
from fedeas.core.errors import InputError
from fedeas.core.spec import code, failed, find, in_one_line, sources
from fedeas.generators.base import Generator, Images, checked_address, checked_shape

FORMAT = "fedeas-custom-1"  # names what the fingerprint is made of; part of it

BATCH_SIZE = 256
TRIED = 3  # how many addresses are drawn twice before the first images are handed out


@dataclass(eq=False)
class Custom:
    """A user's function ``(labels, index) -> uint8 array`` as a generator; see `load_custom`.

    Each answer is checked, and before the first one the law is: image i must be a function of
    ``(labels[i], index[i])`` alone. The function gets at most `batch_size` addresses at once, and never none.
    """

    spec: str
    num_classes: int
    shape: tuple[int, int, int]
    thing: Any = field(repr=False)  # what the spec names, or what that made: the function, or an object with a `sample`
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
        content = code(self.spec, self.thing, self.sources)
        return json_digest([FORMAT, self.spec, self.num_classes, self.shape, content])

    def sample(self, labels: ArrayLike, index: ArrayLike) -> Images:
        """The images of these addresses, as the function gives them."""
        classes, numbers = checked_address(labels, index, self.num_classes)
        if classes.size and not self._lawful:
            # Only addresses that were asked for, because a collection of images need not have others: each alone, then
            # all in one batch from first to last and back.
            count = min(TRIED, classes.size)
            alone = np.concatenate([self._in_batches(classes[i : i + 1], numbers[i : i + 1]) for i in range(count)])
            to_and_fro = np.append(np.arange(count), np.arange(count)[::-1])
            together = self._in_batches(classes[to_and_fro], numbers[to_and_fro])
            if (differing := (together != alone[to_and_fro]).any(axis=(1, 2, 3))).any():
                first = to_and_fro[differing.argmax()]
                raise InputError(
                    f"{self.spec} gave two images for one address, label {classes[first]} and index {numbers[first]}; "
                    "seed by (label, index), not by call order"
                )
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
            wanted = images[rows].shape
            try:
                given = self._function(labels[rows].copy(), index[rows].copy())
            except Exception as error:
                raise failed(self.spec, error) from error
            try:
                made = np.asarray(given)
            except Exception as error:  # ragged lists, tensors on a GPU and whatever else is no array
                found = f"its answer is no array ({in_one_line(error)})"
                raise InputError(f"{self.spec} must give uint8 {wanted}; {found}") from error
            if made.dtype != np.uint8 or made.shape != wanted:
                raise InputError(f"{self.spec} must give uint8 {wanted}, not {made.dtype} {made.shape}")
            images[rows] = made
        return images


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
    module, named = find(spec, "generator")
    thing = _made(named, spec)
    return Custom(spec, num_classes, checked_shape(shape), thing, sources(spec, module, named, thing))


def wrap_callable(thing: Any, num_classes: int, shape: tuple[int, int, int]) -> Custom:
    """A function of the caller's own, or an object with a `sample`, as a generator; see `load_custom` for its laws."""
    name = getattr(thing, "__qualname__", type(thing).__qualname__)
    home = sys.modules.get(getattr(thing, "__module__", None) or "")
    spec = f"{getattr(thing, '__module__', '')}:{name}"
    return Custom(spec, num_classes, shape, thing, () if home is None else sources(spec, home, thing))


def custom_content(spec: str) -> str:
    """A hash of what stands for the code of ``python:module:name``, by the rule of `Custom.fingerprint`.

    A class, or a function without arguments, is called unless it has a `fingerprint` itself.
    """
    spec = spec.strip()
    module, named = find(spec, "generator")
    own = isinstance(getattr(named, "fingerprint", None), str)
    thing = named if own else _made(named, spec)
    return json_digest([FORMAT, code(spec, thing, sources(spec, module, named, thing))])


def _made(thing: Any, spec: str) -> Any:
    """The thing itself, or what it makes if it is a class or a function without arguments."""
    if not isinstance(thing, type) and not (inspect.isfunction(thing) and not inspect.signature(thing).parameters):
        return thing
    try:
        return thing()
    except Exception as error:
        raise failed(spec, error) from error
