"""Weights by name: ``NAME.safetensors`` in the folder ``weights`` of a checkout, or among those of the package."""

from __future__ import annotations

import os
from pathlib import Path

SUFFIX = ".safetensors"
CHECKOUT = Path("weights")
PRETRAINED = "-pretrained"  # after the name of the dataset that a classifier was trained on


def is_name(place: str | os.PathLike[str]) -> bool:
    """Whether this names weights, rather than being the path of a file: no suffix and no folder.

    >>> [is_name(place) for place in ("cifar10", "cifar10.safetensors", "weights/cifar10")]
    [True, False, False]
    """
    path = Path(place)
    return not path.suffix and len(path.parts) <= 1


def named_file(name: str, *own: Path) -> Path | None:
    """The file of this name from the first folder that has it: the package's `own`, then the checkout's."""
    files = (folder / f"{name}{SUFFIX}" for folder in (*own, CHECKOUT))
    return next((file for file in files if file.exists()), None)


def known_names(*own: Path) -> list[str]:
    """All that could be named, in order."""
    return sorted(file.stem for folder in (*own, CHECKOUT) for file in folder.glob(f"*{SUFFIX}"))
