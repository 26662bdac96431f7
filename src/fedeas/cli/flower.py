"""``fedeas flower``: train federations on Flower's SuperLink and nodes."""

import tomllib
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from fedeas.cli.options import Config, Overrides, read_config
from fedeas.core.errors import FedEASError, InputError, RunError, extra_for

flower = typer.Typer(name="flower", no_args_is_help=True, help="Train a federation on Flower's SuperLink and nodes.")


@flower.command()
def run(
    config: Config = None,
    overrides: Overrides = None,
    superlink: Annotated[
        str, typer.Option(help="Name of the SuperLink in Flower's config.toml; by default Flower's default.")
    ] = "",
    data_root: Annotated[Path | None, typer.Option(help="Folder with the datasets' files, on the server.")] = None,
    runs: Annotated[Path, typer.Option(help="Folder of run directories, on the server.")] = Path("runs"),
) -> None:
    """Train a federation on a SuperLink and show the server's log.

    The folder deploy/ in the source release of FedEAS sets up a SuperLink and nodes; deploy/README.md says how.
    """
    settings = read_config(config, [*(overrides or []), "engine.name=flower"], data_root)
    with extra_for("fedeas flower"):
        import_module("flwr")
    from fedeas.flower.operator import Operator

    operator, held = Operator(superlink), list[str]()

    def show(line: str) -> None:
        """Print the lines of the log; the last one, if it is an error, is left to the command's own."""
        print("".join(f"{each}\n" for each in held), end="", flush=True)
        held[:] = [line] if line.startswith("error: ") else []
        if not held:
            print(line, flush=True)

    try:
        outcome = operator.run(None, {"settings": settings.model_dump_json(), "runs": str(runs)}, show)
    except KeyboardInterrupt:
        raise RunError("the run continues; `flwr list` shows it, `flwr stop` ends it") from None
    if outcome.error is not None:
        with suppress(FedEASError):  # another run may be working on the same run directory; the error matters more
            for run_id in operator.unfinished_runs():
                print(f"run {run_id} has not ended: `flwr list` shows it, `flwr stop {run_id}` ends it")
        raise outcome.error
    print("".join(f"{each}\n" for each in held), end="")
    print(f"run {outcome.run_id}: {outcome.status}")
    if not outcome.completed:
        print("it was stopped; the same command resumes it" if outcome.status.endswith("stopped") else outcome.details)
        raise typer.Exit(1)


@flower.command()
def app(folder: Annotated[Path, typer.Argument(help="Folder to write.")]) -> None:
    """Write FedEAS as a Flower app, for `flwr run` and `flwr build`."""
    from fedeas.flower.operator import write_app

    print(write_app(folder))


@flower.command()
def check_node(settings: Annotated[Path, typer.Argument(help="The settings of a node, a TOML file.")]) -> None:
    """Check the settings of a node, and that its own data can be read."""
    from fedeas.data.sources import load_own
    from fedeas.flower.node_settings import read_node_config

    try:
        given = tomllib.loads(settings.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{settings}: cannot be read ({error})") from None
    client, own = read_node_config(given)
    if own.data:
        load_own(own.data, own.data_root)
    print(f"{settings}: client {client}")
