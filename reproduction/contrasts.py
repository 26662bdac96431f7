"""What one choice adds to a method: two methods of ``beyond`` that differ in this choice alone, paired by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
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


POOL = "Pool to the mean"
CONTRASTS = (
    *(Contrast(f"{title}, {beyond.BALANCED_TITLE}", title) for title in (FEDAVG.title, FEDEAS.title, "KL", POOL)),
    Contrast(beyond.WHOLE, POOL),
    Contrast(beyond.LARGEST, POOL),
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
    return {
        table: {seed: own[seed] - other[seed] for seed in shared}
        for table, (own, other) in pairs.items()
        if (shared := own.keys() & other.keys())
    }


def _complete(found: Findings, budgets: Sequence[Mapping[int, float]]) -> Difference | None:
    """The mean over these budgets; None while seeds are missing."""
    difference = mean_of(budgets)
    return difference if difference is not None and difference.seeds >= found.planned_seeds else None


def contrasts_markdown(experiments: Sequence[Findings]) -> str:
    """What one choice adds over experiments, and below it the side questions, which were asked in single ones."""
    tables, experiments = list[str](), clean(experiments)
    rows, sides = list[list[str]](), list[list[str]]()
    for contrast in CONTRASTS:
        found = {each.title: of for each in experiments if (of := contrast_in(each, contrast)) is not None}
        if ordered := sorted(found, key=lambda title: found[title].mean):
            mean = mean_cell(Difference.of([each.mean for each in found.values()]))
            ends = [f"{mean_cell(found[title])}, {title}" for title in (ordered[0], ordered[-1])]
            rows.append([", instead of ".join(contrast), str(len(found)), mean, *ends])
    for contrast, each in product(SIDE, experiments):
        single = {table: _complete(each, [by_seed]) for table, by_seed in by_budget(each, contrast).items()}
        if cells := [f"{cell} at {table}" for table, of in single.items() if (cell := mean_cell(of))]:
            mean = mean_cell(contrast_in(each, contrast))
            sides.append([", instead of ".join(contrast), each.title, mean, "; ".join(cells)])
    if rows:
        heads = ("method", "experiments", "mean over experiments (95 %)", "lowest", "highest")
        about = (
            "Differences in points of accuracy under the clean protocol, each the mean over all budgets. In brackets "
            "is the 95 % interval: of the mean, with experiments as units; of one experiment, with seeds as units."
        )
        tables += [markdown_table(heads, rows), about]
    if sides:
        side_heads = ("method", "experiment", "mean over budgets (95 %)", "at single budgets (95 %)")
        about = (
            "Differences in points of accuracy under the clean protocol. Intervals have seeds as units, and each is "
            "taken alone. A budget is shown once all its seeds have been run, the mean once all budgets have been."
        )
        tables += [markdown_table(side_heads, sides), about]
    return "\n\n".join(tables or [NOTHING])
