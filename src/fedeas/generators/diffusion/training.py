"""Train a diffusion model to its last update or to a time limit; always leaves usable weights."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedeas.core.errors import RunError
from fedeas.core.locks import locked
from fedeas.core.weight_files import GENERATOR
from fedeas.generators.diffusion.trainer import Trainer
from fedeas.generators.diffusion.weights import Weights

STATE, LOCK = "training.safetensors", ".lock"
SAVE_SECONDS = 60.0


@dataclass(frozen=True)
class Progress:
    """Progress of a training; loss and speed are those since the last look."""

    update: int
    updates: int
    images: int
    loss: float
    images_per_second: float
    seconds: float


def train(
    trainer: Trainer,
    folder: Path,
    *,
    minutes: float = math.inf,
    provenance: dict[str, Any] | None = None,
    on_look: Callable[[Progress], None] | None = None,
    on_save: Callable[[Weights], None] | None = None,
) -> Weights:
    """Train to the last update or to the time limit, keeping state and averaged weights in the folder every minute.

    A loss or a weight that is no longer finite stops the training with the averaged weights of the last look that was
    still good. Updates come in stretches of two seconds, so that a GPU is never more than that ahead of the clock.
    """
    with locked(folder / LOCK, f"{folder}: another process is training here; wait for it, or choose another folder"):
        if (folder / STATE).exists():
            trainer.restore(folder / STATE)
        keeper = _Keeper(trainer, folder, provenance or {}, on_save)
        start, before, stretch = time.monotonic(), trainer.seconds, 1
        try:
            while trainer.update_number < trainer.updates and time.monotonic() - start < 60 * minutes:
                begun, seen = time.monotonic(), trainer.images_seen
                count = min(stretch, trainer.updates - trainer.update_number)
                trainer.loss_sum.zero_()
                for _ in range(count):
                    trainer.update()
                loss = trainer.loss_sum.item() / count  # waits for the device
                spent = time.monotonic() - begun
                stretch = max(1, min(2 * stretch, round(2 * count / spent)))
                trainer.seconds = before + time.monotonic() - start
                reached, speed = (trainer.update_number, trainer.updates), (trainer.images_seen - seen) / spent
                progress = Progress(*reached, trainer.images_seen, loss, speed, trainer.seconds)
                keeper.take(progress)
                if on_look is not None:
                    on_look(progress)
                if time.monotonic() - keeper.saved > SAVE_SECONDS:
                    keeper.save()
        except KeyboardInterrupt:
            keeper.save()
            raise
        keeper.save()
    return keeper.weights


class _Keeper:
    """Holds the last averaged weights that were finite, and saves them and the training's state in a folder."""

    def __init__(
        self, trainer: Trainer, folder: Path, provenance: dict[str, Any], on_save: Callable[[Weights], None] | None
    ) -> None:
        self.trainer, self.folder, self.provenance, self.on_save = trainer, folder, provenance, on_save
        self.weights = trainer.averaged(**provenance)
        self.saved = time.monotonic()

    def take(self, progress: Progress) -> None:
        """Take the current weights; an error if they or the loss are not finite."""
        latest = self.trainer.averaged(**self.provenance)
        if math.isfinite(progress.loss) and latest.finite:
            self.weights = latest
            return
        file, good = self.folder / GENERATOR, self.weights.provenance["updates"]
        self.weights.save(file)
        found = f"the loss is {progress.loss}" + ("" if latest.finite else ", the weights are not finite")
        message = f"update {progress.update}: {found}; lower the learning rate"
        raise RunError(f"{message}. The weights of update {good} are in {file}")

    def save(self) -> None:
        """Save state and weights."""
        self.trainer.save(self.folder / STATE)
        self.weights.save(self.folder / GENERATOR)
        if self.on_save is not None:
            self.on_save(self.weights)
        self.saved = time.monotonic()
