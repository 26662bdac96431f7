"""``fedeas pretrain``: train initial weights for runs centrally on a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from fedeas.cli.options import RUNS, DataRoot, Device, Folder, Minutes
from fedeas.cli.progress import progress, say_how_long
from fedeas.core.deadline import Deadline
from fedeas.runs.store import RunStore


def pretrain(
    dataset: Annotated[
        str, typer.Argument(help="cifar100, cifar10, fashion-mnist, digits, hub:, folder:, npz:.")
    ] = "cifar100",
    out: Annotated[
        Path | None, typer.Option(help="The file; weights/DATASET-pretrained.safetensors or -imagenet-stem by default.")
    ] = None,
    stem: Annotated[
        Literal["3x3", "imagenet"], typer.Option(help="First layers of a ResNet: for small images, or as for ImageNet.")
    ] = "3x3",
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training part.")] = 30,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first weights and the order of batches.")] = 0,
    device: Device = "auto",
    data_root: DataRoot = None,
    minutes: Minutes = None,
    folder: Folder = RUNS,
) -> None:
    """Train a classifier centrally, for model.weights.

    The same command resumes an interrupted training.
    """
    from fedeas.fast import backend_for
    from fedeas.federation import pretraining

    config = pretraining.pretraining_config(
        dataset, epochs, seed, device, None if data_root is None else str(data_root), stem
    )
    path = out or pretraining.default_file(dataset, stem)
    there = path.exists()
    with progress(config) as show:
        pause = None if minutes is None else Deadline(minutes)
        about = pretraining.pretrain(config, path, RunStore(folder), show, pause, say_how_long, backend_for)
    if about is None:
        print("paused; the same command resumes")
        return
    reached = f"test accuracy {about['accuracy']:.2%} after {about['epochs']} epochs on {about['dataset']}"
    print(f"{path}{' exists already' if there else ''}: {reached}, run {about['run'][:8]}")
