"""Run directories, accuracies from their records, and comparisons of methods over seeds. Needs no torch."""

from fedeas.runs.comparison import Difference, Measured, Verdict, paired_difference, ranks
from fedeas.runs.reading import read_runs
from fedeas.runs.store import Run

__all__ = ["Difference", "Measured", "Run", "Verdict", "paired_difference", "ranks", "read_runs"]
