"""Train a diffusion model to its last update or to a time limit; always leaves usable weights."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedeas.core.errors import RunError
from fedeas.core.locks import locked
from fedeas.core.records import is_there
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
        if is_there(folder / STATE):
            trainer.restore(folder / STATE)
        start, before, stretch = time.monotonic(), trainer.seconds, 1
        weights, saved = trainer.averaged(**provenance or {}), start

        def save() -> None:
            trainer.save(folder / STATE)
            weights.save(folder / GENERATOR)
            if on_save is not None:
                on_save(weights)

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
                update, latest = trainer.update_number, trainer.averaged(**provenance or {})
                if not (math.isfinite(loss) and latest.finite):
                    weights.save(folder / GENERATOR)
                    found = f"the loss is {loss}" + ("" if latest.finite else ", the weights are not finite")
                    kept = f"The weights of update {weights.provenance['updates']} are in {folder / GENERATOR}"
                    raise RunError(f"update {update}: {found}; lower the learning rate. {kept}")
                weights = latest
                if on_look is not None:
                    speed = (trainer.images_seen - seen) / spent
                    on_look(Progress(update, trainer.updates, trainer.images_seen, loss, speed, trainer.seconds))
                if time.monotonic() - saved > SAVE_SECONDS:
                    save()
                    saved = time.monotonic()
        except KeyboardInterrupt:
            save()
            raise
        save()
    return weights
