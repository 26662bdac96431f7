"""Specification of tables: cells and sheets, and the cells that several tables have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from fedeas.config import RunConfig
from reproduction.measures import Measure, gain
from reproduction.studies import plan_of

NOT_REACHED = "not reached"


@dataclass(frozen=True)
class Cell:
    """A number in a table: the runs it needs, the measure of their summaries, and the paper's number.

    A number that follows from label counts needs no run. `otherwise` is shown if the runs have no such number.
    A cell that `compares` is a difference of two runs, shown with its interval. A cell `with_final` also shows the
    final accuracy of its run.
    """

    configs: tuple[RunConfig, ...]
    measure: Measure
    paper: Decimal | None = None
    decimals: int = 2
    otherwise: str = "none"
    compares: bool = False
    with_final: bool = False


Rows = dict[str, tuple[Cell | None, ...]]
"""By the name of the row; None where there is no number."""


@dataclass(frozen=True)
class Sheet:
    """A table to be filled.

    In `ranked` columns the best and the second row are marked; rows in `aside` are not ranked. If each row is one
    method (`by_method`), a column shows its number of seeds.
    """

    title: str
    columns: tuple[str, ...]
    rows: Rows
    ranked: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()
    note: str = ""
    by_method: bool = False

    @property
    def cells(self) -> Iterator[Cell]:
        """All cells, row by row."""
        return (cell for row in self.rows.values() for cell in row if cell is not None)


def placed(run: RunConfig, printed: Decimal | None = None) -> Cell:
    """Synthetic samples of all clients."""
    return Cell((), lambda: float(plan_of(run).total), printed, 0)


def generated(run: RunConfig) -> Cell:
    """Different images of a run, which have to be made: each once, however many clients share it."""
    return Cell((), lambda: float(plan_of(run).distinct), None, 0)


def imbalance_removed(run: RunConfig) -> Cell:
    """How much of the label imbalance the plan removes, in percent."""
    return Cell((), lambda: 100 * plan_of(run).summary.removed, None, 1)


def minus(run: RunConfig, other: RunConfig) -> Cell | None:
    """Points of accuracy above another run; no cell if it is the same run."""
    return None if run == other else Cell((run, other), gain, compares=True)
