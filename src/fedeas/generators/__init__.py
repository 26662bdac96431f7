"""Class-conditional generators of synthetic images, independent of federated learning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedeas.generators.base import Generator, image_index

if TYPE_CHECKING:
    from fedeas.generators.gaussian import GaussianGenerator as GaussianGenerator

__all__ = ["GaussianGenerator", "Generator", "image_index"]


def __getattr__(name: str) -> Any:
    """The generator that reads safetensors is loaded when it is asked for: planning does without that package."""
    if name != "GaussianGenerator":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fedeas.generators.gaussian import GaussianGenerator

    return GaussianGenerator
