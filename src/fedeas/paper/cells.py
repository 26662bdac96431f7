"""Cells of tables, the measures that fill them from the summaries of runs, and tables of such cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from fedeas import scores
from fedeas.config import RunConfig
from fedeas.store import Record

Measure = Callable[..., float | None]


@dataclass(frozen=True)
class Cell:
    """A number: the runs it needs, how it follows from their summaries, and what the paper prints.

    A number that follows from label counts needs no run. `otherwise` is said where the runs are there and give none.
    """

    configs: tuple[RunConfig, ...]
    measure: Measure
    paper: Decimal | None = None
    decimals: int = 2
    otherwise: str = "none"


@dataclass(frozen=True)
class Sheet:
    """A table to be filled. If it is `ranked`, the best row of each column is marked, and the second.

    Rows that stand `aside` and columns that are `unranked` are left out of that.
    """

    title: str
    columns: tuple[str, ...]
    rows: dict[str, tuple[Cell | None, ...]]
    ranked: bool = False
    aside: tuple[str, ...] = ()
    unranked: tuple[str, ...] = ()
    note: str = ""

    @property
    def cells(self) -> Iterator[Cell]:
        """All of them, row by row."""
        return (cell for row in self.rows.values() for cell in row if cell is not None)


def accuracy(run: Record) -> float:
    """Mean of the last 20 rounds, in percent."""
    return 100 * float(run["accuracy"])


def peak(run: Record) -> float:
    """Best of all rounds, in percent."""
    return 100 * float(run["peak"])


def gain(run: Record, base: Record) -> float:
    """Points of accuracy above another run."""
    return accuracy(run) - accuracy(base)


def efficiency(run: Record, base: Record) -> float | None:
    """Points gained for each thousand samples."""
    return scores.efficiency(gain(run, base), run["total"]) if run["total"] else None


def gamma_hat(run: Record) -> float | None:
    """Median dissimilarity of the clients' updates."""
    return None if run["gamma_hat"] is None else float(run["gamma_hat"])


def minutes(run: Record) -> float | None:
    """Generation and training; not told where images were in the bank already, which would make the run look quick."""
    found = (run["images"] or {}).get("found", 0)
    return None if found else float(run["seconds"]["total"]) / 60


def rounds_to_threshold(run: Record) -> float | None:
    """The first round at the threshold, if it was ever reached."""
    found = run["rounds_to_threshold"]
    return None if found is None else float(found)


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
