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
    still good.
    """
    with locked(folder / LOCK, f"{folder}: another process is training here; wait for it, or choose another folder"):
        if (folder / STATE).exists():
            trainer.restore(folder / STATE)
        watch, keeper = _Watch(trainer, minutes), _Keeper(trainer, folder, provenance or {}, on_save)
        try:
            while trainer.update_number < trainer.updates and not watch.over:
                progress = watch.look()
                keeper.take(progress)
                if on_look is not None:
                    on_look(progress)
                keeper.save_now_and_then()
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

    def save_now_and_then(self) -> None:
        """Save if the last time is a minute ago."""
        if time.monotonic() - self.saved > SAVE_SECONDS:
            self.save()
            self.saved = time.monotonic()

    def save(self) -> None:
        """Save state and weights."""
        self.trainer.save(self.folder / STATE)
        self.weights.save(self.folder / GENERATOR)
        if self.on_save is not None:
            self.on_save(self.weights)


class _Watch:
    """Runs updates in stretches of two seconds, so that the GPU is never more than that ahead of the clock."""

    def __init__(self, trainer: Trainer, minutes: float) -> None:
        self.trainer, self.limit = trainer, 60 * minutes
        self.start = time.monotonic()
        self.before = trainer.seconds
        self.stretch = 1

    @property
    def over(self) -> bool:
        return time.monotonic() - self.start >= self.limit

    def look(self) -> Progress:
        """Run a stretch of updates and return the progress."""
        trainer, begun, seen = self.trainer, time.monotonic(), self.trainer.images_seen
        count = min(self.stretch, trainer.updates - trainer.update_number)
        trainer.loss_sum.zero_()
        for _ in range(count):
            trainer.update()
        loss = trainer.loss_sum.item() / count  # waits for the device
        spent = time.monotonic() - begun
        self.stretch = max(1, min(2 * self.stretch, round(2 * count / spent)))
        trainer.seconds = self.before + time.monotonic() - self.start
        speed = (trainer.images_seen - seen) / spent
        return Progress(trainer.update_number, trainer.updates, trainer.images_seen, loss, speed, trainer.seconds)
