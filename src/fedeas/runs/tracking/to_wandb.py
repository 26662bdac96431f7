"""Weights & Biases, offline: files that ``wandb sync`` uploads later."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import wandb

from fedeas.core.files import make_folder
from fedeas.runs.store import Run
from fedeas.runs.tracking.base import Image

PROJECT = "fedeas"


class WeightsAndBiases:
    """Writes to ``PLACE/wandb``, or to ``wandb`` in the run directory, and sends nothing."""

    def __init__(self, place: str) -> None:
        self.place = place

    def start(self, run: Run, settings: Mapping[str, str], first_round: int) -> None:
        """Open an offline run; a resumed one has the same id, so that both upload to one page."""
        folder = Path(self.place) if self.place else run.path
        make_folder(folder)
        self.run = wandb.init(
            project=PROJECT, dir=str(folder), mode="offline", id=run.path.name, name=run.path.name, resume="allow",
            config=dict(settings), settings=wandb.Settings(silent=True, console="off"),
        )  # fmt: skip

    def log(self, numbers: Mapping[str, float], round: int) -> None:
        """Log the numbers of a round."""
        self.run.log(dict(numbers), step=round)

    def show(self, name: str, image: Image) -> None:
        """Log a picture."""
        self.run.log({name: wandb.Image(image[:, :, 0] if image.shape[2] == 1 else image)})

    def close(self) -> None:
        """Write the rest, and end the process that wandb keeps for it."""
        self.run.finish()
        wandb.teardown()
