"""Runs that artefacts still need, carried out one after the other within a time limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from fedeas.config import RunConfig
from fedeas.deadline import Deadline
from fedeas.errors import FedEASError
from fedeas.store import Run

LEAST_SECONDS = 60.0
"""With less time left no run is begun after the first: its first round would hardly be over.

After a quick run twice its time is enough.
"""

CLIENT_STATE = ("scaffold", "moon")


class Outcome(NamedTuple):
    """What came of a run: finished or paused, or why it could not be done."""

    config: RunConfig
    run: Run | None
    problem: str = ""


def carry_out(
    configs: Iterable[RunConfig], execute: Callable[[RunConfig], Run], deadline: Deadline | None = None
) -> Iterator[Outcome]:
    """Each run in turn, until one had to pause; one that cannot be done does not keep the others from it."""
    needed = 0.0
    for config in configs:
        left = math.inf if deadline is None else deadline.left
        if left < needed:
            return
        try:
            run = execute(config)
            if run.finished:
                run.summary()  # a damaged one is no result
        except FedEASError as error:
            yield Outcome(config, None, str(error))
            continue
        yield Outcome(config, run)
        if not run.finished:
            return
        if deadline is not None:
            needed = min(LEAST_SECONDS, 2 * (left - deadline.left))


def stays_here(config: RunConfig) -> bool:
    """Whether a paused run should resume on the same machine: its checkpoint holds large client states."""
    return config.algorithm.partition("(")[0] in CLIENT_STATE
