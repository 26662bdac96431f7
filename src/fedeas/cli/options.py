"""Options that several commands share, and what they stand for."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fedeas.config.reading import load_config
from fedeas.config.run import RunConfig
from fedeas.core.records import is_there

DataRoot = Annotated[Path | None, typer.Option(help="Folder with the datasets' Parquet files.")]
Device = Annotated[str, typer.Option(help="cpu, cuda or auto.")]
Folder = Annotated[Path, typer.Option("--runs", help="Folder of run directories.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print as JSON.")]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse weights if no record tells what they have seen.")]
Config = Annotated[
    str | None,
    typer.Argument(help="TOML file, or a name such as digits; without one, the defaults.", show_default=False),
]
Overrides = Annotated[list[str] | None, typer.Argument(help="key=value, such as train.lr=0.05.")]
Minutes = Annotated[float | None, typer.Option(min=0.1, help="Pause then; the same command resumes.")]
RUNS = Path("runs")


def read_config(path: str | None, overrides: list[str], data_root: Path | None) -> RunConfig:
    """The config of a run. ``fedeas run train.lr=0.05`` has no file: the first argument is an override.

    A file whose name begins like an override is given as ``./train.lr=0.05``.
    """
    key, equals, _ = (path or "").partition("=")
    is_key = key.strip() in RunConfig().flat
    if path is not None and equals and (is_key or ("/" not in key and not is_there(path))):
        overrides, path = [path, *overrides], None
    if data_root is not None:
        overrides = [*overrides, f"data.root={json.dumps(str(data_root))}"]
    return load_config(path, overrides)


def print_json(record: Any) -> None:
    """Print what a command has found, for programs."""
    print(json.dumps(record, indent=1))
