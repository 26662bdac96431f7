"""How far the gains of ``beyond`` carry: to one more experiment, without one dataset, at small and at large budgets."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedeas.runs import Difference
from reproduction.answers import (
    STEPS,
    USES,
    clean,
    comparisons_of,
    gains_of,
    mean_cell,
    mean_of_experiments,
    planned_tables,
    whole_difference,
)
from reproduction.findings import NOTHING, Findings
from reproduction.text import fixed, markdown_table

HEADS = (
    "instead of FedEAS", "experiments above it", "one more experiment", "smallest budgets", "largest budgets",
)  # fmt: skip
ABOUT = (
    "p: how likely at least as many experiments would lie on one side of FedEAS by chance (sign test, two-sided). "
    "One more experiment: where the gain in a further experiment like these would lie with 95 % (prediction interval). "
    "Budgets: the mean over experiments at their smallest and at their largest budget. The last table leaves out all "
    "experiments on one dataset. In brackets: the 95 % interval of a mean, with experiments as units."
)


def robustness_markdown(experiments: Sequence[Findings]) -> str:
    """A table of what to expect elsewhere and at other budgets, and one of the means without each dataset."""
    compared = [name for name in USES if not name.endswith(STEPS) and gains_of(experiments, name)]
    if not compared:
        return NOTHING
    datasets = list(dict.fromkeys(each.dataset for each in clean(experiments) if each.compared))
    elsewhere = markdown_table(HEADS, [_row(name, experiments) for name in compared])
    others = [[found for found in experiments if found.dataset != dataset] for dataset in datasets]
    rows = [[name, *(mean_cell(mean_of_experiments(each, name)) for each in others)] for name in compared]
    without = markdown_table([HEADS[0], *(f"without {dataset}" for dataset in datasets)], rows)
    return "\n\n".join([elsewhere, without, ABOUT])


def at_end(experiments: Sequence[Findings], method: str, end: int) -> Difference | None:
    """The mean difference at the smallest (`end` 0) or largest (-1) budget of each experiment of `gains_of`."""
    means = list[float]()
    for found in clean(experiments):
        if whole_difference(found, method) is not None:
            table = planned_tables(found, method)[end]
            means += [each.difference.mean for each in comparisons_of(found, method) if each.table == table]
    return Difference.of(means)


def sign_test(values: Sequence[float]) -> float:
    """The two-sided p-value of the signs, if both were equally likely; zeros do not count."""
    above, below = (sum(sign * value > 0 for value in values) for sign in (1, -1))
    one_side = range(max(above, below), above + below + 1)
    return min(1.0, sum(math.comb(above + below, number) for number in one_side) / 2.0 ** (above + below - 1))


def _row(method: str, experiments: Sequence[Findings]) -> list[str]:
    gains, mean = gains_of(experiments, method), mean_of_experiments(experiments, method)
    above = f"{sum(gain > 0 for gain in gains)} of {len(gains)} (p = {sign_test(gains):.2g})"
    further = mean.interval_of_another if mean is not None else None
    another = "" if further is None else " to ".join(fixed(end, 2) for end in further)
    ends = (mean_cell(at_end(experiments, method, end)) for end in (0, -1))
    return [method, above, another, *ends]
