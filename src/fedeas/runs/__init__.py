"""Run directories, accuracies from their records, and comparisons of methods over seeds. Needs no torch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedeas.runs.comparison import Difference, Measured, Verdict, paired_difference, ranks
from fedeas.runs.store import Run

if TYPE_CHECKING:
    from fedeas.runs.packed import pack_runs as pack_runs
    from fedeas.runs.packed import read_runs as read_runs

__all__ = ["Difference", "Measured", "Run", "Verdict", "pack_runs", "paired_difference", "ranks", "read_runs"]


def __getattr__(name: str) -> Any:
    """Load what reads and writes Parquet files when it is first used: that takes a while."""
    if name not in ("pack_runs", "read_runs"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.packed"), name)
