"""Tables of plans, partitions and runs for the terminal.

They fit it without cutting a name or a number, and are complete in a pipe or a file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from fedeas.core.deadline import duration
from fedeas.core.foreign_text import printable
from fedeas.federation.split import Split
from fedeas.planning import scores
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.plan import Summary
from fedeas.planning.policies import CertifiedAllocation, SharedAllocation
from fedeas.planning.request import policy_left_out
from fedeas.runs.comparison import Seeds, fixed
from fedeas.runs.methods import federation_of, grouped, named
from fedeas.runs.progress import RunState, progress_of
from fedeas.runs.store import Run

TIGHT: dict[str, Any] = {"box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0), "pad_edge": False}
"""Fits eighty columns."""

GAP = 2  # columns that a tight table takes beside each of its own
UNLIMITED = 1000  # columns of a pipe or a file
ABOUT_COLUMNS = (
    "Largest client: the most samples that one client gets. Of large classes: samples of classes of which the client "
    "already holds so many that one more would raise its imbalance. Real samples alone decide this: once its small "
    "classes are filled, such samples help, too."
)


def output() -> Console:
    """The console for results. A pipe or a file has room for any table, unless COLUMNS sets its width."""
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = UNLIMITED
    return console


def foreign_text(text: object, style: str = "") -> Text:
    """Untrusted text as one line for a table: without markup and control characters."""
    return Text(printable(text), style)


def stacked(head: str) -> str:
    r"""Each word of a column's head on its own line, which makes the column narrow.

    >>> stacked("rounds 55-60, %")
    'rounds\n55-60\n%'
    """
    return "\n".join(head.replace(",", "").split())


@dataclass(frozen=True)
class FittedTable:
    """A table by columns. It leaves out columns that do not fit, and names them below.

    Args:
        title: above the table.
        columns: the cells of each column by its head; columns get room in this order.
        justify: all columns but the first.
        notes: below the table.
    """

    title: Text
    columns: Mapping[str, Sequence[Text]]
    justify: Literal["left", "right"] = "left"
    notes: Sequence[str] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room, shown, hidden = options.max_width, dict[str, Sequence[Text]](), list[str]()
        for head, cells in self.columns.items():
            lines = [line for text in (stacked(head), *(cell.plain for cell in cells)) for line in text.split("\n")]
            width = GAP + max(map(cell_len, lines))
            if shown and width > room:
                hidden.append(head)
            else:
                shown[head] = cells
                room -= width
        more = [f"No room for: {'; '.join(hidden)}. A wider window or a pipe shows them."] if hidden else []
        caption = "\n".join([*self.notes, *more]) or None
        table = Table(title=self.title, caption=caption, title_justify="left", caption_justify="left", **TIGHT)
        for place, head in enumerate(shown):
            table.add_column(
                stacked(head), justify=self.justify if place else "left", no_wrap=place > 0, overflow="fold"
            )
        for row in zip(*shown.values(), strict=True):
            table.add_row(*row)
        yield table


def facts_table(title: str, facts: Mapping[str, str | Text]) -> Table:
    """Two columns of facts, with untrusted text in the title."""
    table = Table(title=foreign_text(title, "table.title"), title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in facts.items():
        table.add_row(name, value)
    return table


def summary_table(summary: Summary, policy: str) -> RenderableType:
    """The key figures of a plan."""
    extremes: dict[str, str | Text] = {
        f"{which} for one client": foreign_text(f"{extreme.samples:,} (client {extreme.client})")
        for which, extreme in (("most", summary.most), ("least", summary.least))
    }
    facts = {
        "clients": f"{summary.clients:,}",
        "real samples": f"{summary.real:,}",
        "synthetic samples": f"[bold]{summary.synthetic:,}[/]",
        "distinct, if all clients share images": f"{summary.distinct:,}",
        "synthetic share of all data": f"{summary.synthetic_share:.2%}",
        "imbalance removed": f"[bold]{summary.removed:.2%}[/]",
        "imbalance I, before → after": f"{summary.imbalance_before:.4f} → {summary.imbalance_after:.4f}",
        "clients that generate": f"{summary.receiving:,} of {summary.clients:,}",
    }
    return facts_table(policy, {**facts, **extremes})


def comparison_table(counts: LabelCounts, allocations: Sequence[Allocation], chosen: Allocation) -> RenderableType:
    """Policies side by side, with `chosen` in bold."""
    title = f"{chosen.policy} beside policies that make at most as many images, no generation and full balance"
    large = scores.negative_gain(counts)
    names = [each.policy.partition("(")[0] for each in allocations]
    columns = {
        "policy": names,
        "images made": [f"{each.generated:,}" for each in allocations],
        "imbalance removed": [f"{scores.imbalance_removed(counts, each):.2%}" for each in allocations],
        "samples": [f"{each.total:,}" for each in allocations],
        "largest client": [f"{each.per_client.max():,}" for each in allocations],
        "distinct if shared": [f"{each.distinct:,}" for each in allocations],
        "of large classes": [f"{each.n[large].sum():,}" for each in allocations],
    }
    styles = ["bold" if each is chosen else "" for each in allocations]
    cells = {head: [*map(foreign_text, texts, styles)] for head, texts in columns.items()}
    remarks = []  # what the columns do not say about a plan
    for name, each in zip(names, allocations, strict=True):
        if isinstance(each, SharedAllocation):
            remarks.append(f"{name}: several clients get the same image")
        elif isinstance(each, CertifiedAllocation):
            above = f"at most {each.gap:.0e} above" if each.gap else "at"
            remarks.append(f"{name}: proved to leave {each.minimised} {above} the least possible")
    notes = [ABOUT_COLUMNS, "; ".join(remarks), policy_left_out(allocations)]
    return FittedTable(foreign_text(title, "table.title"), cells, "right", [note for note in notes if note])


def partition_table(split: Split, dataset: str) -> RenderableType:
    """The key figures of a partition."""
    counts, recipe = split.counts, split.partition.recipe
    sizes = f"{counts.sizes.min():,} / {np.median(counts.sizes):,.1f} / {counts.sizes.max():,}"
    facts: dict[str, str | Text] = {
        "clients x classes": f"{counts.num_clients:,} x {counts.num_classes}",
        "training samples": f"{counts.total:,}",
        "test samples at the server": f"{split.test_samples:,}",
        "samples of a client, least / median / most": sizes,
        "classes a client holds, on average": f"{(counts.n > 0).sum(axis=1).mean():.1f}",
        "pairs without a sample": f"{(counts.n == 0).sum():,} of {counts.n.size:,}",
        "imbalance I": f"{scores.imbalance(counts):.4f}",
        "recipe": foreign_text(", ".join(f"{key}={value}" for key, value in recipe.items())),
    }
    return facts_table(f"{dataset} over {counts.num_clients:,} clients", facts)


def states_table(runs: Sequence[Run]) -> RenderableType:
    """The state of each run: running, stopped or finished, its rounds, and the time left; the most needed first."""
    rows = []
    for run in runs:
        now = progress_of(run)
        left = "?" if now.seconds_left is None else duration(now.seconds_left)
        rows.append({
            "run": run.path.name,
            "state": now.state,
            "rounds": f"{now.rounds:,} of {now.total:,}",
            "time left": "" if now.state is RunState.FINISHED else left,
            "policy": run.config.policy,
            "seed": run.config.seed,
            "generator": run.seen,
            "since": "" if now.state is RunState.RUNNING else f"{now.changed:%Y-%m-%d %H:%M}",
        })  # fmt: skip
    columns = {head: [foreign_text(row[head]) for row in rows] for head in rows[0]}
    return FittedTable(
        foreign_text("Runs", "table.title"),
        {head: cells for head, cells in columns.items() if any(cell.plain for cell in cells)},
    )


def runs_tables(runs: Sequence[Run], reference: str | None = None) -> RenderableType:
    """Accuracy and work of runs, a row for runs that differ only in their seed; unfinished runs are listed below.

    With a `reference`, the label or name of one method, also the difference to its accuracy, paired by seed, of
    methods on the same data and clients.
    """
    methods = grouped([run for run in runs if run.finished], lambda run: run.config)
    seeds = {name: Seeds({run.config.seed: run.summary() for run in group}) for name, group in methods.items()}
    if reference is not None:
        reference = named(reference, {name: {run.config.label for run in group} for name, group in methods.items()})
    tables: list[RenderableType] = [_accuracy_table(methods, seeds, reference), _work_table(seeds)] if methods else []
    waiting = [run for run in runs if not run.finished]
    names = [f"{run.path.name} ({len(run.rounds())} of {run.config.rounds.total} rounds)" for run in waiting]
    return Group(*tables, *([foreign_text(f"unfinished: {', '.join(names)}")] if names else []))


def _accuracy_table(methods: Mapping[str, Sequence[Run]], seeds: Mapping[str, Seeds], reference: str | None) -> Table:
    windows = {each.window for each in seeds.values()}
    where = str(min(windows)) if len(windows) == 1 else "these rounds"
    apart = ["minus reference", "95% interval"] if reference is not None else []
    table = _numbers("Accuracy, %", ["n", *(["rounds"] if len(windows) > 1 else []), where, "final", *apart])
    if reference is not None:
        table.add_column("")  # the verdict, which may take two lines
    for name, own in seeds.items():
        compared = ["", "", ""]  # the difference in points, its interval, and the verdict
        if name == reference:
            compared[0] = "reference"
        elif reference is not None:
            federations = {federation_of(methods[each][0].config) for each in (name, reference)}
            found = own.minus(seeds[reference]) if len(federations) == 1 else None
            compared = compared if found is None else [fixed(found.mean, 2), found.range_text(2), found.verdict]
        rounds = [str(own.window).partition(" ")[2]] if len(windows) > 1 else []
        reached = [own.percent(key).text(1) for key in ("accuracy", "final")]
        row = [str(len(own)), *rounds, *reached]
        table.add_row(_shown(name, own), *row, *(compared if reference is not None else []))
    table.caption = f"n seeds, mean ± deviation. Accuracy is the mean of {where}; final is the last round."
    return table


def _shown(name: str, seeds: Seeds) -> Text:
    """A method's name, with a note on what its generator has seen."""
    return foreign_text(f"{name} ({seeds.seen})" if seeds.seen else name)


