"""What all settings of generators have in common, and what a generator gets from a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedeas.config.generators import GeneratorFields
from fedeas.core.arrays import IntArray
from fedeas.core.digests import json_digest
from fedeas.core.provenance import (
    ALL_PARTS,
    PARTS,
    TEST,
    Answer,
    DatasetParts,
    Seen,
    check_clean,
    seen_by,
    which_images,
)
from fedeas.core.weight_files import description, weights_digest
from fedeas.generators.base import Generator, Shape, shape_of

Form = tuple[tuple[str, ...], Shape]
"""Names of the classes, and the shape of the images."""


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
    trained: Path | None = None
    """The generator that the run's clients have trained."""
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


class GeneratorSettings(GeneratorFields):
    """A generator before it is fitted or loaded."""

    remedy: ClassVar[str] = "choose other weights"
    """What to do if the weights have seen test images."""
    needs: ClassVar[str] = ""
    """Why it cannot be made without a run's dataset, and what to give instead; empty if it can."""
    file_holds: ClassVar[str] = "weights"
    """What its file holds."""
    entries: ClassVar[tuple[str, ...]] = ()
    """Entries of the file's description that determine the images, as its tensors do."""

    @property
    def is_fitted(self) -> bool:
        """Whether it is fitted to the run's images when it is made, of which there must be some of every class."""
        return False

    def needs_data(self) -> str:
        """What it needs that no file gives; empty if it can be made without a run's dataset."""
        return self.needs

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

    def check_fits(self, dataset: str, classes: tuple[str, ...], shape: Shape) -> None:
        """Nothing to check if no file says which classes the generator makes."""

    def check_plan(self, plan: IntArray) -> None:
        """Refuse more images than the generator has for a client; most make any number."""
