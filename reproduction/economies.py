"""Images of each client's own, and one pool for all: what do the two cost, and what do they gain?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import mean

from fedeas.config import RunConfig
from fedeas.core.sentences import markdown_table
from fedeas.data.known import known_dataset
from fedeas.runs.comparison import Difference, fixed
from reproduction.answers import mean_cell
from reproduction.beyond import WHOLE, comparisons_in
from reproduction.estimate import measured_on, seconds_to_make
from reproduction.findings import EXPERIMENTS
from reproduction.measures import Measure, accuracy, gain, steps
from reproduction.methods import FEDEAS
from reproduction.results import Results
from reproduction.run_plans import allocation_of, distinct_images
from reproduction.studies import Study, study

TIMED = "cifar10"
"""The dataset whose generator was timed."""

HEADS = ("beta", "method", "images made", "placed", "steps", "accuracy, %", "minus FedEAS (95 %)")


WITH_LESS = "A pool of a smaller budget beside FedEAS at its largest"
HEADS_WITH_LESS = (
    "experiment", "images made for FedEAS", "for the pool", "steps of the pool", "the pool minus FedEAS (95 %)"
)  # fmt: skip


def economies_markdown(results: Results) -> str:
    """FedEAS and the pool with the whole budget in the first setting of each clean experiment, at every budget.

    A last table compares pools of smaller budgets with FedEAS at its largest.
    """
    studies = [study(profile, protocol) for profile, protocol in EXPERIMENTS if protocol == "clean"]
    tables = [f"**{each.title(each.beyond[0])}**\n\n{markdown_table(HEADS, _rows(each, results))}" for each in studies]
    about = (
        f"In brackets: the seconds that one {measured_on()} takes to make the images, where that was measured, and the "
        "size of those that are placed, as uncompressed bytes. A server that makes the images sends these; a client "
        "that makes its own needs the generator instead. Steps are those of all clients in all rounds."
    )
    with_less = markdown_table(HEADS_WITH_LESS, [row for each in studies for row in _rows_with_less(each, results)])
    return "\n\n".join([*tables, about, f"**{WITH_LESS}**", with_less])


def _rows(chosen: Study, results: Results) -> Iterator[list[str]]:
    for compared in comparisons_in(chosen, chosen.beyond[0]):
        if not compared.equal_steps:
            beta = f"{compared.beta:g}"
            base, pool = (compared.runs[title] for title in (FEDEAS.title, WHOLE))
            yield [beta, FEDEAS.title, *_costs(base), *_worth(base, results), ""]
            gained = Difference.of(_values(results, gain, pool, base))
            yield [beta, WHOLE, *_costs(pool), *_worth(pool, results), mean_cell(gained)]


def _rows_with_less(chosen: Study, results: Results) -> Iterator[list[str]]:
    """The pools of smaller budgets, each beside FedEAS at its largest budget."""
    *smaller, largest = (each for each in comparisons_in(chosen, chosen.beyond[0]) if not each.equal_steps)
    base = largest.runs[FEDEAS.title]
    for compared in smaller:
        pool = compared.runs[WHOLE]
        gained = mean_cell(Difference.of(_values(results, gain, pool, base)))
        made = [
            f"{distinct_images(run):,} at beta = {beta:g}"
            for run, beta in ((base, largest.beta), (pool, compared.beta))
        ]
        work = [mean(values) for run in (pool, base) if (values := _values(results, steps, run))]
        yield [
            chosen.title(chosen.beyond[0]),
            *made,
            f"{work[0] / work[1]:.1f} times" if len(work) == 2 else "",
            gained,
        ]


def _costs(run: RunConfig) -> list[str]:
    """Images made, with the seconds for them, and images placed, with their size."""
    made, placed = distinct_images(run), allocation_of(run).total
    seconds = f" ({seconds_to_make(made):,.0f} s)" if run.data.dataset == TIMED else ""
    size = placed * math.prod(known_dataset(run.data.dataset).shape) / 1e6
    return [f"{made:,}{seconds}", f"{placed:,} ({size:,.2f} MB)"]


def _worth(run: RunConfig, results: Results) -> list[str]:
    """Training steps and accuracy, over all seeds."""
    work, level = (_values(results, measure, run) for measure in (steps, accuracy))
    return [f"{mean(work):,.0f}" if work else "", fixed(mean(level), 2) if level else ""]


def _values(results: Results, measure: Measure, *runs: RunConfig) -> list[float]:
    return [value for value in results.values(runs, measure).values() if value is not None]