def _work_table(seeds: Mapping[str, Seeds]) -> Table:
    heads = ["synthetic", "removed", "peak %", "Gamma", "steps", "images seen", "gen. s", "train s"]
    table = _numbers("Work, and other measures", heads)
    numbers = [
        (("total",), 1, 0), (("imbalance_removed",), 100, 1), (("peak",), 100, 1), (("gamma_hat",), 1, 3),
        (("steps",), 1, 0), (("samples",), 1, 0), (("seconds", "generate"), 1, 2), (("seconds", "train"), 1, 1),
    ]  # fmt: skip
    for name, own in seeds.items():
        found = [(own.average(*keys), scale, decimals) for keys, scale, decimals in numbers]
        cells = ("-" if value is None else fixed(scale * value, decimals) for value, scale, decimals in found)
        table.add_row(_shown(name, own), *cells)
    table.caption = (
        "Means over seeds. Synthetic: images planned; removed: label imbalance, %; peak: best round; images seen: "
        "by the steps, each as often as it was seen."
    )
    return table


def _numbers(title: str, heads: Sequence[str]) -> Table:
    """A table of names and numbers."""
    table = Table(title=title, title_justify="left", caption_justify="left", **TIGHT)
    table.add_column("run", overflow="fold", min_width=12)
    for head in heads:
        table.add_column(stacked(head), justify="right", no_wrap=True)
    return table
