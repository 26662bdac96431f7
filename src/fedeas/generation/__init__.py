"""From a plan to its images: as arrays, or as files with a manifest."""

from fedeas.generation.files import write_images
from fedeas.generation.images import SyntheticImages, generate

__all__ = ["SyntheticImages", "generate", "write_images"]
