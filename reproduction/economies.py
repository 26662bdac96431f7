"""Images of each client's own, and one pool for all: what do the two cost, and what do they gain?"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean

from fedeas.config import RunConfig
from fedeas.runs import Difference
from reproduction.answers import mean_cell
from reproduction.beyond import WHOLE, comparisons_in
from reproduction.estimate import speeds
from reproduction.findings import EXPERIMENTS
from reproduction.measures import Measure, accuracy, gain, steps
from reproduction.methods import FEDEAS
from reproduction.results import Results
from reproduction.studies import Study, plan_of, study
from reproduction.text import fixed, markdown_table

TIMED = "cifar10"  # the dataset whose generator was timed
IMAGE_BYTES = {"digits": 8 * 8, "fashion-mnist": 28 * 28}  # uncompressed, where it is not CIFAR's
HEADS = ("beta", "method", "images made", "placed", "steps", "accuracy, %", "minus FedEAS (95 %)")
HEADS_WITH_LESS = (
    "experiment", "images made for FedEAS", "for the pool", "steps of the pool", "the pool minus FedEAS (95 %)"
)  # fmt: skip


def economies_markdown(results: Results) -> str:
    """FedEAS and the pool with the whole budget in the first setting of each clean experiment, budgets side by side."""
    studies = [study(profile, protocol) for profile, protocol in EXPERIMENTS if protocol == "clean"]
    tables = list[str]()
    for each in studies:
        rows = list[list[str]]()
        for compared in (one for one in comparisons_in(each, each.beyond[0]) if not one.equal_steps):
            base, pool = (compared.runs[title] for title in (FEDEAS.title, WHOLE))
            gained = mean_cell(Difference.of(_values(results, gain, pool, base)))
            rows.append([f"{compared.beta:g}", FEDEAS.title, *_costs_and_worth(base, results), ""])
            rows.append([f"{compared.beta:g}", WHOLE, *_costs_and_worth(pool, results), gained])
        tables.append(f"**{each.title(each.beyond[0])}**\n\n{markdown_table(HEADS, rows)}")
    about = (
        f"In brackets: the seconds that one {speeds()['machine']} takes to make the images, where that was measured, "
        "and the size of those that are placed, as uncompressed bytes. A server that makes the images sends these; a "
        "client that makes its own needs the generator instead. Steps are those of all clients in all rounds."
    )
    with_less = markdown_table(HEADS_WITH_LESS, [row for each in studies for row in _rows_with_less(each, results)])
    return "\n\n".join([*tables, about, "**A pool of a smaller budget beside FedEAS at its largest**", with_less])


def _rows_with_less(chosen: Study, results: Results) -> Iterator[list[str]]:
    """The pools of smaller budgets, each beside FedEAS at its largest budget."""
    *smaller, largest = (each for each in comparisons_in(chosen, chosen.beyond[0]) if not each.equal_steps)
    base = largest.runs[FEDEAS.title]
    for compared in smaller:
        pool = compared.runs[WHOLE]
        betas = ((base, largest.beta), (pool, compared.beta))
        made = [f"{plan_of(run).distinct:,} at beta = {beta:g}" for run, beta in betas]
        work = [mean(values) for run in (pool, base) if (values := _values(results, steps, run))]
        times = f"{work[0] / work[1]:.1f} times" if len(work) == 2 else ""
        gained = mean_cell(Difference.of(_values(results, gain, pool, base)))
        yield [chosen.title(chosen.beyond[0]), *made, times, gained]


def _costs_and_worth(run: RunConfig, results: Results) -> list[str]:
    """Images made, with the seconds for them, and placed, with their size; training steps and accuracy of all seeds."""
    made, placed, dataset = plan_of(run).distinct, plan_of(run).total, run.data.dataset
    seconds = f" ({made / speeds()['generation']:,.0f} s)" if dataset == TIMED else ""
    size = placed * IMAGE_BYTES.get(dataset, 3 * 32 * 32) / 1e6
    work, level = (_values(results, measure, run) for measure in (steps, accuracy))
    worth = [f"{mean(work):,.0f}" if work else "", fixed(mean(level), 2) if level else ""]
    return [f"{made:,}{seconds}", f"{placed:,} ({size:,.2f} MB)", *worth]


def _values(results: Results, measure: Measure, *runs: RunConfig) -> list[float]:
    return [value for value in results.values(runs, measure).values() if value is not None]
