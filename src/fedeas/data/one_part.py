"""Datasets of which one place holds one part alone: a client its own samples, a server the test set.

A client may lack classes. A server without training data gets the normalisation of pixels from its ``.npz`` file
(`mean` and `std`), or scales pixels to -1 to 1.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedeas.core.arrays import frozen_integers
from fedeas.core.errors import InputError
from fedeas.core.files import PathLike
from fedeas.core.own_code import PREFIX
from fedeas.data.dataset import MIDDLE, Dataset
from fedeas.data.names import checked_name
from fedeas.data.npz import NpzSource
from fedeas.data.sources import load_dataset, source_of


def load_own(name: str, root: PathLike | None = None) -> Dataset:
    """Load one client's data, like `load_dataset`, but no test part is needed, and not every class."""
    name = checked_name(name)
    if name == "digits" or name.startswith(PREFIX):
        return load_dataset(name, root)
    source = source_of(name, root)
    return Dataset(name, *source.part("train").parts, has_class_names=source.has_class_names())


def as_in_run(own: Dataset, classes: tuple[str, ...], shape: tuple[int, int, int]) -> Dataset:
    """A client's own data with the classes and the channels of its run.

    Grey images are repeated in each channel of a run with colour images.
    """
    labels, shown = own.labels, ", ".join(classes)
    if own.has_class_names:
        unknown = sorted(set(own.classes) - set(classes))
        if unknown:
            raise InputError(
                f"{own.name}: class {', '.join(unknown)} is not one of the run's classes, which are {shown}; "
                "rename or remove its images"
            )
        labels = frozen_integers(np.array([classes.index(name) for name in own.classes])[labels])
    elif labels.max() >= len(classes):
        numbers = f"numbered 0 to {len(classes) - 1}; they are {shown}"
        raise InputError(f"{own.name}: label {labels.max()}: the run's classes are {numbers}")
    channels, *size = own.shape
    if size != [*shape[1:]]:
        sizes = ["{1} x {0}".format(*each) for each in (size, shape[1:])]
        raise InputError(f"{own.name}: images are {sizes[0]} pixels, the run's {sizes[1]}; resize them")
    if channels > shape[0]:
        raise InputError(f"{own.name}: images are in colour, the run's are grey; save them as grey images")
    return replace(own, images=np.broadcast_to(own.images, (len(own.images), *shape)), labels=labels, classes=classes)


def misleading_label(classes: tuple[str, ...]) -> int | None:
    """The first label whose number is the name of another class; None if there is none.

    Folders of numbers are in the order of text: label 2 is their third class, which is not the class "2".

    >>> misleading_label(("0", "1", "10", "2"))
    2
    """
    names = set(classes)
    return next((place for place, name in enumerate(classes) if str(place) in names - {name}), None)


def load_test_part(name: str, root: PathLike | None = None) -> Dataset:
    """Load a server's test set; of a training part that is there, too, only the normalisation is kept."""
    name = checked_name(name)
    source = None if name == "digits" or name.startswith(PREFIX) else source_of(name, root)
    if source is not None and not source.has_training_part():
        images, labels, no_images, no_labels, classes = source.part("test").parts
        channels = images.shape[1]
        middle = (MIDDLE,) * channels
        given = source.normalisation(channels) if isinstance(source, NpzSource) else (middle, middle)
        return Dataset(name, no_images, no_labels, images, labels, classes, normalisation=given)
    data = load_dataset(name, root) if source is None else source.whole()
    given, test = (data.channel_mean, data.channel_std), (data.test_images, data.test_labels, data.classes)
    return Dataset(name, data.images[:0], data.labels[:0], *test, test_names=data.test_names, normalisation=given)
