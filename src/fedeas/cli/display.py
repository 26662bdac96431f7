"""Plans, partitions and runs as tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedeas.cli.fitting import TIGHT, FittedTable, stacked
from fedeas.cli.progress import duration
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

ABOUT_COLUMNS = (
    "Largest client: the most samples that one client gets. Of large classes: samples of classes of which the client "
    "already holds so many that one more would raise its imbalance. Real samples alone decide this: once its small "
    "classes are filled, such samples help, too."
)


def summary_table(summary: Summary, policy: str) -> RenderableType:
    """The key figures of a plan."""
    table = _facts(policy)
    table.add_row("clients", f"{summary.clients:,}")
    table.add_row("real samples", f"{summary.real:,}")
    table.add_row("synthetic samples", f"[bold]{summary.synthetic:,}[/]")
    table.add_row("distinct, if all clients share images", f"{summary.distinct:,}")
    table.add_row("synthetic share of all data", f"{summary.synthetic_share:.2%}")
    table.add_row("imbalance removed", f"[bold]{summary.removed:.2%}[/]")
    table.add_row("imbalance I, before → after", f"{summary.imbalance_before:.4f} → {summary.imbalance_after:.4f}")
    table.add_row("clients that generate", f"{summary.receiving:,} of {summary.clients:,}")
    for which, extreme in (("most", summary.most), ("least", summary.least)):
        table.add_row(f"{which} for one client", foreign_text(f"{extreme.samples:,} (client {extreme.client})"))
    return table


def comparison_table(counts: LabelCounts, allocations: Sequence[Allocation], chosen: Allocation) -> RenderableType:
    """Policies side by side, with `chosen` in bold."""
    title = f"{chosen.policy} beside policies that make at most as many images, no generation and full balance"
    large = scores.negative_gain(counts)
    columns = {
        "policy": [each.policy.partition("(")[0] for each in allocations],
        "images made": [f"{each.generated:,}" for each in allocations],
        "imbalance removed": [f"{scores.imbalance_removed(counts, each):.2%}" for each in allocations],
        "samples": [f"{each.total:,}" for each in allocations],
        "largest client": [f"{each.per_client.max():,}" for each in allocations],
        "distinct if shared": [f"{each.distinct:,}" for each in allocations],
        "of large classes": [f"{each.n[large].sum():,}" for each in allocations],
    }
    styles = ["bold" if each is chosen else "" for each in allocations]
    cells = {head: [*map(foreign_text, texts, styles)] for head, texts in columns.items()}
    remarks = "; ".join(filter(None, map(_remark, allocations)))
    notes = [ABOUT_COLUMNS, remarks, policy_left_out(allocations)]
    return FittedTable(foreign_text(title, "table.title"), cells, "right", [note for note in notes if note])


def partition_table(split: Split, dataset: str) -> RenderableType:
    """The key figures of a partition."""
    counts, partition = split.counts, split.partition
    table = _facts(f"{dataset} over {counts.num_clients:,} clients")
    table.add_row("clients x classes", f"{counts.num_clients:,} x {counts.num_classes}")
    table.add_row("training samples", f"{counts.total:,}")
    table.add_row("test samples at the server", f"{split.test_samples:,}")
    sizes = f"{counts.sizes.min():,} / {np.median(counts.sizes):,.1f} / {counts.sizes.max():,}"
    table.add_row("samples of a client, least / median / most", sizes)
    table.add_row("classes a client holds, on average", f"{(counts.n > 0).sum(axis=1).mean():.1f}")
    table.add_row("pairs without a sample", f"{(counts.n == 0).sum():,} of {counts.n.size:,}")
    table.add_row("imbalance I", f"{scores.imbalance(counts):.4f}")
    table.add_row("recipe", foreign_text(", ".join(f"{key}={value}" for key, value in partition.recipe.items())))
    return table


def foreign_text(text: object, style: str = "") -> Text:
    """Untrusted text as one line for a table: without markup and control characters."""
    return Text(printable(text), style)


def _facts(title: str) -> Table:
    table = Table(title=foreign_text(title, "table.title"), title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    return table


def _remark(allocation: Allocation) -> str:
    """What the columns do not say about a plan."""
    name = allocation.policy.partition("(")[0]
    if isinstance(allocation, SharedAllocation):
        return f"{name}: several clients get the same image"
    if not isinstance(allocation, CertifiedAllocation):
        return ""
    above = f"at most {allocation.gap:.0e} above" if allocation.gap else "at"
    return f"{name}: proved to leave {allocation.minimised} {above} the least possible"


def runs_tables(runs: Sequence[Run], reference: str | None = None) -> RenderableType:
    """Accuracy and work of runs, a row for runs that differ only in their seed; unfinished runs are listed below.

    With a `reference`, the label or name of one method, also the difference to its accuracy, paired by seed, of
    methods on the same data and clients.
    """
    methods, chosen = by_method(runs), None
    if reference is not None:
        name = named(reference, {each.name: each.labels for each in methods})
        chosen = next(each for each in methods if each.name == name)
    tables = [_accuracy_table(methods, chosen), _work_table(methods)] if methods else []
    waiting = [run for run in runs if not run.finished]
    names = [f"{run.path.name} ({len(run.rounds())} of {run.config.rounds.total} rounds)" for run in waiting]
    return Group(*tables, *([foreign_text(f"unfinished: {', '.join(names)}")] if names else []))


def states_table(runs: Sequence[Run]) -> RenderableType:
    """The state of each run: running, stopped or finished, its rounds, and the time left."""
    rows = [_state(run) for run in runs]
    columns = {head: [foreign_text(row[head]) for row in rows] for head in rows[0]}
    return FittedTable(
        foreign_text("Runs", "table.title"),
        {head: cells for head, cells in columns.items() if any(cell.plain for cell in cells)},
    )


def _state(run: Run) -> dict[str, object]:
    """The row of a run, by columns, the most needed first."""
    now = progress_of(run)
    left = "" if now.state is RunState.FINISHED else "?" if now.seconds_left is None else duration(now.seconds_left)
    return {
        "run": run.path.name,
        "state": now.state,
        "rounds": f"{now.rounds:,} of {now.total:,}",
        "time left": left,
        "policy": run.config.policy,
        "seed": run.config.seed,
        "generator": run.seen,
        "since": "" if now.state is RunState.RUNNING else f"{now.changed:%Y-%m-%d %H:%M}",
    }


def run_record(run: Run) -> dict[str, Any]:
    """A run for JSON: where it is, what it trains, how far it is, and the measures if it is finished."""
    now = progress_of(run)
    what = {name: getattr(run.config, name) for name in ("label", "policy", "generator", "algorithm", "seed")}
    how_far = {**asdict(now), "changed": now.changed.isoformat(timespec="seconds")}
    return {"path": str(run.path), **what, **how_far, "summary": run.summary() if run.finished else None}


def plan_record(summary: Summary, policy: str) -> dict[str, Any]:
    """The key figures of a plan for JSON."""
    figures = {name: value for name, value in asdict(summary).items() if name != "largest"}
    shares = {"synthetic_share": summary.synthetic_share, "removed": summary.removed}
    return {"policy": policy, **figures, "distinct": summary.distinct, **shares}


def comparison_record(counts: LabelCounts, allocations: Sequence[Allocation]) -> list[dict[str, Any]]:
    """Policies side by side for JSON."""
    return [
        {
            "policy": each.policy,
            "generated": each.generated,
            "synthetic": each.total,
            "distinct": each.distinct,
            "removed": scores.imbalance_removed(counts, each),
        }
        for each in allocations
    ]


def partition_record(split: Split, dataset: str) -> dict[str, Any]:
    """A partition for JSON, with the label counts of every client."""
    counts = split.counts
    names = {"clients": counts.clients, "classes": counts.classes}
    listed_names = {key: None if value is None else list(map(str, value)) for key, value in names.items()}
    facts = {"dataset": dataset, "test_samples": split.test_samples, "imbalance": scores.imbalance(counts)}
    return {**facts, **listed_names, "counts": counts.n.tolist(), "notes": list(split.notes)}


class FinishedMethod(NamedTuple):
    """The finished runs of one method."""

    name: str
    labels: set[str]
    federation: tuple[object, ...]
    seeds: Seeds

    @property
    def shown(self) -> Text:
        """The name, with a note on what its generator has seen."""
        return foreign_text(self.name + (f" ({self.seeds.seen})" if self.seeds.seen else ""))


def by_method(runs: Sequence[Run]) -> list[FinishedMethod]:
    """Finished runs grouped by config without the seed."""
    return [
        FinishedMethod(
            name,
            {run.config.label for run in members},
            federation_of(members[0].config),
            Seeds({run.config.seed: run.summary() for run in members}),
        )
        for name, members in grouped([run for run in runs if run.finished], lambda run: run.config).items()
    ]


def _accuracy_table(methods: Sequence[FinishedMethod], reference: FinishedMethod | None) -> Table:
    windows = {each.seeds.window for each in methods}
    where = str(min(windows)) if len(windows) == 1 else "these rounds"
    apart = ["minus reference", "95% interval"] if reference is not None else []
    table = _numbers("Accuracy, %", ["n", *(["rounds"] if len(windows) > 1 else []), where, "final", *apart])
    if reference is not None:
        table.add_column("")  # the verdict, which may take two lines
    for each in methods:
        rounds = [str(each.seeds.window).partition(" ")[2]] if len(windows) > 1 else []
        reached = [each.seeds.percent(key).text(1) for key in ("accuracy", "final")]
        compared = _compared(each, reference) if reference is not None else []
        table.add_row(each.shown, str(len(each.seeds)), *rounds, *reached, *compared)
    table.caption = f"n seeds, mean ± deviation. Accuracy is the mean of {where}; final is the last round."
    return table


def _compared(method: FinishedMethod, reference: FinishedMethod) -> list[str]:
    """The difference to the reference in points, its interval, and the verdict."""
    if method is reference:
        return ["reference", "", ""]
    found = method.seeds.minus(reference.seeds) if method.federation == reference.federation else None
    return ["", "", ""] if found is None else [fixed(found.mean, 2), found.range_text(2), found.verdict]


def _work_table(methods: Sequence[FinishedMethod]) -> Table:
    heads = ["synthetic", "removed", "peak %", "Gamma", "steps", "images seen", "gen. s", "train s"]
    table = _numbers("Work, and other measures", heads)
    numbers = [
        (("total",), 1, 0), (("imbalance_removed",), 100, 1), (("peak",), 100, 1), (("gamma_hat",), 1, 3),
        (("steps",), 1, 0), (("samples",), 1, 0), (("seconds", "generate"), 1, 2), (("seconds", "train"), 1, 1),
    ]  # fmt: skip
    for each in methods:
        found = [(each.seeds.average(*keys), scale, decimals) for keys, scale, decimals in numbers]
        cells = ("-" if value is None else fixed(scale * value, decimals) for value, scale, decimals in found)
        table.add_row(each.shown, *cells)
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
