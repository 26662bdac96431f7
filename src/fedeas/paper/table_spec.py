"""Specification of tables: their cells, and the measures that fill a cell from the summaries of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from fedeas.config import RunConfig
from fedeas.planning import scores
from fedeas.runs.store import Record

Measure = Callable[..., float | None]

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


@dataclass(frozen=True)
class Sheet:
    """A table to be filled.

    In `ranked` columns the best and the second row are marked; rows in `aside` are not ranked. If each row is one
    method (`by_method`), a column shows its number of seeds.
    """

    title: str
    columns: tuple[str, ...]
    rows: dict[str, tuple[Cell | None, ...]]
    ranked: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()
    note: str = ""
    by_method: bool = False

    @property
    def cells(self) -> Iterator[Cell]:
        """All cells, row by row."""
        return (cell for row in self.rows.values() for cell in row if cell is not None)


def _percent(key: str) -> Callable[[Record], float]:
    return lambda run: 100 * float(run[key])


def _number(key: str) -> Callable[[Record], float | None]:
    """The measure of a number that a run may lack."""
    return lambda run: None if run[key] is None else float(run[key])


accuracy = _percent("accuracy")  # mean over the window
final = _percent("final")  # after the last round
peak = _percent("peak")  # best of all rounds
steps = _number("steps")  # of all clients in all rounds
images_seen = _number("samples")  # an image counts each time it is seen
gamma_hat = _number("gamma_hat")  # median dissimilarity of the clients' updates
rounds_to_threshold = _number("rounds_to_threshold")  # None if it was never reached


def gain(run: Record, base: Record) -> float:
    """Points of accuracy above another run."""
    return accuracy(run) - accuracy(base)


def efficiency(run: Record, base: Record) -> float | None:
    """Points of accuracy gained for each thousand samples."""
    return scores.efficiency(gain(run, base), run["total"]) if run["total"] else None


def minutes(run: Record) -> float | None:
    """Minutes of generation and training; None if images were in the bank already, which shortens the run."""
    found = (run["images"] or {}).get("found", 0)
    return None if found else float(run["seconds"]["total"]) / 60


def gamma_reduction(run: Record, base: Record) -> float | None:
    """How much less the updates differ than another run's, in percent."""
    ours, theirs = gamma_hat(run), gamma_hat(base)
    return None if ours is None or not theirs else 100 * (1 - ours / theirs)


def peak_gain(run: Record, base: Record) -> float:
    """Points of peak accuracy above another run."""
    return peak(run) - peak(base)


def time_ratio(run: Record, base: Record) -> float | None:
    """How many times longer than another run."""
    own, other = minutes(run), minutes(base)
    return None if own is None or not other else own / other
