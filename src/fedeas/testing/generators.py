"""The law of generators: an image is a function of its address alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedeas.core.arrays import IntArray
from fedeas.core.errors import InputError
from fedeas.generators.base import Generator, image_index


def check_generator(generator: Generator, count: int = 12) -> None:
    """Check that a generator makes uint8 images of its shape, each a function of its address alone.

    Args:
        generator: what is checked; a function of one's own becomes one through `fedeas.generators.custom.load_custom`.
        count: how many images are drawn, several times each.
    """
    assert hasattr(generator, "sample"), "no generator; of a function, fedeas.generators.custom.load_custom makes one"
    rng = np.random.default_rng(0)
    labels = rng.integers(0, generator.num_classes, count)
    index = image_index(client=3, count=count)
    images = _drawn(generator, labels, index)
    again = _drawn(generator, labels, index)
    assert np.array_equal(again, images), "images differ when the same addresses are drawn twice"
    backwards = _drawn(generator, labels[::-1].copy(), index[::-1].copy())
    assert np.array_equal(backwards[::-1], images), "images differ when the addresses come in another order"
    for place in (0, count - 1):
        alone = _drawn(generator, labels[[place]], index[[place]])
        address = f"label {labels[place]} and index {index[place]}"
        assert np.array_equal(alone[0], images[place]), f"{address}: the image differs when it is drawn alone"
    for label in (-1, generator.num_classes):
        try:
            generator.sample(np.array([label]), image_index(client=0, count=1))
        except InputError:
            continue
        raise AssertionError(f"label {label} is not refused, but there are {generator.num_classes} classes")
    assert len(generator.fingerprint) >= 16, "fingerprint must be a hash of what determines the images"
    assert generator.batch_size >= 1, f"batch_size is {generator.batch_size}; it must be 1 or more"


def _drawn(generator: Generator, labels: IntArray, index: IntArray) -> NDArray[np.uint8]:
    images = generator.sample(labels, index)
    wanted = (labels.size, *generator.shape)
    assert isinstance(images, np.ndarray), f"sample must give an array, not {type(images).__name__}"
    assert images.dtype == np.uint8, f"images must be uint8, not {images.dtype}"
    assert images.shape == wanted, f"images must be {wanted}, not {images.shape}"
    return images
