"""How far the gains of ``beyond`` carry: to one more experiment, without one dataset, at small and at large budgets."""

from __future__ import annotations

from collections.abc import Sequence

from fedeas.core.sentences import markdown_table
from fedeas.runs.comparison import Difference, ends_text, sign_test
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
    heads = [HEADS[0], *(f"without {dataset}" for dataset in datasets)]
    without = markdown_table(heads, [_without_each(name, experiments, datasets) for name in compared])
    return "\n\n".join([elsewhere, without, ABOUT])


def at_end(experiments: Sequence[Findings], method: str, end: int) -> Difference | None:
    """The mean difference at the smallest (`end` 0) or largest (-1) budget of each experiment of `gains_of`."""
    counted = [found for found in clean(experiments) if whole_difference(found, method) is not None]
    return Difference.of([_by_table(found, method)[planned_tables(found, method)[end]] for found in counted])


def _by_table(found: Findings, method: str) -> dict[str, float]:
    """A method's difference to FedEAS at each budget."""
    return {each.table: each.difference.mean for each in comparisons_of(found, method)}


def _row(method: str, experiments: Sequence[Findings]) -> list[str]:
    gains, mean = gains_of(experiments, method), mean_of_experiments(experiments, method)
    above = f"{sum(gain > 0 for gain in gains)} of {len(gains)} (p = {sign_test(gains):.2g})"
    another = ends_text(mean.interval_of_another, 2) if mean is not None else ""
    return [method, above, another, *(mean_cell(at_end(experiments, method, end)) for end in (0, -1))]


def _without_each(method: str, experiments: Sequence[Findings], datasets: Sequence[str]) -> list[str]:
    """A method's mean over experiments, without those on each dataset in turn."""
    others = [[found for found in experiments if found.dataset != dataset] for dataset in datasets]
    return [method, *(mean_cell(mean_of_experiments(each, method)) for each in others)]
