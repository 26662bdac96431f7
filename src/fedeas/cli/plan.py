"""``fedeas plan`` and ``fedeas partition``: plan budgets from label counts, and split datasets over clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from fedeas.cli.display import comparison_table, partition_table, summary_table
from fedeas.core.foreign_text import printable
from fedeas.data import partition as schemes
from fedeas.data.known import KNOWN, known_dataset
from fedeas.data.partition import PAPER_SEED, Partition
from fedeas.errors import InputError
from fedeas.paper.published import example_counts
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies import POLICIES
from fedeas.planning.request import Limits, choose_policy, matched, plan_chunks
from fedeas.planning.tables import Chunk, ColumnNames, CountTable, write_counts

SPEC_HELP = f"Policy as text, such as 'fedeas(beta=12)' or 'uniform'. Known: {', '.join(POLICIES)}."


Scheme = Literal["dirichlet", "iid", "shards", "paper"]
ClientColumn = Annotated[str | None, typer.Option(help="Column with the clients' names, if it is not recognised.")]
LabelColumn = Annotated[str | None, typer.Option(help="Column with the labels of (client, label) rows.")]
CountColumn = Annotated[str | None, typer.Option(help="Column with the counts of (client, label, count) rows.")]

DRAWS_PER_LINE = 1000  # draws between lines of progress without a terminal


def plan(
    counts: Annotated[
        Path | None, typer.Argument(help="Label counts: CSV, Parquet or NPY.", show_default=False)
    ] = None,
    example: Annotated[
        bool, typer.Option("--example", help="Use the paper's CIFAR-10 partition over 20 clients.")
    ] = False,
    policy: Annotated[str, typer.Option(help=SPEC_HELP)] = "fedeas",
    beta: Annotated[float | None, typer.Option(help="FedEAS's budget parameter.")] = None,
    total: Annotated[int | None, typer.Option(help="Generate at most this many samples.")] = None,
    auto: Annotated[bool, typer.Option("--auto", help="Choose beta by the paper's two conditions.")] = False,
    minutes: Annotated[float | None, typer.Option(help="Generate for at most this long ...")] = None,
    images_per_second: Annotated[float | None, typer.Option(help="... at this rate.")] = None,
    max_share: Annotated[float | None, typer.Option(help="Stay below this synthetic share (0.25 with --auto).")] = None,
    min_removed: Annotated[float | None, typer.Option(help="Remove this share of imbalance (0.5 with --auto).")] = None,
    classes: Annotated[int | None, typer.Option(help="Number of classes, for (client, label) rows.")] = None,
    client_column: ClientColumn = None,
    label_column: LabelColumn = None,
    count_column: CountColumn = None,
    compare: Annotated[bool, typer.Option("--compare", help="Show all policies at the same budget.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the allocation: .csv, .parquet or .json.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it: .png or .svg.")] = None,
) -> None:
    """Plan how many synthetic samples each client generates of each class."""
    limits = Limits(beta, total, minutes, images_per_second, auto, max_share, min_removed)
    if (counts is None) != example:
        raise InputError("give a file of label counts, or --example for the embedded one")
    _check_plot(plot)
    chosen = choose_policy(policy, limits)
    file = None if counts is None else CountTable(counts, ColumnNames(client_column, label_column, count_column))
    if file is not None and chosen.is_local and not (limits.needs_counts or compare or plot or classes):
        Console().print(summary_table(plan_chunks(file.chunks(), chosen, out), chosen.spec))
        _say_how(file)
        return
    table = example_counts() if file is None else file.counts(classes)
    chosen = choose_policy(policy, limits, table)
    summary = plan_chunks([Chunk(table, table.clients, 0)], chosen, out)
    Console().print(summary_table(summary, chosen.spec))
    if file is not None:
        _say_how(file)
    side_by_side = matched(table, chosen) if compare else []
    if compare:
        Console().print(comparison_table(table, side_by_side, chosen.spec))
    if plot:
        _draw_plan(plot, table, chosen.allocate(table), side_by_side)


def partition(
    dataset: Annotated[str, typer.Argument(help=f"A dataset of known class sizes: {', '.join(KNOWN)}.")],
    scheme: Annotated[Scheme, typer.Option(help="How to split; 'paper' replays the paper's own.")] = "dirichlet",
    clients: Annotated[int, typer.Option(help="Number of clients.")] = 20,
    alpha: Annotated[float, typer.Option(help="Dirichlet concentration; smaller is more skewed.")] = 0.1,
    per_client: Annotated[int, typer.Option(help="Shards for each client.")] = 2,
    min_size: Annotated[int, typer.Option(help="Draw again until each client holds this many (dirichlet).")] = 1,
    cap: Annotated[
        bool, typer.Option("--cap", help="No more classes for a client with its fair share (dirichlet).")
    ] = False,
    test_fraction: Annotated[float, typer.Option(help="Share of each client's samples put aside for testing.")] = 0.0,
    seed: Annotated[
        int | None, typer.Option(help=f"Random seed: 0, or {PAPER_SEED} for the paper's.", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write counts (.csv, .parquet) or all indices (.npz).")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it: .png or .svg.")] = None,
) -> None:
    """Split a dataset over clients. No images are read: indices count the samples in class order."""
    _check_plot(plot)
    labels = known_dataset(dataset).labels(merged=False)
    if scheme == "paper":
        split = schemes.paper_replay(dataset, clients, alpha, PAPER_SEED if seed is None else seed)
    elif scheme == "dirichlet":
        with _counting_draws() as count:
            split = schemes.dirichlet(
                labels, clients, alpha,
                seed=seed or 0, min_size=min_size, cap=cap, test_fraction=test_fraction, on_draw=count,
            )  # fmt: skip
    elif scheme == "shards":
        split = schemes.shards(labels, clients, per_client, seed=seed or 0, test_fraction=test_fraction)
    else:
        split = schemes.iid(labels, clients, seed=seed or 0, test_fraction=test_fraction)
    counts = LabelCounts(split.counts.n, classes=known_dataset(dataset).classes)
    _write_partition(out, split, counts)
    Console().print(partition_table(split, f"{dataset} over {clients} clients"))
    if plot:
        from fedeas.plotting import figures as plots

        plots.save(plots.partition_figure(counts), plot)


def _say_how(file: CountTable) -> None:
    print(printable(f"read {file.path} as {file.how}"))


@contextmanager
def _counting_draws() -> Iterator[Callable[[int], None]]:
    """Show how many times the split has been drawn; some settings take thousands of draws."""
    console = Console(stderr=True)
    with console.status("drawing") as status:

        def count(draw: int) -> None:
            status.update(f"drawing, {draw:,} of {schemes.MAX_DRAWS:,} at most")
            if draw % DRAWS_PER_LINE == 0 and not console.is_terminal:
                console.print(f"drawing, {draw:,} of {schemes.MAX_DRAWS:,} at most")

        yield count


def _check_plot(path: Path | None) -> None:
    """Refuse an unknown picture format before anything is written."""
    if path:
        from fedeas.plotting import figures as plots

        plots.checked_ending(path)


def _draw_plan(path: Path, counts: LabelCounts, allocation: Allocation, side_by_side: list[Allocation]) -> None:
    from fedeas.plotting import figures as plots

    figure = plots.comparison_figure(counts, side_by_side) if side_by_side else plots.plan_figure(counts, allocation)
    plots.save(figure, path)
    print(f"plot: {path}")


def _write_partition(path: Path | None, split: Partition, counts: LabelCounts) -> None:
    if path is None:
        return
    if path.suffix == ".npz":
        split.save(path)
    elif path.suffix in (".csv", ".parquet"):
        write_counts(path, counts)
    else:
        raise InputError(f"{path}: use .csv or .parquet for counts, .npz for all indices")
