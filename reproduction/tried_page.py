"""The page about parts that were tried and removed, with their results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from fedeas.runs import Difference, Measured, read_runs
from reproduction.answers import mean_cell, mean_of
from reproduction.beyond import BALANCED_TITLE, comparisons_in
from reproduction.measures import Measure, accuracy, final, steps
from reproduction.methods import FEDEAS
from reproduction.published import setting
from reproduction.results import Results
from reproduction.studies import Protocol, study
from reproduction.text import fixed, markdown_table
from reproduction.tried import PARTS, TriedRun, tried_runs

KEPT = Path(__file__).with_name("results")
HEADS = ("method", "experiment", "mean over budgets (95 %)", "at single budgets (95 %)")
LEVELS = (
    "method", "experiment", "beta", "seeds", "images placed", "imbalance removed, %", "accuracy, %",
    "minus FedEAS (95 %)", "final, %", "steps",
)  # fmt: skip
ABOUT = (
    "Differences in points of accuracy, paired by seed. Intervals have seeds as units, and each is taken alone. "
    "The runs are in `reproduction/results/tried.parquet`, with the fingerprints and configs that they had; "
    "`reproduction/tried.csv` says what each was."
)
Runs = dict[str, dict[str, Any]]  # summaries by fingerprint
TRIALS = {"feedback": "tried-feedback.json", "target": "tried-long-tail.json"}
"""Trials that were benchmarks, without runs that were kept."""


def tried_markdown(results: Results) -> str:
    """A section for each part, with a sentence about it and its results."""
    runs = {run.fingerprint: run.summary() for run in read_runs(KEPT / "tried.parquet")}
    sections = list[str]()
    for part, about in PARTS.items():
        if part in TRIALS:
            trial: dict[str, Any] = json.loads((KEPT / TRIALS[part]).read_text("utf-8"))
            heads = list(dict.fromkeys(head for row in trial["rows"] for head in row))
            rows = [[str(row.get(head, "")) for head in heads] for row in trial["rows"]]
            shown = f"{trial['question']}.\n\n{markdown_table(heads, rows)}"
        else:
            shown = _comparisons(part, runs, results)
        sections.append(f"## {part}\n\n{about}\n\n{shown}")
    return "\n\n".join([*sections, ABOUT])


def _comparisons(part: str, runs: Runs, results: Results) -> str:
    """The experiments with a part: differences to methods without it, then accuracy and work at each budget."""
    place = attrgetter("profile", "protocol", "setting", "arm")
    made = sorted((run for run in tried_runs() if run.part == part), key=place)
    groups = [_Group(list(group), runs, results) for _, group in groupby(made, place)]
    arms = {group.arm for group in groups}
    means = [group.mean.mean for group in groups if group.protocol == "clean" and group.mean and len(arms) == 1]
    over = f"\n\nMean over {len(means)} clean experiments: {mean_cell(Difference.of(means))}." * (len(means) > 1)
    paired = markdown_table(HEADS, [row for group in groups for row in group.differences()])
    return f"{paired}{over}\n\n{markdown_table(LEVELS, [row for group in groups for row in group.levels()])}"


class _Group:
    """The runs of one method in one experiment."""

    def __init__(self, made: list[TriedRun], runs: Runs, results: Results) -> None:
        first, self.results = made[0], results
        self.arm, self.is_loss = first.arm, first.part.startswith("fed")
        self.protocol: Protocol = "paper" if first.protocol == "paper" else "clean"
        chosen, where = study(first.profile, self.protocol), setting(first.setting)
        self.experiment = f"{chosen.title(where)}, {self.protocol}"
        self.without = first.arm.partition(", ")[0] if ", " in first.arm else FEDEAS.title
        self.compared = {f"{each.beta:g}": each for each in comparisons_in(chosen, where) if not each.equal_steps}
        self.summaries: dict[str, dict[int, dict[str, Any]]] = {}
        for run in made:
            for beta in run.betas.split(";"):
                self.summaries.setdefault(beta, {})[int(run.seed)] = runs[run.fingerprint]

    @property
    def mean(self) -> Difference | None:
        """The difference to the method without the part, over all budgets."""
        return mean_of(list(self._minus(self.without).values()))

    def differences(self) -> Iterator[list[str]]:
        """The difference to the method without the part, and of a loss also to balanced softmax with its images."""
        balanced = [f"{self.without}, {BALANCED_TITLE}"] * (self.is_loss and self.without == FEDEAS.title)
        for other in [self.without, *balanced]:
            found = self._minus(other)
            cells = [f"{mean_cell(Difference.of(list(by.values())))} at beta = {beta}" for beta, by in found.items()]
            single = "; ".join(cells) if self.without == FEDEAS.title else ""
            name = f"{self.arm}, instead of {other}"
            yield [name, self.experiment, mean_cell(mean_of(list(found.values()))), single]

    def levels(self) -> Iterator[list[str]]:
        """Images, accuracy and work at each budget."""
        minus = self._minus(FEDEAS.title)
        for beta, by_seed in self.summaries.items():
            found = list(by_seed.values())
            yield [
                self.arm, self.experiment, beta, str(len(found)), f"{found[0]['total']:,}",
                fixed(100 * found[0]["imbalance_removed"], 1), _mean(found, accuracy, 2),
                mean_cell(Difference.of(list(minus[beta].values()))), _mean(found, final, 2), _mean(found, steps, 0),
            ]  # fmt: skip

    def _minus(self, other: str) -> dict[str, dict[int, float]]:
        """Points of accuracy above another method, by budget and seed."""
        found: dict[str, dict[int, float]] = {}
        for beta, by_seed in self.summaries.items():
            base = self.results.values([self.compared[beta].runs[other]], accuracy)
            found[beta] = {seed: accuracy(by_seed[seed]) - level for seed, level in base.items() if level is not None}
        return found


def _mean(found: list[dict[str, Any]], measure: Measure, decimals: int) -> str:
    """Mean and deviation of a measure over seeds; empty if no run has it."""
    mean = Measured.of([value for each in found if (value := measure(each)) is not None])
    return "" if mean is None else mean.text(decimals)
