"""Where synthetic images come from: class-conditional generators, which know nothing of federated learning."""

from __future__ import annotations

from fedeas.generators.base import Generator, image_index
from fedeas.generators.gaussian import GaussianGenerator

__all__ = ["GaussianGenerator", "Generator", "image_index"]
