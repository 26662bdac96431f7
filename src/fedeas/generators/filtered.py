"""Quality control: keep only those images of a generator in which a classifier sees the requested class.

Image j of a client and class is the j-th of the generator's images 0, 1, 2, ... of that client and class with which the
classifier agrees. So it is still a function of its address, whatever is drawn together with it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from fedeas.core.arrays import ByteArray, IntArray, json_digest
from fedeas.core.errors import InputError, RunError
from fedeas.generators.base import (
    Generator,
    GeneratorWrapper,
    checked_address,
    client_of,
    described,
    image_index,
    number_of,
)

if TYPE_CHECKING:
    from fedeas.generators.quality.classifier import Classifier

Address = tuple[int, int]  # class and index

Stream = tuple[int, int]  # class and client: the generator's images of both, in order

FORMAT = "fedeas-filtered-1"

LIMIT = 50  # most raw images that a class may need for each image kept

PATIENCE = 10  # a class is given up only after `PATIENCE` times `LIMIT` images: fewer say little about it


class Filtered(GeneratorWrapper[Generator]):
    """A generator whose images a classifier agrees with.

    Each image costs 1 / agreement raw images. Request many at once, of several classes and clients: a generator that
    pads its batches takes as long for the last few images as for a full batch.

    The classifier has the same classes and shape; the class of an image must not depend on the rest of its batch.
    """

    def __init__(self, generator: Generator, classifier: Classifier) -> None:
        check_same_images(generator, classifier)
        super().__init__(generator)
        self.classifier = classifier
        self._drawn = Counter[Stream]()  # images judged so far
        self._kept = defaultdict[Stream, list[int]](list)  # indices of those with which the classifier agrees
        self._judged, self._agreed = (np.zeros(generator.num_classes, dtype=np.int64) for _ in range(2))
        self._unused: dict[Address, ByteArray] = {}  # accepted but not requested yet, by the generator's address

    @property
    def description(self) -> str:
        """One readable line."""
        return f"{described(self.generator)}, confirmed by a classifier"

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the fingerprints of generator and classifier."""
        return json_digest([FORMAT, self.generator.fingerprint, self.classifier.fingerprint])

    def sample(self, labels: ArrayLike, index: ArrayLike) -> ByteArray:
        """The images of these addresses; each depends on its own address alone, not on earlier requests."""
        classes, numbers = checked_address(labels, index, self.num_classes)
        streams = list(zip(classes.tolist(), client_of(numbers).tolist(), strict=True))
        places = number_of(numbers).tolist()
        self._judge_enough(streams, places)
        raw = [(stream[0], self._kept[stream][place]) for stream, place in zip(streams, places, strict=True)]
        images = self._images(raw)
        for address in raw:
            self._unused.pop(address, None)
        for address in list(self._unused)[: -self.batch_size]:  # the oldest; they can be drawn again
            del self._unused[address]
        return images

    def _judge_enough(self, requested: list[Stream], places: list[int]) -> None:
        """Judge raw images of all streams together until each has as many accepted images as requested."""
        wanted = Counter[Stream]()
        for stream, place in zip(requested, places, strict=True):
            wanted[stream] = max(wanted[stream], place + 1)
        while short := wanted - Counter({stream: len(self._kept[stream]) for stream in wanted}):
            streams: list[Stream] = []  # of each raw image; those of a stream come in order, so that they are counted
            indices: list[IntArray] = []
            for stream, missing in short.items():
                label, client = stream
                rate = float((self._agreed[label] + 1) / (self._judged[label] + 1))
                likely = (missing + 2 * math.sqrt(missing * (1 - rate))) / rate  # two standard deviations more
                draws = min(math.ceil(likely), missing * LIMIT)
                streams += [stream] * draws
                indices.append(image_index(client, draws, start=self._drawn[stream]))
            index, start = np.concatenate(indices), 0
            while start < len(streams):
                stop = start + self.batch_size  # read each time: a generator that runs out of memory lowers it
                self._judge(streams[start:stop], index[start:stop])
                start = stop

    def _judge(self, streams: list[Stream], index: IntArray) -> None:
        labels = np.array([label for label, _ in streams])
        images = self.generator.sample(labels, index)
        agrees = self.classifier.predict(images) == labels
        for stream, number, image, good in zip(streams, index.tolist(), images, agrees.tolist(), strict=True):
            self._drawn[stream] += 1
            if good:
                self._kept[stream].append(number)
                self._unused[stream[0], number] = image.copy()
        self._judged += np.bincount(labels, minlength=self.num_classes)
        self._agreed += np.bincount(labels[agrees], minlength=self.num_classes)
        for label in np.unique(labels):
            judged, agreed = self._judged[label], self._agreed[label]
            if judged >= PATIENCE * LIMIT and judged > LIMIT * agreed:
                raise RunError(
                    f"class {label}: the classifier agrees with {agreed:,} of {judged:,} generated images, fewer than "
                    f"one in {LIMIT}; train the generator further"
                )

    def _images(self, raw: list[Address]) -> ByteArray:
        """The generator's images of these addresses; images that were dropped are drawn again, but not judged."""
        gone = list(dict.fromkeys(address for address in raw if address not in self._unused))
        found = dict(self._unused)
        if gone:
            labels, index = np.array(gone, dtype=np.int64).T
            found |= zip(gone, self.generator.sample(labels, index), strict=True)
        return np.stack([found[address] for address in raw]) if raw else np.empty((0, *self.shape), dtype=np.uint8)


def check_same_images(generator: Generator, classifier: Classifier) -> None:
    """Refuse a classifier of other classes or of images of another shape."""
    if classifier.num_classes != generator.num_classes:
        ours, theirs = generator.num_classes, classifier.num_classes
        raise InputError(f"the generator has {ours} classes, the classifier {theirs}; they are of different datasets")
    if tuple(classifier.shape) != tuple(generator.shape):
        ours_, theirs_ = tuple(generator.shape), tuple(classifier.shape)
        raise InputError(f"the generator's images are {ours_}, the classifier's {theirs_}; they must be the same")
