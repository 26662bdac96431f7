"""``fedeas weights``: list the weights that can be given by name, and fetch others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal
from rich.table import Column, Table

from fedeas.cli.display import TIGHT, foreign_text, output
from fedeas.core.weight_files import MADE_BY, all_files, search_folders

weights = typer.Typer(
    name="weights", no_args_is_help=True, help="List weights that are found by name, and fetch others."
)


@weights.command()
def ls() -> None:
    """List all weights that can be given by name, and the folders that are searched."""
    size = Column("size", justify="right", overflow="fold")
    table = Table(
        Column("name", overflow="fold"), "for", size, Column("file", overflow="fold"), title="Weights", **TIGHT
    )
    for name, file in all_files().items():
        use = "model.weights" if name.endswith(tuple(MADE_BY)) else "generators"
        table.add_row(foreign_text(name), use, decimal(file.stat().st_size), foreign_text(file))
    output().print(table)
    print("searched, in this order:")
    for folder in search_folders():
        print(f"  {folder}")


@weights.command()
def get(
    source: Annotated[str, typer.Argument(help="hub:OWNER/REPOSITORY/FILE.safetensors, or a file to copy.")],
    name: Annotated[str | None, typer.Option(help="Name to give them; the file's by default.")] = None,
) -> None:
    """Put weights into the cache folder, where every command finds them by name."""
    from fedeas.core.weight_files import get_weights

    path: Path = get_weights(source, name)
    print(path)
