"""The protocol of a generator, and the address (class, index) that determines an image and its noise.

Every policy, setting and run asks for images by address, so that all of them use the same images and a client
needs only its own number to find its images.
"""

import hashlib
import json
import operator
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from statistics import NormalDist
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas.core.arrays import ByteArray, FloatArray, IntArray, frozen
from fedeas.core.errors import InputError

CLIENT_BITS = 32  # an index is ``(client << 32) + j``

Images = ByteArray  # (N, channels, height, width)

Shape = tuple[int, int, int]  # channels, height and width of an image

Index = TypeVar("Index", int, IntArray)  # one index or an array of indices

NOISE_STEPS = 2**12  # noise is in whole multiples of 1 / NOISE_STEPS, always fewer than 2**15 of them

# The increment and the multipliers of SplitMix64, which relies on 64-bit numbers wrapping around.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


class Generator(Protocol):
    """A source of labelled images.

    Law: image i is a function of the generator and of ``(labels[i], index[i])`` alone, down to the last bit, whatever
    batch it is drawn in.
    """

    @property
    def num_classes(self) -> int:
        """C; labels are 0 to C - 1."""

    @property
    def shape(self) -> Shape:
        """Channels, height and width of its images."""

    @property
    def batch_size(self) -> int:
        """How many images it makes at once; a bank stores images after each batch."""

    @property
    def fingerprint(self) -> str:
        """Hex hash of what determines the images: weights, sampler settings and precision."""

    def sample(self, labels: IntArray, index: IntArray) -> Images:
        """The images of these addresses, shaped (N, channels, height, width)."""


Wrapped = TypeVar("Wrapped", bound=Generator)


class GeneratorWrapper(Generic[Wrapped]):
    """A generator that wraps another one, with its classes, shape, batch size and, unless replaced, fingerprint."""

    def __init__(self, generator: Wrapped) -> None:
        self.generator = generator
        self.num_classes, self.shape = generator.num_classes, generator.shape

    @property
    def batch_size(self) -> int:
        """How many images are made at once."""
        return self.generator.batch_size

    @property
    def fingerprint(self) -> str:
        """The other generator's fingerprint."""
        return self.generator.fingerprint


def described(generator: Generator) -> str:
    """One line about a generator: its `description` if it has one, else the name of its class."""
    return str(getattr(generator, "description", "")) or type(generator).__name__


