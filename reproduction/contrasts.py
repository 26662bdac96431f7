"""What one choice adds to a method: two methods of ``beyond`` that differ in this choice alone, paired by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fedeas.runs import Difference
from reproduction import beyond
from reproduction.answers import clean, mean_cell, mean_of
from reproduction.findings import NOTHING, Findings
from reproduction.methods import FEDAVG, FEDEAS
from reproduction.text import markdown_table


class Contrast(NamedTuple):
    """The method with the choice, and the one without it."""

    method: str
    instead_of: str


CONTRASTS = (
    *(
        Contrast(f"{title}, {beyond.BALANCED_TITLE}", title)
        for title in (FEDAVG.title, FEDEAS.title, "KL", "Pool to the mean")
    ),
    Contrast(beyond.WHOLE, "Pool to the mean"),
    Contrast(beyond.LARGEST, "Pool to the mean"),
    Contrast(beyond.CEILING, FEDEAS.title),
)

SIDE = (
    Contrast(beyond.DISJOINT, FEDEAS.title),
    Contrast(beyond.WHOLE, beyond.DISJOINT),
    Contrast(beyond.DISJOINT, beyond.GAUSSIAN),
    Contrast(beyond.REAL, beyond.GENERATED),
)
"""What other images do to FedEAS, in single experiments. Shown at each budget, because the budget decides how many
images repeat."""


def contrast_in(found: Findings, contrast: Contrast) -> Difference | None:
    """The difference of the two methods in one experiment: its mean over the budgets, once all have all seeds."""
    budgets = by_budget(found, contrast)
    return _complete(found, list(budgets.values())) if len(budgets) == found.budgets else None


def by_budget(found: Findings, contrast: Contrast) -> dict[str, dict[int, float]]:
    """The difference of the two methods by budget and seed, wherever both have been run."""
    usual = [each for each in (*found.compared, *found.aside) if not each.is_control]
    levels: dict[tuple[str, str], dict[int, float]] = {}  # each a difference to FedEAS, whose own level is 0
    for each in usual:
        levels[each.table, each.method] = dict(each.by_seed)
        levels.setdefault((each.table, FEDEAS.title), {}).update(dict.fromkeys(each.by_seed, 0.0))
    pairs = {each.table: [levels.get((each.table, title), {}) for title in contrast] for each in usual}
    differences = {
        table: {seed: own[seed] - other[seed] for seed in own.keys() & other.keys()}
        for table, (own, other) in pairs.items()
    }
    return {table: by_seed for table, by_seed in differences.items() if by_seed}


def _complete(found: Findings, budgets: Sequence[Mapping[int, float]]) -> Difference | None:
    """The mean over these budgets; None while seeds are missing."""
    difference = mean_of(budgets)
    return difference if difference is not None and difference.seeds >= found.planned_seeds else None


def contrasts_markdown(experiments: Sequence[Findings]) -> str:
    """What one choice adds over experiments, and below it the side questions, which were asked in single ones."""
    tables, experiments = list[str](), clean(experiments)
    if rows := [row for contrast in CONTRASTS if (row := _row(contrast, experiments))]:
        heads = ("method", "experiments", "mean over experiments (95 %)", "lowest", "highest")
        about = (
            "Differences in points of accuracy under the clean protocol, each the mean over all budgets. In brackets "
            "is the 95 % interval: of the mean, with experiments as units; of one experiment, with seeds as units."
        )
        tables += [markdown_table(heads, rows), about]
    if rows := [row for contrast in SIDE for found in experiments if (row := _side_row(contrast, found))]:
        side_heads = ("method", "experiment", "mean over budgets (95 %)", "at single budgets (95 %)")
        about = (
            "Differences in points of accuracy under the clean protocol. Intervals have seeds as units, and each is "
            "taken alone. A budget is shown once all its seeds have been run, the mean once all budgets have been."
        )
        tables += [markdown_table(side_heads, rows), about]
    return "\n\n".join(tables or [NOTHING])


def _row(contrast: Contrast, experiments: Sequence[Findings]) -> list[str]:
    """The mean of a contrast over experiments, and its lowest and highest experiment."""
    found = {each.title: difference for each in experiments if (difference := contrast_in(each, contrast)) is not None}
    if not found:
        return []
    overall = Difference.of([each.mean for each in found.values()])
    ordered = sorted(found, key=lambda title: found[title].mean)
    ends = [f"{mean_cell(found[title])}, {title}" for title in (ordered[0], ordered[-1])]
    return [f"{contrast.method}, instead of {contrast.instead_of}", str(len(found)), mean_cell(overall), *ends]


def _side_row(contrast: Contrast, found: Findings) -> list[str]:
    """The mean of a contrast over all budgets of an experiment, and each budget that has all seeds."""
    budgets = {table: _complete(found, [by_seed]) for table, by_seed in by_budget(found, contrast).items()}
    cells = {table: cell for table, difference in budgets.items() if (cell := mean_cell(difference))}
    if not cells:
        return []
    name = f"{contrast.method}, instead of {contrast.instead_of}"
    each = "; ".join(f"{cell} at {table}" for table, cell in cells.items())
    return [name, found.title, mean_cell(contrast_in(found, contrast)), each]
