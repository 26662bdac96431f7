"""``fedeas generate``: make the images of a plan."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedeas.cli.options import DataRoot, Device
from fedeas.cli.progress import steps_shown
from fedeas.core.errors import InputError
from fedeas.core.foreign_text import printable
from fedeas.data.names import NAMES
from fedeas.planning.tables import read_allocation

FORMATS = "folder (client/class/*.png), parquet or npz (a file for each client)"


def generate(
    plan: Annotated[Path, typer.Argument(help="A plan that `fedeas plan --out` wrote: CSV, Parquet or JSON.")],
    generator: Annotated[str, typer.Option(help="Where images come from, such as gaussian or diffusion(weights=...).")],
    out: Annotated[Path, typer.Option(help="Folder for the images and their manifest.")],
    dataset: Annotated[str | None, typer.Option(help=f"What the images imitate: {', '.join(NAMES)}.")] = None,
    data_root: DataRoot = None,
    shape: Annotated[str | None, typer.Option(help="Channels,height,width for a function of your own.")] = None,
    client: Annotated[str | None, typer.Option(help="Only this client, by its name in the plan.")] = None,
    form: Annotated[str, typer.Option("--format", help=f"{FORMATS}.")] = "folder",
    bank: Annotated[Path | None, typer.Option(help="Folder of images that runs share, such as runs/.bank.")] = None,
    device: Device = "auto",
) -> None:
    """Make the images of a plan; the same command resumes."""
    from fedeas.calls.plan_images import ImageFormat, check_folder, source_for, write_images

    if form not in list(ImageFormat):
        raise InputError(f"unknown format {form!r}; use {FORMATS}")
    chosen = read_allocation(plan)
    wanted = int(chosen.total if client is None else chosen.per_client[chosen.row_of(client)])
    if not wanted:
        print(f"{printable(plan)} asks for no images; nothing to do")
        return
    check_folder(out, dataset)  # before the generator is made, which may take long
    size = None
    if shape is not None:
        try:
            channels, height, width = map(int, shape.replace("x", ",").split(","))
        except ValueError:
            raise InputError(f"--shape {shape}: give channels,height,width, such as 3,32,32") from None
        size = channels, height, width
    source = source_for(chosen, generator, dataset, data_root, size, device)
    start = time.perf_counter()
    with steps_shown("images", Console(stderr=True)) as tell:
        done = write_images(source, out, ImageFormat(form), client, bank, tell)
    seconds = time.perf_counter() - start
    rate = f", {done.made / seconds:,.0f} images a second" if done.made else ""
    print(printable(f"{done.images:,} images in {out}, {done.made:,} of them made now in {seconds:.1f} s{rate}"))
    print(printable(f"manifest: {done.manifest}"))
