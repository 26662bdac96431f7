"""What every tracker does, trackers by name, and the numbers that they get."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedeas.core.errors import InputError, extra_for, log, reason_of
from fedeas.runs.store import Record, Run

Image = NDArray[np.uint8]
"""(height, width, channels)."""

MEASURES = ("accuracy", "test_loss", "train_loss", "gamma_hat", "generated")


class Tracker(Protocol):
    """Where the numbers of one run go. A resumed run is continued, not begun again."""

    def start(self, run: Run, settings: Mapping[str, str], first_round: int) -> None:
        """Open the run with its settings, named as on the command line; rounds from `first_round` on will follow."""

    def log(self, numbers: Mapping[str, float], round: int) -> None:
        """Take the numbers of a round."""

    def show(self, name: str, image: Image) -> None:
        """Take a picture."""

    def close(self) -> None:
        """Write what is left."""


TRACKERS = {"tensorboard": "TensorBoard", "mlflow": "MLflow", "wandb": "WeightsAndBiases"}
"""Trackers by name, which is also that of their extra, and their classes."""


def parse_tracker(text: str) -> Callable[[], Tracker]:
    """A maker of the tracker ``NAME`` or ``NAME:PLACE``; its library must be installed."""
    name, _, place = text.partition(":")
    if name not in TRACKERS:
        raise InputError(f"unknown tracker {name!r}; use {', '.join(TRACKERS)}, each with :PLACE if wanted")
    with extra_for(f"the tracker {name}", name):
        module = import_module(f"fedeas.runs.tracking.to_{name}")
    return lambda: getattr(module, TRACKERS[name])(place)


class Follower:
    """Passes the rounds of one run to its trackers; they start with the first round, when the run directory exists.

    A tracker that cannot start ends the run. One that fails later is dropped with a warning, and the run goes on.
    """

    def __init__(self, run: Run, waiting: Sequence[Tracker]) -> None:
        self.run, self.waiting = run, [*waiting]
        self.trackers, self.dropped = list[Tracker](), list[Tracker]()
        self.classes: Sequence[str] = ()

    @classmethod
    @contextmanager
    def of(cls, run: Run, makers: Sequence[Callable[[], Tracker]]) -> Iterator[Follower]:
        """Follow a run; at the end, also after an error, the trackers write what is left."""
        follower = cls(run, [make() for make in makers])
        try:
            yield follower
        finally:
            for tracker in follower.dropped:
                with suppress(Exception):  # its first failure has been shown
                    tracker.close()
            follower._tell_each(lambda tracker: tracker.close())

    def __call__(self, record: Record) -> None:
        """Pass on a round."""
        while self.waiting:
            self.classes = self.run.allocation()[0].classes or () if self.run.has_allocation else ()
            settings = {key: str(value) for key, value in self.run.config.flat.items()}
            self.waiting[0].start(self.run, settings, record["round"])
            self.trackers.append(self.waiting.pop(0))
        told = numbers(record, self.classes)
        self._tell_each(lambda tracker: tracker.log(told, record["round"]))

    def show(self, name: str, image: Image) -> None:
        """Pass on a picture, if any round was done."""
        self._tell_each(lambda tracker: tracker.show(name, image))

    def _tell_each(self, tell: Callable[[Tracker], None]) -> None:
        for tracker in list(self.trackers):
            try:
                tell(tracker)
            except Exception as error:  # each library has errors of its own
                name = type(tracker).__name__
                log.warning("the tracker %s failed and gets no more of this run: %s", name, reason_of(error))
                self.trackers.remove(tracker)
                self.dropped.append(tracker)


def numbers(record: Record, classes: Sequence[str] = ()) -> dict[str, float]:
    """The numbers of a round by name: measures, accuracy of each class, and seconds by kind.

    >>> numbers({"round": 3, "accuracy": 0.5, "class_accuracy": [0.4, None], "seconds": {"train": 2.0}}, ["cat", "dog"])
    {'accuracy': 0.5, 'class_accuracy/cat': 0.4, 'seconds/train': 2.0}
    """
    found = {name: float(record[name]) for name in MEASURES if name in record}
    for label, share in enumerate(record.get("class_accuracy", ())):
        if share is not None:
            found[f"class_accuracy/{classes[label] if label < len(classes) else label}"] = share
    return found | {f"seconds/{kind}": value for kind, value in record.get("seconds", {}).items()}
