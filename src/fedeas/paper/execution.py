"""Runs that artefacts still need, carried out one after the other within a time limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from fedeas.config import RunConfig
from fedeas.deadline import Deadline
from fedeas.errors import FedEASError
from fedeas.store import Run

LEAST_SECONDS = 60.0
"""With less time left no further run is begun, but for the first: its first round would hardly be over."""

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
    for number, config in enumerate(configs):
        if number and deadline is not None and deadline.left < LEAST_SECONDS:
            return
        try:
            run = execute(config)
        except FedEASError as error:
            yield Outcome(config, None, str(error))
            continue
        yield Outcome(config, run)
        if not run.finished:
            return


def stays_here(config: RunConfig) -> bool:
    """Whether a paused run had better go on on this machine: its clients' states are gigabytes for a deep network."""
    return config.algorithm.partition("(")[0] in CLIENT_STATE
