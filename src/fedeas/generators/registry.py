"""Generators by name, as a config gives them: ``gaussian(components=32)``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedeas.arrays import IntArray
from fedeas.generators.base import Generator
from fedeas.generators.gaussian import GaussianGenerator
from fedeas.spec import Described, read_spec


@dataclass(frozen=True)
class Gaussian(Described):
    """Settings of `GaussianGenerator`, which is fitted to the training part when the run begins."""

    components: int = 32
    shrinkage: float = 0.1

    def fitted(self, images: NDArray[np.uint8], labels: IntArray, num_classes: int) -> Generator:
        """The generator itself."""
        return GaussianGenerator.fit(images, labels, num_classes, components=self.components, shrinkage=self.shrinkage)


GENERATORS: dict[str, type[Gaussian]] = {Gaussian.name(): Gaussian}


def parse_generator(text: str) -> Gaussian:
    """The settings that a spec describes.

    >>> parse_generator("gaussian(components=16)")
    Gaussian(components=16, shrinkage=0.1)
    """
    return read_spec(text, GENERATORS, "generator")
