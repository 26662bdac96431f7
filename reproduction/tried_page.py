"""The page about parts that were tried and removed, with their results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from fedeas.runs import Difference, read_runs
from reproduction.answers import mean_cell, mean_of
from reproduction.beyond import BALANCED_TITLE, comparisons_in
from reproduction.measures import accuracy
from reproduction.published import setting
from reproduction.results import Results
from reproduction.studies import Protocol, study
from reproduction.text import markdown_table
from reproduction.tried import PARTS, TriedRun, tried_runs

KEPT = Path(__file__).with_name("results")
HEADS = ("method", "experiment", "mean over budgets (95 %)", "at single budgets (95 %)")
ABOUT = (
    "Differences in points of accuracy, paired by seed. Intervals have seeds as units, and each is taken alone. "
    "The runs are in `reproduction/results/tried.parquet`, with the fingerprints and configs that they had; "
    "`reproduction/tried.csv` says what each was."
)
TRIALS = {"feedback": "tried-feedback.json", "target": "tried-long-tail.json"}
"""Trials that were benchmarks, without runs that were kept."""


def tried_markdown(results: Results) -> str:
    """A section for each part, with a sentence about it and its results."""
    kept = [run.summary() for run in read_runs(KEPT / "tried.parquet")]
    runs = {summary["fingerprint"]: accuracy(summary) for summary in kept}
    sections = [
        f"## {part}\n\n{about}\n\n" + (_trial(TRIALS[part]) if part in TRIALS else _comparisons(part, runs, results))
        for part, about in PARTS.items()
    ]
    return "\n\n".join([*sections, ABOUT])


def _trial(name: str) -> str:
    """The table of a benchmark."""
    content: dict[str, Any] = json.loads((KEPT / name).read_text("utf-8"))
    heads = list(dict.fromkeys(head for row in content["rows"] for head in row))
    rows = [[str(row.get(head, "")) for head in heads] for row in content["rows"]]
    return f"{content['question']}.\n\n{markdown_table(heads, rows)}"


def _comparisons(part: str, runs: dict[str, float], results: Results) -> str:
    """A row for each experiment and each method that the part is compared with."""
    made = sorted((run for run in tried_runs() if run.part == part), key=_place)
    groups = [list(group) for _, group in groupby(made, _place)]
    return markdown_table(HEADS, [row for group in groups for row in _rows(group, runs, results)])


def _place(run: TriedRun) -> tuple[str, ...]:
    return run.profile, run.protocol, run.setting, run.arm


def _rows(made: list[TriedRun], runs: dict[str, float], results: Results) -> Iterator[list[str]]:
    """The difference to the method without the part, and of a loss also to balanced softmax with the same images."""
    first = made[0]
    protocol: Protocol = "paper" if first.protocol == "paper" else "clean"
    chosen, where = study(first.profile, protocol), setting(first.setting)
    title = first.arm.partition(", ")[0] if ", " in first.arm else "FedEAS"
    others = [title] + [f"{title}, {BALANCED_TITLE}"] * (first.part.startswith("fed") and title == "FedEAS")
    compared = {f"{each.beta:g}": each for each in comparisons_in(chosen, where) if not each.equal_steps}
    for other in others:
        by_budget: dict[str, dict[int, float]] = {}
        for run in made:
            for beta in run.betas.split(";"):
                base = results.values([compared[beta].runs[other]], accuracy)
                if (value := base.get(int(run.seed))) is not None:
                    by_budget.setdefault(beta, {})[int(run.seed)] = runs[run.fingerprint] - value
        cells = {beta: mean_cell(Difference.of(list(found.values()))) for beta, found in by_budget.items()}
        single = "; ".join(f"{cell} at beta = {beta}" for beta, cell in cells.items()) if title != "FedAvg" else ""
        name = f"{first.arm}, instead of {other}"
        yield [name, f"{chosen.title(where)}, {protocol}", mean_cell(mean_of(list(by_budget.values()))), single]