def fingerprint_of(settings: object, arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 of settings, as JSON, and of arrays with their names and shapes."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for name, array in arrays.items():
        digest.update(f"{name} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def shape_of(images: Images) -> Shape:
    """The shape of each of these images."""
    _, channels, height, width = images.shape
    return channels, height, width


def checked_shape(shape: Sequence[int]) -> Shape:
    """The shape as whole numbers, if it is one of an image."""
    with suppress(TypeError, ValueError):
        channels, height, width = map(operator.index, shape)
        if min(channels, height, width) > 0:
            return channels, height, width
    raise InputError(f"shape must be channels, height and width, such as (3, 32, 32), not {shape!r}")


def image_index(client: int, count: int, start: int = 0) -> IntArray:
    """Indices of a client's images of one class, from its `start`-th on; j-th of client k: ``(k << 32) + j``.

    >>> image_index(client=1, count=3) - (1 << 32)
    array([0, 1, 2])
    """
    if not 0 <= client < 2 ** (63 - CLIENT_BITS):
        raise InputError(f"client must be between 0 and {2 ** (63 - CLIENT_BITS) - 1:,}, not {client}")
    if start < 0 or count < 0 or start + count > 2**CLIENT_BITS:
        raise InputError(f"images {start:,} to {start + count:,} are not all between 0 and {2**CLIENT_BITS:,}")
    return np.arange(start, start + count, dtype=np.int64) + (client << CLIENT_BITS)


def client_of(index: Index) -> Index:
    """The client that an index belongs to."""
    return index >> CLIENT_BITS


def number_of(index: Index) -> Index:
    """The number of an image among the client's images of its class, from 0.

    >>> number_of((7 << 32) + 5)
    5
    """
    return index & ((1 << CLIENT_BITS) - 1)


def plan_addresses(client: int, row: IntArray) -> tuple[IntArray, IntArray]:
    """Labels and indices of the images that a client's row of the plan asks for, class by class.

    >>> labels, index = plan_addresses(client=1, row=np.array([2, 0, 1]))
    >>> labels, number_of(index)
    (array([0, 0, 2]), array([0, 1, 0]))
    """
    index = [image_index(client, int(count)) for count in row]
    return np.repeat(np.arange(row.size), row), np.concatenate(index)


def checked_address(labels: ArrayLike, index: ArrayLike, num_classes: int) -> tuple[IntArray, IntArray]:
    """Labels and indices as int64; an error names the first bad one."""
    classes, numbers = _whole_list("labels", labels), _whole_list("index", index)
    if classes.size != numbers.size:
        raise InputError(f"{classes.size:,} labels but {numbers.size:,} indices; give one of each for every image")
    _refuse((classes < 0) | (classes >= num_classes), classes, f"label {{}} is not between 0 and {num_classes - 1}")
    _refuse(numbers < 0, numbers, "index {} is below 0; use image_index(client, count)")
    return classes, numbers


def checked_training(
    images: Images, labels: ArrayLike, num_classes: int, names: tuple[str, ...] | None = None
) -> IntArray:
    """The labels as int64, if images, labels and names match and every class has an image."""
    if images.dtype != np.uint8 or images.ndim != 4 or not images.size:
        raise InputError(f"images must be uint8 of (N, channels, height, width), not {images.dtype} {images.shape}")
    classes, _ = checked_address(labels, np.arange(len(images)), num_classes)
    if names is not None and len(names) != num_classes:
        raise InputError(f"{len(names)} class names for {num_classes} classes; give one for each")
    check_full(np.bincount(classes, minlength=num_classes), names)
    return classes


def check_full(counts: IntArray, names: Sequence[str] | None = None) -> None:
    """Refuse a class without images."""
    empty = counts < 1
    if empty.any():
        first = int(empty.argmax())
        name = str(first) if names is None else f"{first} ({names[first]})"
        raise InputError(f"class {name} has no images; give at least one of each class")


def address_noise(labels: IntArray, index: IntArray, count: int) -> FloatArray:
    """The first `count` standard normal numbers of each address, in whole multiples of 1 / `NOISE_STEPS`.

    A counter-based generator in integer arithmetic: SplitMix64 (Steele, Lea, Flood 2014) hashes (class, index, counter)
    to 64 bits, and each 16 of them select a quantile of the normal distribution. So every number is a function of its
    address and position, the same on every machine.

    >>> together = address_noise(np.array([7, 3]), np.array([0, 5]), 10)
    >>> bool((address_noise(np.array([3]), np.array([5]), 10) == together[1]).all())
    True
    """
    words = -(-count // 4)  # four numbers to a word of 64 bits
    counter = np.arange(1, words + 1, dtype=np.uint64) * _GOLDEN
    bits = _splitmix(noise_keys(labels, index)[:, None] + counter).astype("<u8", copy=False)  # always little-endian
    return normal_quantiles().take(bits.view("<u2")[:, :count])


def noise_keys(labels: IntArray, index: IntArray) -> NDArray[np.uint64]:
    """The first state of each address's noise stream."""
    return _splitmix(_splitmix(labels.astype(np.uint64) + _GOLDEN) + index.astype(np.uint64))


def _splitmix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's output function. It is one to one, so that all indices of a class have different keys."""
    mixed = (state ^ (state >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


@cache
def normal_quantiles() -> FloatArray:
    """The middle of each of 2**16 equally likely slices; rounded, so that they are the same on every machine."""
    upper = [NormalDist().inv_cdf((slice_ + 0.5) / 2**16) for slice_ in range(2**15, 2**16)]
    steps = np.rint(np.array(upper) * NOISE_STEPS)
    return frozen(np.concatenate([-steps[::-1], steps]) / NOISE_STEPS)


def _whole_list(name: str, values: ArrayLike) -> IntArray:
    array = np.asarray(values)
    if array.ndim != 1:
        raise InputError(f"{name} must be a list of whole numbers, one for each image, not {array.ndim}-dimensional")
    if array.size and array.dtype.kind not in "iu":
        raise InputError(f"{name} must be a list of whole numbers, such as [0, 2, 1], not of {array[:1].tolist()[0]!r}")
    return array.astype(np.int64, copy=False)


def _refuse(bad: NDArray[np.bool_], values: NDArray[Any], message: str) -> None:
    if bad.any():
        raise InputError(message.format(values[bad.argmax()]))
