"""``fedeas plan`` and ``fedeas partition``: plan budgets from label counts, and split datasets over clients."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from fedeas.calls.client_counts import CountSource, own_clients, run_config
from fedeas.cli.display import (
    comparison_record,
    comparison_table,
    partition_record,
    partition_table,
    plan_record,
    summary_table,
)
from fedeas.cli.fitting import output
from fedeas.cli.options import DataRoot
from fedeas.cli.progress import announce, next_step
from fedeas.config.reading import checked_config
from fedeas.core.errors import InputError, RunError
from fedeas.core.files import write_bytes
from fedeas.core.foreign_text import printable
from fedeas.core.records import check_not_input
from fedeas.data import partition as schemes
from fedeas.data.names import NAMES
from fedeas.data.partition import PAPER_SEED
from fedeas.federation.split import split_of
from fedeas.planning.advice import advice_for
from fedeas.planning.beta import BALANCED
from fedeas.planning.columns import ColumnNames
from fedeas.planning.examples import find_example
from fedeas.planning.plan import Summary
from fedeas.planning.policies import POLICIES, FullBalance, Policy
from fedeas.planning.request import (
    Limits,
    choose_policy,
    compare_policies,
    plan_file,
    policy_left_out,
    reads_in_parts,
    write_plan,
)
from fedeas.planning.tables import Chunk, CountTable, write_counts

SPEC_HELP = f"Policy as text, such as 'fedeas(beta=12)' or 'uniform'. Known: {', '.join(POLICIES)}."

Scheme = Literal["auto", "dirichlet", "iid", "shards", "natural", "file", "paper"]
ClientColumn = Annotated[str | None, typer.Option(help="Column with the clients' names, if it is not recognised.")]
LabelColumn = Annotated[str | None, typer.Option(help="Column with the labels of (client, label) rows.")]
CountColumn = Annotated[str | None, typer.Option(help="Column with the counts of (client, label, count) rows.")]

AsJson = Annotated[bool, typer.Option("--json", help="Print as JSON; remarks go to the error output.")]

# Seconds for each count of a table, roughly, on two cores.
SEARCH_SECONDS, COMPARISON_SECONDS = 7e-7, 1e-5

DRAWS_PER_LINE = 1000  # draws between lines of progress without a terminal


def plan(
    counts: Annotated[
        str | None,
        typer.Argument(
            help="Label counts: CSV, Parquet or NPY; a split (.npz); or folder:DIR with client folders.",
            show_default=False,
        ),
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
    compare: Annotated[bool, typer.Option("--compare", help="Show other policies with as many images.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write the plan (.csv, .parquet, .json) or a run's config (.toml).")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it: .png or .svg.")] = None,
    as_json: AsJson = False,
) -> None:
    """Plan how many images each client makes of each class."""
    limits = Limits(beta, total, minutes, images_per_second, auto, max_share, min_removed)
    if (counts is None) != example:
        raise InputError("give a file of label counts, or --example for the embedded one")
    _check_outputs(counts, out, plot)
    before_reading = choose_policy(policy, limits)  # refuses what cannot be planned before a large input is read
    columns = ColumnNames(client_column, label_column, count_column)
    source = _source_without_columns(counts, classes, columns)
    if _is_config(out) and source is None:
        raise InputError(f"{out}: a run needs images, not counts alone; plan folder:DIR or a split (.npz)")
    with _saying_what_needs_less_memory():
        if source is None and counts is not None:
            file = CountTable(counts, columns)
            if not (compare or plot or classes) and reads_in_parts(file, before_reading, limits):
                _plan_in_parts(file, before_reading, out, as_json)
                return
            source = CountSource(counts, file.counts(classes), how=file.how)
        source = source or CountSource("the example", find_example().counts)
        _plan_in_memory(source, policy, limits, compare, out, plot, as_json)


def partition(
    dataset: Annotated[str, typer.Argument(help=f"A dataset: {', '.join(NAMES)}.")],
    scheme: Annotated[Scheme, typer.Option(help="How to split, as partition.scheme of a run.")] = "auto",
    clients: Annotated[int, typer.Option(help="Number of clients.")] = 20,
    alpha: Annotated[float, typer.Option(help="Dirichlet concentration; smaller is more skewed.")] = 0.1,
    per_client: Annotated[int, typer.Option(help="Shards for each client.")] = 2,
    min_size: Annotated[int, typer.Option(help="Draw again until each client holds this many (dirichlet).")] = 1,
    cap: Annotated[
        bool, typer.Option("--cap", help="No more classes for a client with its fair share (dirichlet).")
    ] = False,
    file: Annotated[Path | None, typer.Option(help="Table of samples and clients, for --scheme file.")] = None,
    seed: Annotated[int, typer.Option(help="Random seed, as partition.seed of a run.")] = PAPER_SEED,
    data_root: DataRoot = None,
    out: Annotated[Path | None, typer.Option(help="Write counts (.csv, .parquet) or who holds what (.npz).")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it: .png or .svg.")] = None,
    as_json: AsJson = False,
) -> None:
    """Split a dataset over clients, as a run with these settings does."""
    _check_outputs(file, out, plot)
    if out is not None and out.suffix not in (".csv", ".parquet", ".npz"):
        raise InputError(f"{out}: use .csv or .parquet for counts, .npz for who holds which sample")
    section: dict[str, object] = {"scheme": scheme, "clients": clients, "alpha": alpha, "per_client": per_client}
    section |= {"min_size": min_size, "cap": cap, "seed": seed, "file": str(file or "")}
    protocol = "paper" if scheme == "paper" else "clean"
    about = {"dataset": dataset, "protocol": protocol, "root": None if data_root is None else str(data_root)}
    config = checked_config({"data": about, "partition": section})
    as_indices = out is not None and out.suffix == ".npz"
    with _counting_draws() as count:
        split = split_of(config, needs_indices=as_indices, on_draw=count)
    if out is not None and as_indices:
        split.partition.save(out)
    elif out is not None:
        write_counts(out, split.counts)
    if as_json:
        print(json.dumps(partition_record(split, dataset), indent=1))
    else:
        output().print(partition_table(split, dataset))
    for note in split.notes:
        _remark(note, as_json)
    if plot:
        from fedeas.views import figures as plots

        plots.save(plots.partition_figure(split.counts), plot)
    if not as_json and out is None:
        next_step("add --out counts.csv to keep the counts, and plan with `fedeas plan counts.csv --auto`")
    elif not as_json:
        next_step(f"plan with `fedeas plan {out} --auto`")


def _is_config(out: Path | None) -> bool:
    """Whether the file is for the config of a run, and not for the plan itself."""
    return out is not None and out.suffix == ".toml"


def _source_without_columns(counts: str | None, classes: int | None, columns: ColumnNames) -> CountSource | None:
    """The clients of a dataset or a split; None for a table and the example.

    Refuse options that only a table can use.
    """
    own = None if counts is None else own_clients(counts)
    if counts is None or own is not None:
        given = {"--classes": classes} | {f"--{key}-column": value for key, value in vars(columns).items()}
        for option, value in given.items():
            if value is not None:
                raise InputError(f"{option} is for a table of counts, not for {counts or '--example'}; leave it out")
    return own


@contextmanager
def _saying_what_needs_less_memory() -> Iterator[None]:
    try:
        yield
    except MemoryError as error:
        what = ": ".join(filter(None, ("too little memory for this plan", str(error))))
        raise RunError(
            f"{what}; use a Parquet or NPY file, a policy of the package, and none of --compare, --plot and --auto"
        ) from None


def _plan_in_parts(file: CountTable, policy: Policy, out: Path | None, as_json: bool) -> None:
    """Plan a table that need not fit into memory."""
    summary = plan_file(file, policy, out)
    _show_plan(summary, policy.spec, as_json)
    _remark(f"read {file.path} as {file.how}", as_json)
    _say_if_balanced(summary, as_json)
    _suggest_after_plan(out, as_json)


def _plan_in_memory(
    source: CountSource, policy: str, limits: Limits, compare: bool, out: Path | None, plot: Path | None, as_json: bool
) -> None:
    """Plan, compare and draw counts that are known as a whole."""
    table = source.counts
    each = SEARCH_SECONDS * limits.needs_counts + COMPARISON_SECONDS * compare
    announce(each * table.n.size, f"to plan for {table.num_clients:,} clients")
    chosen = choose_policy(policy, limits, table)
    allocation = chosen.allocate(table)
    summary = write_plan([(Chunk(table, table.clients, 0), allocation)], chosen.spec, None if _is_config(out) else out)
    side_by_side = compare_policies(table, chosen, allocation) if compare else []
    compared = comparison_record(table, side_by_side) if compare else None
    _show_plan(summary, chosen.spec, as_json, compared)
    if source.how:
        _remark(f"read {source.title} as {source.how}", as_json)
    _say_if_balanced(summary, as_json)
    enough = FullBalance().allocate(table).total
    if allocation.total > enough:
        _remark(f"full balance needs fewer images, {enough:,}, and leaves no imbalance: --policy full-balance", as_json)
    if out is not None and _is_config(out):
        write_bytes(out, run_config(source, chosen).encode())
        _remark(f"config: {out}; run it with: fedeas run {out}", as_json)
    if compare and not as_json:
        output().print(comparison_table(table, side_by_side, allocation))
    elif compare and (remark := policy_left_out(side_by_side)):  # JSON has the rest already
        _remark(remark, as_json)
    if limits.auto and summary.imbalance_before > 0:
        asked = chosen.images_asked(table)
        for line in advice_for(allocation.generated if asked is None else asked, table).splitlines():
            _remark(line, as_json)
    if plot:
        from fedeas.views import figures as plots

        figure = plots.comparison_figure(table, side_by_side) if side_by_side else plots.plan_figure(table, allocation)
        plots.save(figure, plot)
        _remark(f"plot: {plot}", as_json)
    if not _is_config(out):
        _suggest_after_plan(out, as_json)


def _show_plan(
    summary: Summary, policy: str, as_json: bool, compared: Sequence[Mapping[str, object]] | None = None
) -> None:
    if as_json:
        more = {} if compared is None else {"compared": compared}
        print(json.dumps({**plan_record(summary, policy), **more}, indent=1))
    else:
        output().print(summary_table(summary, policy))


def _remark(text: str, as_json: bool) -> None:
    """Print a line; beside JSON it goes to the error output."""
    print(printable(text), file=sys.stderr if as_json else sys.stdout)


def _say_if_balanced(summary: Summary, as_json: bool) -> None:
    if summary.imbalance_before == 0:
        _remark(BALANCED, as_json)


def _suggest_after_plan(out: Path | None, as_json: bool) -> None:
    if as_json:
        return
    if out is None:
        next_step("add --out plan.csv to keep the plan, and make its images with `fedeas generate plan.csv`")
    else:
        next_step(f"make the images with `fedeas generate {out} --generator NAME --out images`")


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


def _check_outputs(source: str | Path | None, out: Path | None, plot: Path | None) -> None:
    """Refuse to write over the input, and an unknown picture format, before anything is written."""
    for path in (out, plot):
        check_not_input(path, source)
    if plot:
        from fedeas.views import figures as plots

        plots.checked_ending(plot)
