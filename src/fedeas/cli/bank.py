"""``fedeas bank``: list, verify and remove generated images on disk."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.filesize import decimal

from fedeas.cli.display import output, table
from fedeas.core.errors import InputError, RunError
from fedeas.core.foreign_text import printable

if TYPE_CHECKING:
    from fedeas.generators.bank import Bank

bank = typer.Typer(name="bank", no_args_is_help=True, help="List, verify and remove generated images on disk.")

Folder = Annotated[Path, typer.Option("--bank", help="Folder of the images.")]
Fingerprints = Annotated[
    list[str] | None, typer.Argument(help="Generators, by the first digits of their fingerprints.", show_default=False)
]
BANK = Path("runs/.bank")
SHOWN = 10  # damaged images that are listed; the rest is counted


@bank.command("ls")
def list_kept(folder: Folder = BANK) -> None:
    """List the generators whose images are kept."""
    own, names = _chosen(folder, None)
    kept = [own.kept(name) for name in names]
    columns = {
        "fingerprint": [each.name for each in kept],
        "generator": ["unusable" if each.problem else each.description for each in kept],
        "images": ["?" if each.images is None else f"{each.images:,}" for each in kept],
        "clients": [f"{each.clients:,}" for each in kept],
        "on disk": [decimal(each.bytes) for each in kept],
        "last used": [f"{datetime.fromtimestamp(each.used):%Y-%m-%d %H:%M}" for each in kept],
    }
    output().print(table("Generated images", columns, [printable(each.problem) for each in kept], whole=True))


@bank.command()
def verify(fingerprints: Fingerprints = None, folder: Folder = BANK) -> None:
    """Hash all images, or those of some generators."""
    kept, names = _chosen(folder, fingerprints)
    with Console().status("hashing images"):
        results = [kept.verify(name) for name in names]
    for result in results:
        for address in result.damaged[:SHOWN]:
            print(printable(f"{result.name}: {address} is damaged"))
        if len(result.damaged) > SHOWN:
            print(printable(f"{result.name}: and {len(result.damaged) - SHOWN:,} more"))
    checked, damaged = sum(each.checked for each in results), sum(len(each.damaged) for each in results)
    if damaged:
        raise RunError(
            f"{damaged:,} of {checked:,} images are damaged; they will be generated again at their next use, "
            "or remove them with `fedeas bank prune --damaged`"
        )
    print(f"all {checked:,} images are good")


@bank.command()
def prune(
    fingerprints: Fingerprints = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove the images of all generators.")] = False,
    damaged: Annotated[bool, typer.Option("--damaged", help="Remove only images that are damaged.")] = False,
    folder: Folder = BANK,
) -> None:
    """Remove kept images; images that are needed later will be generated again."""
    if everything and (fingerprints or damaged):
        raise InputError("--all goes with neither fingerprints nor --damaged")
    if not (fingerprints or everything or damaged):
        raise InputError("nothing chosen; give fingerprints as `fedeas bank ls` lists them, --all or --damaged")
    kept, names = _chosen(folder, fingerprints)
    for name in names:
        if damaged:
            result = kept.verify(name, clear=True)
            print(f"{name}: {len(result.damaged):,} of {result.checked:,} images were damaged and are removed")
        else:
            removed = kept.prune(name)
            images = "images" if removed.images is None else f"{removed.images:,} images"
            print(f"{name}: {images} removed, {decimal(removed.bytes)} freed")


def _chosen(folder: Path, fingerprints: Sequence[str] | None) -> tuple[Bank, list[str]]:
    """The bank and names in it, each once; all are looked up before anything is changed."""
    from fedeas.generators.bank import Bank

    kept = Bank(folder)
    if fingerprints:
        return kept, list(dict.fromkeys(map(kept.name, fingerprints)))
    names = kept.names()
    if not names:
        raise InputError(f"{folder}: no generated images are kept here")
    return kept, names
