"""Flower's function that bundles an app without starting a process."""

from flwr.cli.build import build_fab_from_disk

__all__ = ["build_fab_from_disk"]
