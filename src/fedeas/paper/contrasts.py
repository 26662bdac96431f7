"""What one choice adds to a method: two methods of ``beyond`` that differ in this choice alone, paired by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fedeas.core.sentences import markdown_table
from fedeas.paper.answers import mean_cell, mean_of
from fedeas.paper.beyond import BALANCED_TITLE, CEILING, WHOLE
from fedeas.paper.findings import NOTHING, Findings
from fedeas.paper.methods import FEDAVG, FEDEAS
from fedeas.runs.comparison import Difference

Levels = Mapping[tuple[str, str], Mapping[int, float]]
"""By table and method: differences to FedEAS, by seed."""


class Contrast(NamedTuple):
    """The method with the choice, and the one without it."""

    method: str
    instead_of: str


CONTRASTS = (
    *(
        Contrast(f"{title}, {BALANCED_TITLE}", title)
        for title in (FEDAVG.title, FEDEAS.title, "KL", "Pool to the mean")
    ),
    Contrast(WHOLE, "Pool to the mean"),
    Contrast(CEILING, FEDEAS.title),
)


def contrast_in(found: Findings, contrast: Contrast) -> Difference | None:
    """The difference of the two methods in one experiment: its mean over the budgets, once all have all seeds."""
    usual = [each for each in (*found.compared, *found.ceiling) if not each.is_control]
    levels = {(each.table, each.method): each.by_seed for each in usual}
    tables = dict.fromkeys(table for table, method in levels if method == contrast.method)
    budgets = [_difference(levels, table, contrast) for table in tables]
    difference = mean_of(budgets)
    complete = difference is not None and difference.seeds >= found.planned_seeds and len(budgets) == found.budgets
    return difference if complete else None


def _difference(levels: Levels, table: str, contrast: Contrast) -> dict[int, float]:
    """By seed; each level is a difference to FedEAS already."""
    own = levels[table, contrast.method]
    if contrast.instead_of == FEDEAS.title:
        return dict(own)
    other = levels.get((table, contrast.instead_of), {})
    return {seed: own[seed] - other[seed] for seed in own.keys() & other.keys()}


def contrasts_markdown(experiments: Sequence[Findings]) -> str:
    """A row for each contrast: its mean over experiments, and its lowest and highest experiment."""
    rows = [row for contrast in CONTRASTS if (row := _row(contrast, experiments))]
    heads = ("method", "experiments", "mean over experiments (95 %)", "lowest", "highest")
    about = (
        "Differences in points of accuracy under the clean protocol, each the mean over all budgets. In brackets is "
        "the 95 % interval: of the mean, with experiments as units; of one experiment, with seeds as units."
    )
    return f"{markdown_table(heads, rows)}\n\n{about}" if rows else NOTHING


def _row(contrast: Contrast, experiments: Sequence[Findings]) -> list[str]:
    clean = [each for each in experiments if each.protocol == "clean"]
    found = {each.title: difference for each in clean if (difference := contrast_in(each, contrast)) is not None}
    if not found:
        return []
    overall = Difference.of([each.mean for each in found.values()])
    ordered = sorted(found, key=lambda title: found[title].mean)
    ends = [f"{mean_cell(found[title])}, {title}" for title in (ordered[0], ordered[-1])]
    return [f"{contrast.method}, instead of {contrast.instead_of}", str(len(found)), mean_cell(overall), *ends]
