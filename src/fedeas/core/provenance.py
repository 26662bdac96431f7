"""Which parts of which dataset weights were trained on, including the trainings that they continue."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas.core.arrays import IntArray
from fedeas.core.errors import InputError
from fedeas.core.files import PathLike
from fedeas.core.weight_files import description, generator_weights

PARTS = {"clean": ("train",), "merged": ("train", "test"), "paper": ("train", "test")}
"""The parts of a dataset that are trained on, by the name of the protocol."""

TEST, ALL_PARTS = ("test",), PARTS["merged"]

Labelled = tuple[NDArray[np.uint8], IntArray]
"""Images and their labels."""


class Answer(StrEnum):
    """Whether weights have seen certain images; each answer is worse than the one before."""

    CLEAN = "clean"
    UNKNOWN = "unknown"
    SEEN = "seen"

    @property
    def note(self) -> str:
        """A note for tables and reports on a run whose generator has this answer; empty if it is clean."""
        return {Answer.SEEN: "the run's images seen", Answer.UNKNOWN: "ancestors unknown"}.get(self, "")

    @staticmethod
    def worst(answers: Iterable[str]) -> Answer:
        """The worst of these answers; clean if there are none."""
        return max(map(Answer, answers), key=[*Answer].index, default=Answer.CLEAN)


@dataclass(frozen=True, eq=False)
class DatasetParts:
    """A dataset by its name and, as far as they are here, images and labels of its training and its test part."""

    name: str
    train: Labelled | None = field(default=None, repr=False)
    test: Labelled | None = field(default=None, repr=False)

    @cached_property
    def digests(self) -> dict[str, tuple[str, ...]]:
        """Parts by digest: each part alone, and the training part followed by the test part."""
        given = {part: data for part, data in (("train", self.train), ("test", self.test)) if data and len(data[1])}
        found = {_digest_of(data): (part,) for part, data in given.items()}
        return {_digest_of(*given.values()): tuple(given), **found} if given else {}


@dataclass(frozen=True)
class Seen:
    """The record of training data that a file of weights keeps."""

    dataset: str = ""  # empty if unknown
    parts: tuple[str, ...] = ()  # of the dataset, "train" and "test"; empty if unknown
    data: str | None = None  # a hash of images and labels
    start: Seen | None = None  # the record of the weights that this training continued; None for random weights

    @staticmethod
    def under(protocol: object, dataset: object, data: str | None = None, start: Seen | None = None) -> Seen:
        """What a training under this protocol sees."""
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

    def answer(self, data: DatasetParts, parts: Collection[str] = ALL_PARTS) -> Answer:
        """Whether these weights, or any that they continue, have seen images of these parts of a dataset.

        Datasets are the same if name or digest are equal. The name of a file does not tell its content: without an
        equal digest it may be any data, and its test part counts as the test part of every dataset.
        """
        return Answer.worst(one._alone(data, part) for one in self.chain for part in parts)

    def __str__(self) -> str:
        """Such as "cifar10 (train), continued from cifar100 (train)"."""
        parts = ((one.dataset or "unknown data", " and ".join(one.parts) or "unknown parts") for one in self.chain)
        return ", continued from ".join(f"{dataset} ({seen})" for dataset, seen in parts)

    @property
    def chain(self) -> Iterator[Seen]:
        """The record and those of the weights that it continues, the latest first."""
        yield self
        if self.start is not None:
            yield from self.start.chain

    def _alone(self, data: DatasetParts, part: str) -> Answer:
        """Whether this training by itself has seen images of this part."""
        # A name such as cifar10 means the same dataset everywhere; that of a file does not.
        known = all(re.fullmatch(r"[\w-]+", name) for name in (self.dataset, data.name))
        same = self.dataset == data.name
        content = data.digests.get(self.data, ()) if self.data and not (known and same) and data.digests else None
        if content or (self.parts and same and (known or content is None)):  # else a file of this name that has changed
            return Answer.SEEN if part in (content or self.parts) else Answer.CLEAN
        if self.parts and known:
            return Answer.CLEAN
        return Answer.SEEN if part == "test" and "test" in self.parts else Answer.UNKNOWN


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


def check_clean(place: PathLike, seen: Seen, data: DatasetParts, remedy: str) -> None:
    """Refuse weights that have seen test images of the dataset; for runs in the clean protocol."""
    if seen.answer(data, TEST) is Answer.SEEN:
        raise InputError(f"{place}: trained on {seen}, which a clean run on {data.name} tests on; {remedy}")


def check_start(start: PathLike, data: DatasetParts, allow_seen: bool = False) -> Answer:
    """Whether the start of a federated generator has seen images of a run's dataset; refused unless `allow_seen`."""
    seen = seen_by(generator_weights(start))
    answer = seen.answer(data)
    if answer is Answer.SEEN and not allow_seen:
        raise InputError(
            f"start {start}: trained on {seen}, so it has seen images of {data.name}, which the run trains or tests "
            "on; choose another start, or set allow_seen=true"
        )
    return answer


def refuse_unknown(place: object, dataset: str, answer: Answer) -> None:
    """Refuse an unknown answer; for ``--strict``."""
    if answer is Answer.UNKNOWN:
        raise InputError(
            f"{place}: no record tells whether its ancestors have seen images of {dataset}; choose other weights, or "
            "leave out strict"
        )


def which_images(place: PathLike) -> str:
    """The note on weights whose training data are unknown."""
    return f"{place}: which images it has seen"


def data_digest(images: NDArray[np.uint8], labels: IntArray) -> str:
    """SHA-256 of images and labels."""
    return _digest_of((images, labels))


def _digest_of(*parts: Labelled) -> str:
    """SHA-256 of the images of all parts, then of their labels."""
    digest = hashlib.sha256()
    for images, _ in parts:
        digest.update(np.ascontiguousarray(images).data)
    for _, labels in parts:
        digest.update(np.ascontiguousarray(labels, dtype="<i8").data)
    return digest.hexdigest()
