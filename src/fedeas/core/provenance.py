"""What weights have seen: which parts of which dataset, also in the trainings that they were continued from."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas.core.arrays import IntArray
from fedeas.core.weight_files import description
from fedeas.errors import InputError

PARTS = {"clean": ("train",), "merged": ("train", "test"), "paper": ("train", "test")}
"""The parts of a dataset that are trained on, by the name of the protocol."""


@dataclass(frozen=True)
class Seen:
    """The record that a file of weights keeps.

    Args:
        dataset: its name; empty if it is not known.
        parts: of the dataset, ``train`` and ``test``; empty if they are not known.
        data: a hash of images and labels.
        start: the record of the weights that these were continued from; None if they began at random.
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
        """From `record`, by way of JSON; what cannot be read is not known."""
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
        """For a file."""
        start = None if self.start is None else self.start.record
        return {"dataset": self.dataset or None, "parts": list(self.parts), "data": self.data, "start": start}

    def seen_test_images_of(self, dataset: str) -> bool | None:
        """Whether these weights, or any that they were continued from, have seen test images; None if not known.

        Datasets are told apart by name. The name of a file does not tell what is in it, so weights that saw the test
        part of a file are taken to have seen the test images of every other dataset.

        >>> Seen("cifar100", ("train", "test")).seen_test_images_of("cifar10")
        False
        """
        answers = [one._alone(dataset) for one in self._chain()]
        return True if True in answers else None if None in answers else False

    def __str__(self) -> str:
        """In words, such as "cifar10 (train), continued from cifar100 (train)"."""
        return ", continued from ".join(one._alone_in_words for one in self._chain())

    def _chain(self) -> Iterator[Seen]:
        yield self
        if self.start is not None:
            yield from self.start._chain()

    def _alone(self, dataset: str) -> bool | None:
        other = _tells(self.dataset) and _tells(dataset) and self.dataset != dataset
        if "test" in self.parts:
            return not other
        # The training part of a file can hold another dataset's test images.
        return False if self.parts and (other or self.dataset == dataset) else None

    @property
    def _alone_in_words(self) -> str:
        return f"{self.dataset or 'unknown data'} ({' and '.join(self.parts) or 'unknown parts'})"


NOT_KNOWN = Seen()


def seen_in(about: Mapping[str, Any]) -> Seen:
    """The record in what a file says of itself; older files have dataset and protocol alone."""
    about = about.get("provenance", about)
    if not isinstance(about, Mapping):
        return NOT_KNOWN
    if "seen" in about:
        return Seen.of(about["seen"])
    return Seen.under(about.get("protocol"), about.get("dataset"), about.get("data"))


def seen_by(path: str | os.PathLike[str]) -> Seen:
    """What the weights in a file have seen."""
    return seen_in(description(path))


def check_clean(path: str | os.PathLike[str], dataset: str, remedy: str) -> None:
    """Refuse weights that have seen test images of the dataset of a run in the clean protocol."""
    seen = seen_by(path)
    if seen.seen_test_images_of(dataset):
        raise InputError(f"{path}: trained on {seen}, which a clean run on {dataset} tests on; {remedy}")


def unknown_to_be_clean(path: str | os.PathLike[str], dataset: str) -> tuple[str, ...]:
    """In words, that nobody recorded whether these weights have seen test images of the dataset; else nothing."""
    return (which_images(path),) if seen_by(path).seen_test_images_of(dataset) is None else ()


def which_images(place: str | os.PathLike[str]) -> str:
    """What is not known of weights without a record.

    >>> which_images("torchvision")
    'torchvision: which images it has seen'
    """
    return f"{place}: which images it has seen"


def data_digest(images: NDArray[np.uint8], labels: IntArray) -> str:
    """SHA-256 of images and labels."""
    digest = hashlib.sha256(np.ascontiguousarray(images).data)
    digest.update(np.ascontiguousarray(labels, dtype="<i8").data)
    return digest.hexdigest()


def _tells(dataset: str) -> bool:
    """Whether this is the name of one dataset everywhere, such as cifar10; the name of a file is not."""
    return re.fullmatch(r"[\w-]+", dataset) is not None
