"""TensorBoard: event files in a folder for each run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from fedeas.runs.store import Run
from fedeas.runs.tracking.base import Image


class TensorBoard:
    """Writes to ``PLACE/RUN``, or to ``tensorboard`` in the run directory."""

    def __init__(self, place: str) -> None:
        self.place = place

    def start(self, run: Run, settings: Mapping[str, str], first_round: int) -> None:
        """Open the event file; TensorBoard drops rounds that an earlier file has and that are done again."""
        folder = Path(self.place) / run.path.name if self.place else run.path / "tensorboard"
        self.writer: Any = SummaryWriter(str(folder), purge_step=first_round)
        rows = [("setting", "value"), ("---", "---"), *settings.items()]
        table = "\n".join(f"| {name} | {value} |" for name, value in rows)
        self.writer.add_text("settings", table, first_round)

    def log(self, numbers: Mapping[str, float], round: int) -> None:
        """Add the scalars of a round, and make them visible at once."""
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, round)
        self.writer.flush()

    def show(self, name: str, image: Image) -> None:
        """Add a picture."""
        self.writer.add_image(name, image, dataformats="HWC")

    def close(self) -> None:
        """Close the event file."""
        self.writer.close()
