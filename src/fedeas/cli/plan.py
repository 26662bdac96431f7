"""``fedeas plan`` and ``fedeas partition``: plan budgets from label counts, and split datasets over clients."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import typer
from rich.console import Console
from rich.text import Text

from fedeas.calls import running
from fedeas.calls.client_counts import NEEDS_IMAGES, CountSource, own_clients, run_config
from fedeas.cli.display import comparison_table, facts_table, foreign_text, output
from fedeas.cli.options import DataRoot, print_json
from fedeas.cli.progress import announce, steps_shown
from fedeas.config.reading import checked_config
from fedeas.core.errors import InputError, RunError
from fedeas.core.files import write_bytes
from fedeas.core.foreign_text import printable
from fedeas.core.records import check_not_input
from fedeas.data import partition as schemes
from fedeas.data.names import NAMES
from fedeas.data.partition import PAPER_SEED
from fedeas.planning import scores
from fedeas.planning.advice import advice_for
from fedeas.planning.beta import BALANCED
from fedeas.planning.columns import ColumnNames
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.examples import find_example
from fedeas.planning.plan import Summary
from fedeas.planning.policies import POLICIES, FullBalance, Policy
from fedeas.planning.request import (
    Limits,
    choose_policy,
    compare_policies,
    plan_in_parts,
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
    out: Annotated[Path | None, typer.Option(help="Write the plan (.csv, .parquet) or a run's config (.toml).")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it: .png or .svg.")] = None,
    as_json: AsJson = False,
) -> None:
    """Plan how many images each client makes of each class."""
    limits = Limits(beta, total, minutes, images_per_second, auto, max_share, min_removed)
    if (counts is None) != example:
        raise InputError("give a file of label counts, or --example for the embedded one")
    for path in (out, plot):
        check_not_input(path, counts)
    if plot:
        from fedeas.views.figures import checked_ending

        checked_ending(plot)
    policy_before = choose_policy(policy, limits)  # refuses what cannot be planned before a large input is read
    columns = ColumnNames(client_column, label_column, count_column)
    own = CountSource("the example", find_example().counts) if counts is None else own_clients(counts)
    if own is not None:
        options = {"--classes": classes, **{f"--{key}-column": value for key, value in vars(columns).items()}}
        if given := [name for name, value in options.items() if value is not None]:
            raise InputError(f"{given[0]} is for a table of counts, not for {counts or '--example'}; leave it out")
    makes_config = out is not None and out.suffix == ".toml"
    if makes_config and not (own and own.config):
        raise InputError(f"{out}: {NEEDS_IMAGES}")
    try:
        file = None if counts is None or own is not None else CountTable(counts, columns)
        if file is not None and not (compare or plot or classes) and reads_in_parts(file, policy_before, limits):
            summary = write_plan(plan_in_parts(file, policy_before), policy_before.spec, out)
            _show_plan(summary, policy_before, str(file.path), file.how, as_json)
        else:
            source = CountSource(str(counts), file.counts(classes), how=file.how) if file is not None else own
            assert source is not None
            _plan_in_memory(source, policy, limits, compare, out, plot, as_json)
    except MemoryError as error:
        what = ": ".join(filter(None, ("too little memory for this plan", str(error))))
        raise RunError(
            f"{what}; use a Parquet or NPY file, a policy of the package, and none of --compare, --plot and --auto"
        ) from None


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
    as_json: AsJson = False,
) -> None:
    """Split a dataset over clients, as a run with these settings does."""
    check_not_input(out, file)
    if out is not None and out.suffix not in (".csv", ".parquet", ".npz"):
        raise InputError(f"{out}: use .csv or .parquet for counts, .npz for who holds which sample")
    section: dict[str, object] = {"scheme": scheme, "clients": clients, "alpha": alpha, "per_client": per_client}
    section |= {"min_size": min_size, "cap": cap, "seed": seed, "file": str(file or "")}
    protocol = "paper" if scheme == "paper" else "clean"
    about = {"dataset": dataset, "protocol": protocol, "root": None if data_root is None else str(data_root)}
    config = checked_config({"data": about, "partition": section})
    as_indices = out is not None and out.suffix == ".npz"
    with steps_shown("draws", Console(stderr=True)) as tell:  # some settings take thousands of draws
        split = running.partition(config, images=as_indices, on_draw=lambda draw: tell(draw, schemes.MAX_DRAWS))
    if out is not None and as_indices:
        split.partition.save(out)
    elif out is not None:
        write_counts(out, split.counts)
    counts, imbalance = split.counts, scores.imbalance(split.counts)
    if as_json:
        names = {"clients": counts.clients, "classes": counts.classes}
        listed = {key: None if value is None else list(map(str, value)) for key, value in names.items()}
        record = {"dataset": dataset, "test_samples": split.test_samples, "imbalance": imbalance, **listed}
        print_json({**record, "counts": counts.n.tolist(), "notes": list(split.notes)})
    else:
        sizes = counts.sizes
        middle = f"{np.median(sizes):,.1f}"
        facts: dict[str, str | Text] = {
            "clients x classes": f"{counts.num_clients:,} x {counts.num_classes}",
            "training samples": f"{counts.total:,}",
            "test samples at the server": f"{split.test_samples:,}",
            "samples of a client, least / median / most": f"{sizes.min():,} / {middle} / {sizes.max():,}",
            "classes a client holds, on average": f"{(counts.n > 0).sum(axis=1).mean():.1f}",
            "pairs without a sample": f"{(counts.n == 0).sum():,} of {counts.n.size:,}",
            "imbalance I": f"{imbalance:.4f}",
            "recipe": foreign_text(", ".join(f"{key}={value}" for key, value in split.partition.recipe.items())),
        }
        output().print(facts_table(f"{dataset} over {counts.num_clients:,} clients", facts))
    for note in split.notes:
        _remark(note, as_json)


def _plan_in_memory(
    source: CountSource, policy: str, limits: Limits, compare: bool, out: Path | None, plot: Path | None, as_json: bool
) -> None:
    """Plan, compare and draw counts that are known as a whole."""
    table, config = source.counts, out if out is not None and out.suffix == ".toml" else None
    each = SEARCH_SECONDS * limits.needs_counts + COMPARISON_SECONDS * compare
    announce(each * table.n.size, f"to plan for {table.num_clients:,} clients")
    chosen = choose_policy(policy, limits, table)
    allocation = chosen.allocate(table)
    summary = write_plan([(Chunk(table, table.clients, 0), allocation)], chosen.spec, None if config else out)
    compared = compare_policies(table, chosen, allocation) if compare else []
    _show_plan(summary, chosen, source.title, source.how, as_json, (table, compared) if compare else None)
    enough = FullBalance().allocate(table).total
    if allocation.total > enough:
        _remark(f"full balance needs fewer images, {enough:,}, and leaves no imbalance: --policy full-balance", as_json)
    if config is not None:
        write_bytes(config, run_config(source, chosen).encode())
        _remark(f"config: {config}; run it with: fedeas run {config}", as_json)
    if compare and not as_json:
        output().print(comparison_table(table, compared, allocation))
    elif compare and (remark := policy_left_out(compared)):  # JSON has the rest already
        _remark(remark, as_json)
    if limits.auto and summary.imbalance_before > 0:
        asked = chosen.images_asked(table)
        for line in advice_for(allocation.generated if asked is None else asked, table).splitlines():
            _remark(line, as_json)
    if plot:
        from fedeas.views import figures

        figures.save(figures.plan_figure(table, allocation), plot)
        _remark(f"plot: {plot}", as_json)


def _show_plan(
    summary: Summary,
    policy: Policy,
    name: str,
    how: str,
    as_json: bool,
    compared: tuple[LabelCounts, Sequence[Allocation]] | None = None,
) -> None:
    """Print the key figures of a plan, and how its table of this name was read."""
    if as_json:
        record = {"policy": policy.spec, **asdict(summary)}
        del record["largest"]
        record |= {name: getattr(summary, name) for name in ("distinct", "synthetic_share", "removed")}
        if compared is not None:
            counts, plans = compared
            kept = ("policy", "generated", "total", "distinct")
            record["compared"] = [
                {
                    **{name.replace("total", "synthetic"): getattr(each, name) for name in kept},
                    "removed": scores.imbalance_removed(counts, each),
                }
                for each in plans
            ]
        print_json(record)
    else:
        most, least = (f"{each.samples:,} (client {each.client})" for each in (summary.most, summary.least))
        facts: dict[str, str | Text] = {
            "clients": f"{summary.clients:,}",
            "real samples": f"{summary.real:,}",
            "synthetic samples": f"[bold]{summary.synthetic:,}[/]",
            "distinct, if all clients share images": f"{summary.distinct:,}",
            "synthetic share of all data": f"{summary.synthetic_share:.2%}",
            "imbalance removed": f"[bold]{summary.removed:.2%}[/]",
            "imbalance I, before → after": f"{summary.imbalance_before:.4f} → {summary.imbalance_after:.4f}",
            "clients that generate": f"{summary.receiving:,} of {summary.clients:,}",
            "most for one client": foreign_text(most),
            "least for one client": foreign_text(least),
        }
        output().print(facts_table(policy.spec, facts))
    if how:
        _remark(f"read {name} as {how}", as_json)
    if summary.imbalance_before == 0:
        _remark(BALANCED, as_json)


def _remark(text: str, as_json: bool) -> None:
    """Print a line; beside JSON it goes to the error output."""
    print(printable(text), file=sys.stderr if as_json else sys.stdout)
