"""Which parts of which dataset weights were trained on, including the trainings that they continue."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas.core.arrays import IntArray
from fedeas.core.errors import InputError
from fedeas.core.files import PathLike
from fedeas.core.weight_files import description

PARTS = {"clean": ("train",), "merged": ("train", "test"), "paper": ("train", "test")}
"""The parts of a dataset that are trained on, by the name of the protocol."""


@dataclass(frozen=True)
class Seen:
    """The record of training data that a file of weights keeps.

    Args:
        dataset: its name; empty if unknown.
        parts: of the dataset, ``train`` and ``test``; empty if unknown.
        data: a hash of images and labels.
        start: the record of the weights that this training continued; None if it started from random weights.
    """

    dataset: str = ""
    parts: tuple[str, ...] = ()
    data: str | None = None
    start: Seen | None = None

    @staticmethod
    def under(protocol: object, dataset: object, data: str | None = None, start: Seen | None = None) -> Seen:
        """What a training under this protocol sees.

        >>> Seen.under("merged", "digits").parts
        ('train', 'test')
        """
        return Seen(str(dataset or ""), PARTS.get(str(protocol), ()), data, start)

    @staticmethod
    def of(record: object) -> Seen:
        """Read what `record` wrote as JSON; parts that cannot be read are unknown."""
        if not isinstance(record, Mapping):
            return NOT_KNOWN
        data, start, parts = record.get("data"), record.get("start"), record.get("parts")
        return Seen(
            str(record.get("dataset") or ""),
            tuple(map(str, parts)) if isinstance(parts, list | tuple) else (),
            None if data is None else str(data),
            None if start is None else Seen.of(start),
        )

    @property
    def record(self) -> dict[str, Any]:
        """The record as a JSON object."""
        start = None if self.start is None else self.start.record
        return {"dataset": self.dataset or None, "parts": list(self.parts), "data": self.data, "start": start}

    def seen_test_images_of(self, dataset: str) -> bool | None:
        """Whether these weights, or any that they continue, have seen test images; None if unknown.

        Datasets are compared by name. The name of a file does not tell its content, so weights that saw the test
        part of a file count as having seen the test images of every dataset.

        >>> Seen("cifar100", ("train", "test")).seen_test_images_of("cifar10")
        False
        """
        answers = [one._seen_alone(dataset) for one in self._chain()]
        return True if True in answers else None if None in answers else False

    def __str__(self) -> str:
        """Such as "cifar10 (train), continued from cifar100 (train)"."""
        parts = ((one.dataset or "unknown data", " and ".join(one.parts) or "unknown parts") for one in self._chain())
        return ", continued from ".join(f"{dataset} ({seen})" for dataset, seen in parts)

    def _chain(self) -> Iterator[Seen]:
        yield self
        if self.start is not None:
            yield from self.start._chain()

    def _seen_alone(self, dataset: str) -> bool | None:
        """Whether this training by itself has seen test images of the dataset; None if unknown."""
        other = _is_known_name(self.dataset) and _is_known_name(dataset) and self.dataset != dataset
        if "test" in self.parts:
            return not other
        # The training part of a file may contain test images of another dataset.
        return False if self.parts and (other or self.dataset == dataset) else None


NOT_KNOWN = Seen()


def seen_in(about: Mapping[str, Any]) -> Seen:
    """The record in a file's description; older files have only dataset and protocol."""
    about = about.get("provenance", about)
    if not isinstance(about, Mapping):
        return NOT_KNOWN
    if "seen" in about:
        return Seen.of(about["seen"])
    return Seen.under(about.get("protocol"), about.get("dataset"), about.get("data"))


def seen_by(path: PathLike) -> Seen:
    """What the weights in a file have seen."""
    return seen_in(description(path))


def check_clean(path: PathLike, dataset: str, remedy: str) -> None:
    """Refuse weights that have seen test images of the dataset; for runs in the clean protocol."""
    seen = seen_by(path)
    if seen.seen_test_images_of(dataset):
        raise InputError(f"{path}: trained on {seen}, which a clean run on {dataset} tests on; {remedy}")


def unknown_to_be_clean(path: PathLike, dataset: str) -> tuple[str, ...]:
    """A note if no record tells whether these weights have seen test images of the dataset; else nothing."""
    return (which_images(path),) if seen_by(path).seen_test_images_of(dataset) is None else ()


def which_images(place: PathLike) -> str:
    """The note on weights whose training data are unknown.

    >>> which_images("torchvision")
    'torchvision: which images it has seen'
    """
    return f"{place}: which images it has seen"


def data_digest(images: NDArray[np.uint8], labels: IntArray) -> str:
    """SHA-256 of images and labels."""
    digest = hashlib.sha256(np.ascontiguousarray(images).data)
    digest.update(np.ascontiguousarray(labels, dtype="<i8").data)
    return digest.hexdigest()


def _is_known_name(dataset: str) -> bool:
    """Whether this names the same dataset everywhere, as cifar10 does and a file's name does not."""
    return re.fullmatch(r"[\w-]+", dataset) is not None
