"""Cells that several tables have: images and imbalance from label counts, and differences between runs."""

from __future__ import annotations

from decimal import Decimal

from fedeas.config import RunConfig
from fedeas.generators.registry import Shared, parse_generator
from fedeas.paper.run_plans import allocation_of, counts_of
from fedeas.paper.studies import Study
from fedeas.paper.table_spec import Cell, gain
from fedeas.planning import scores
from fedeas.runs.accuracy_curves import Window


def window_of(study: Study) -> Window:
    """The rounds whose mean accuracy the study's tables show."""
    return Window.of(study.profile.rounds)


def level_of(study: Study) -> str:
    """The head of the column with this accuracy."""
    return f"{window_of(study)}, %"


def placed(run: RunConfig, printed: Decimal | None = None) -> Cell:
    """Synthetic samples of all clients."""
    return Cell((), lambda: float(allocation_of(run).total), printed, 0)


def generated(run: RunConfig) -> Cell:
    """Images that have to be made for a run: in a pool each once, however many clients share it."""
    return Cell((), lambda: float(images_to_make(run)), None, 0)


def images_to_make(run: RunConfig) -> int:
    """The distinct images of a run's plan."""
    plan = allocation_of(run)
    return plan.distinct if isinstance(parse_generator(run.generator), Shared) else plan.total


def imbalance_removed(run: RunConfig) -> Cell:
    """How much of the label imbalance the plan removes, in percent."""
    return Cell((), lambda: 100 * scores.removed(counts_of(run), allocation_of(run)), None, 1)


def minus(run: RunConfig, other: RunConfig) -> Cell | None:
    """Points of accuracy above another run; no cell if it is the same run."""
    return None if run == other else Cell((run, other), gain, compares=True)
