"""Make runs one after the other within a time limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from fedeas.config import RunConfig
from fedeas.core.deadline import Deadline
from fedeas.core.errors import FedEASError, InputError
from fedeas.runs.accuracy_curves import RoundRange
from fedeas.runs.store import Run

LEAST_SECONDS = 60.0
"""With less time left, no further run is started: it would hardly finish its first round.

After a quick run, twice its time is enough.
"""

CLIENT_STATE = ("scaffold", "moon")


class RunOutcome(NamedTuple):
    """The result of a run: finished, paused, or failed with a problem."""

    config: RunConfig
    run: Run | None
    problem: str = ""


def carry_out(
    configs: Iterable[RunConfig], execute: Callable[[RunConfig], Run], deadline: Deadline | None = None
) -> Iterator[RunOutcome]:
    """Make each run in turn, until one pauses; a run that fails does not stop the others."""
    needed = 0.0
    for config in configs:
        left = math.inf if deadline is None else deadline.left
        if left < needed:
            return
        try:
            run = execute(config)
            if run.finished:
                run.summary()  # raises if it is damaged
        except FedEASError as error:
            yield RunOutcome(config, None, str(error))
            continue
        yield RunOutcome(config, run)
        if not run.finished:
            return
        if deadline is not None:
            needed = min(LEAST_SECONDS, 2 * (left - deadline.left))


def describe_outcome(outcome: RunOutcome) -> str:
    """The outcome of a run in one line."""
    name = f"{outcome.config.label}, seed {outcome.config.seed}"
    if outcome.run is None:
        return f"{name}: {outcome.problem}"
    if not outcome.run.finished:
        return f"{name}: paused after round {len(outcome.run.rounds())}"
    summary = outcome.run.summary()
    return f"{name}: accuracy {summary['accuracy']:.2%} in {RoundRange(*summary['window'])}"


def split_by_data(
    configs: Sequence[RunConfig], tell: Callable[[str], None]
) -> tuple[list[RunConfig], list[RunOutcome]]:
    """The runs whose data exist, and an outcome for each other run; raise an error that concerns all runs."""
    from fedeas.data.sources import load_dataset
    from fedeas.federation.parts import new_model

    problems: dict[str, str] = {}
    for config in {config.data.dataset: config for config in configs}.values():
        _check_precision(config.engine.precision)
        try:
            dataset = load_dataset(config.data.dataset, config.data.root)
        except FedEASError as error:
            problems[config.data.dataset] = str(error)
        else:
            new_model(config, dataset.shape, dataset.num_classes)  # checks that the initial weights exist and fit
    for name, problem in problems.items():
        tell(f"{sum(config.data.dataset == name for config in configs)} runs on {name} are left out: {problem}")
    able = [config for config in configs if config.data.dataset not in problems]
    return able, [RunOutcome(c, None, problems[c.data.dataset]) for c in configs if c.data.dataset in problems]


def _check_precision(name: str) -> None:
    from fedeas.core.devices import check_precision, chosen_device

    try:
        check_precision(name, chosen_device("auto"))
    except InputError:
        raise InputError(
            f"precision {name} needs a GPU; without one, --show shows what has been run, and a CPU can run --profile "
            "digits or smoke, or --precision fp32, which takes days"
        ) from None


def stays_here(config: RunConfig) -> bool:
    """Whether a paused run should resume on the same machine: its checkpoint holds large client states."""
    return config.algorithm.partition("(")[0] in CLIENT_STATE
