"""Class-conditional generators of synthetic images, independent of federated learning."""

from fedeas.generators.base import Generator, image_index
from fedeas.generators.gaussian import GaussianGenerator

__all__ = ["GaussianGenerator", "Generator", "image_index"]
