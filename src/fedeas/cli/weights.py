"""``fedeas weights``: list the weights that can be given by name, and fetch others."""

from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal

from fedeas.cli.display import output, table
from fedeas.core.weight_files import MADE_BY, all_files, search_folders

weights = typer.Typer(
    name="weights", no_args_is_help=True, help="List weights that are found by name, and fetch others."
)


@weights.command()
def ls() -> None:
    """List all weights that can be given by name, and the folders that are searched."""
    files = all_files()
    columns = {
        "name": list(files),
        "for": ["model.weights" if name.endswith(tuple(MADE_BY)) else "generators" for name in files],
        "size": [decimal(file.stat().st_size) for file in files.values()],
        "file": list(map(str, files.values())),
    }
    output().print(table("Weights", columns))
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
