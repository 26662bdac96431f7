"""Tables of plans and runs for the terminal.

They fit it without cutting a name or a number, and are complete in a pipe or a file.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.table import Column, Table
from rich.text import Text

from fedeas.core.deadline import duration
from fedeas.core.foreign_text import printable
from fedeas.planning import scores
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies import CertifiedAllocation, SharedAllocation
from fedeas.planning.request import policy_left_out
from fedeas.runs.comparison import Seeds, fixed
from fedeas.runs.methods import federation_of, grouped, named
from fedeas.runs.store import Run, RunState

TIGHT: dict[str, Any] = {
    "box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0), "pad_edge": False,
    "title_justify": "left", "caption_justify": "left",
}  # fmt: skip
"""Fits eighty columns."""

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


def table(
    title: str,
    columns: Mapping[str, Sequence[object]],
    notes: Sequence[str] = (),
    *,
    bold: int | None = None,
    whole: bool = False,
) -> Table:
    """A table by columns, with notes below it. Where it is too wide, the widest columns are broken into lines.

    Args:
        title: above the table.
        columns: the cells of each column by its head; those with numbers end at the right.
        notes: below the table.
        bold: the number of a row.
        whole: never break the first column.
    """
    caption = Text("\n".join(map(printable, filter(None, notes))), "table.caption")
    found = Table(title=foreign_text(title, "table.title"), caption=caption or None, **TIGHT)
    for place, (head, cells) in enumerate(columns.items()):
        are_numbers = place and all(str(cell)[:1] in "-−?0123456789" for cell in cells)
        justify: JustifyMethod = "right" if are_numbers else "left"
        found.add_column(stacked(head), justify=justify, overflow="fold", no_wrap=whole and not place)
    for number, row in enumerate(zip(*columns.values(), strict=True)):
        found.add_row(*map(foreign_text, row), style="bold" if number == bold else None)
    return found


def facts_table(title: str, facts: Mapping[str, str | Text]) -> Table:
    """Two columns of facts, with untrusted text in the title."""
    heading = foreign_text(title, "table.title")
    table = Table("", Column(justify="right"), title=heading, title_justify="left", show_header=False)
    for name, value in facts.items():
        table.add_row(name, value)
    return table


def comparison_table(counts: LabelCounts, allocations: Sequence[Allocation], chosen: Allocation) -> Table:
    """Policies side by side, with `chosen` in bold."""
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
    remarks = []  # what the columns do not say about a plan
    for name, each in zip(names, allocations, strict=True):
        if isinstance(each, SharedAllocation):
            remarks.append(f"{name}: several clients get the same image")
        elif isinstance(each, CertifiedAllocation):
            above = f"at most {each.gap:.0e} above" if each.gap else "at"
            remarks.append(f"{name}: proved to leave {each.minimised} {above} the least possible")
    title = f"{chosen.policy} beside policies that make at most as many images, no generation and full balance"
    notes = [ABOUT_COLUMNS, "; ".join(remarks), policy_left_out(allocations)]
    bold = next((place for place, each in enumerate(allocations) if each is chosen), None)
    return table(title, columns, notes, bold=bold)


def states_table(runs: Sequence[Run]) -> Table:
    """The state of each run: running, stopped or finished, its rounds, and the time left; the most needed first."""
    heads = ("run", "state", "rounds", "time left", "policy", "seed", "generator", "since")
    rows = []
    for run in runs:
        now, config = run.progress(), run.config
        left = "?" if now.seconds_left is None else duration(now.seconds_left)
        left = "" if now.state is RunState.FINISHED else left
        since = "" if now.state is RunState.RUNNING else f"{now.changed:%Y-%m-%d %H:%M}"
        done = f"{now.rounds:,} of {now.total:,}"
        state = f"{now.state}{run.unverified}"
        rows.append((run.path.name, state, done, left, config.policy, str(config.seed), run.seen, since))
    columns = zip(heads, zip(*rows, strict=True), strict=True)
    return table("Runs", {head: cells for head, cells in columns if any(cells)}, whole=True)


def runs_tables(runs: Sequence[Run], reference: str | None = None) -> RenderableType:
    """Accuracy and work of runs, a row for runs that differ only in their seed; unfinished runs are listed below.

    With a `reference`, the label or name of one method, also the difference to its accuracy, paired by seed, of
    methods on the same data and clients.
    """
    methods = grouped([run for run in runs if run.finished], lambda run: run.config)
    seeds = {name: Seeds({run.config.seed: run.summary() for run in group}) for name, group in methods.items()}
    if reference is not None:
        reference = named(reference, {name: {run.config.label for run in group} for name, group in methods.items()})
    tables: list[RenderableType] = []
    if methods:
        federations = {name: federation_of(group[0].config) for name, group in methods.items()}
        tables = [_accuracy_table(seeds, federations, reference), _work_table(seeds)]
    waiting = [run for run in runs if not run.finished]
    names = [f"{run.path.name} ({len(run.rounds())} of {run.config.rounds.total} rounds)" for run in waiting]
    return Group(*tables, *([foreign_text(f"unfinished: {', '.join(names)}")] if names else []))


def _accuracy_table(seeds: Mapping[str, Seeds], federations: Mapping[str, object], reference: str | None) -> Table:
    windows = {own.window for own in seeds.values()}
    where = str(min(windows)) if len(windows) == 1 else "these rounds"
    columns: dict[str, Sequence[str]] = {"run": _names(seeds), "n": [str(len(own)) for own in seeds.values()]}
    if len(windows) > 1:
        columns["rounds"] = [str(own.window).partition(" ")[2] for own in seeds.values()]
    columns[where] = [own.percent("accuracy").text(1) for own in seeds.values()]
    columns["final"] = [own.percent("final").text(1) for own in seeds.values()]
    if reference is not None:
        compared = [("reference", "", "") if name == reference else ("", "", "") for name in seeds]
        for place, (name, own) in enumerate(seeds.items()):
            alike = name != reference and federations[name] == federations[reference]
            if alike and (found := own.minus(seeds[reference])) is not None:
                compared[place] = fixed(found.mean, 2), found.range_text(2), found.verdict
        columns |= zip(("minus reference", "95% interval", ""), zip(*compared, strict=True), strict=True)
    caption = f"n seeds, mean ± deviation. Accuracy is the mean of {where}; final is the last round."
    return table("Accuracy, %", columns, [caption])


def _work_table(seeds: Mapping[str, Seeds]) -> Table:
    numbers: dict[str, tuple[Sequence[str], int, int]] = {  # what is averaged, its factor and its decimals
        "synthetic": (["total"], 1, 0),
        "removed": (["imbalance_removed"], 100, 1),
        "peak %": (["peak"], 100, 1),
        "Gamma": (["gamma_hat"], 1, 3),
        "steps": (["steps"], 1, 0),
        "images seen": (["samples"], 1, 0),
        "gen. s": (["seconds", "generate"], 1, 2),
        "train s": (["seconds", "train"], 1, 1),
    }
    columns: dict[str, Sequence[str]] = {"run": _names(seeds)}
    for head, (keys, scale, decimals) in numbers.items():
        values = [own.average(*keys) for own in seeds.values()]
        columns[head] = ["-" if value is None else fixed(scale * value, decimals) for value in values]
    caption = (
        "Means over seeds. Synthetic: images planned; removed: label imbalance, %; peak: best round; images seen: "
        "by the steps, each as often as it was seen."
    )
    return table("Work, and other measures", columns, [caption])


def _names(seeds: Mapping[str, Seeds]) -> list[str]:
    return [f"{name} ({own.seen})" if own.seen else name for name, own in seeds.items()]
