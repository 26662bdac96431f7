"""Bundle a Flower app without starting a process."""

from __future__ import annotations

from pathlib import Path

from flwr.cli.build import build_fab_from_disk


def bundle(folder: Path) -> bytes:
    """The app in `folder` as a bundle."""
    return build_fab_from_disk(folder)
