"""``fedeas reproduce``: the paper's numbers and figures beside our own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedeas.display import claim_record, claims_markdown, claims_tables
from fedeas.errors import InputError
from fedeas.paper.claims import Status, count_claims

reproduce = typer.Typer(no_args_is_help=True, help="The paper's numbers and figures beside our own.")


@reproduce.command("counts")
def reproduce_counts(
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print as Markdown.")] = False,
    slow: Annotated[
        bool, typer.Option("--slow", help="Also draw the partition of 10,826 draws anew (a minute).")
    ] = False,
) -> None:
    """Every number of the paper that follows from label counts, ours beside the paper's."""
    claims = count_claims(slow)
    wrong = sum(claim.status is Status.WRONG for claim in claims)
    if as_json:
        print(json.dumps([claim_record(claim) for claim in claims], indent=1))
    elif as_markdown:
        print(claims_markdown(claims))
    else:
        console = Console()
        for table in claims_tables(claims):
            console.print(table)
        tally = {status: sum(claim.status is status for claim in claims) for status in Status}
        console.print(", ".join(f"{count} {status}" for status, count in tally.items()))
    if wrong:
        raise typer.Exit(1)


@reproduce.command("figures")
def reproduce_figures(
    counts_only: Annotated[bool, typer.Option("--counts-only", help="Those that need no training.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for PNG and SVG files.")] = Path("figures"),
) -> None:
    """The paper's figures, drawn anew."""
    if not counts_only:
        raise InputError("only the figures that follow from label counts can be drawn so far; add --counts-only")
    from fedeas.paper.figures import draw_count_figures

    for path in draw_count_figures(out):
        print(path)
