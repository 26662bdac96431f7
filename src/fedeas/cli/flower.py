"""``fedeas flower``: FedEAS on Flower, on several machines or as a whole deployment on one."""

from __future__ import annotations

import json
import shlex
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedeas.config import load_config
from fedeas.errors import InputError, RunError

if TYPE_CHECKING:
    from fedeas.flower.deployment.local_state import Scalar
    from fedeas.flower.deployment.loopback import Loopback

flower = typer.Typer(no_args_is_help=True, help="FedEAS on Flower: processes that exchange messages.")

Folder = Annotated[Path, typer.Option(help="Folder of the deployment: keys, logs, state.")]
FOLDER = Path(".fedeas-flower")
SERVER_PORT = 8000
MACHINES = """\
{folder}: certificates and {nodes} node keys; each private key belongs on its own machine only

on the server:
  flower-superlink --host 0.0.0.0 --port {port} --enable-supernode-auth --database superlink.db \\
    --ssl-ca-certfile {made.authority} --ssl-certfile {made.server} --ssl-keyfile {made.server_key} \\
    --disable-runtime-dependency-installation
once for each node, with the server's address and {made.authority} in ~/.flwr/config.toml:
  flwr supernode register {key}.pub
on each node, with its key and {made.authority.name}:
  python -m fedeas.flower.deployment.node --superlink {server} --root-certificate {made.authority} \\
    --key {key} --node-config 'partition-id=0 num-partitions={nodes} state-dir="state"'

Whoever can reach the server's port may start runs there: let only these machines reach it."""


@flower.command()
def up(
    nodes: Annotated[int, typer.Option(min=1, help="Number of nodes.")] = 3,
    folder: Folder = FOLDER,
    node_config: Annotated[
        list[str] | None, typer.Option(help="Setting of all nodes, as 'data-root=\"/data\"'; may be repeated.")
    ] = None,
    limit: Annotated[float | None, typer.Option(help="Seconds after which work on a message is killed.")] = None,
) -> None:
    """Start a SuperLink and its nodes on this machine, on loopback, with TLS and a key for each node."""
    deployment = _deployment(folder)
    deployment.up(nodes, _scalars(node_config or []), limit=limit)
    _show(deployment)
    print(f"\nstart a run:  fedeas flower run{_option(folder)} CONFIG.toml")
    print(f"or:           FLWR_HOME={shlex.quote(str(deployment.flwr_home))} flwr run . local --stream")
    print(f"at the end:   fedeas flower down{_option(folder)}")


@flower.command()
def down(folder: Folder = FOLDER) -> None:
    """Stop the deployment on this machine; keys and logs are kept."""
    deployment = _deployment(folder)
    known = deployment.file.exists()
    ended = deployment.down()
    print(f"{folder}: {ended} processes ended" if known else f"{folder}: nothing to end")


@flower.command()
def status(folder: Folder = FOLDER) -> None:
    """Show the processes of the deployment."""
    _show(_deployment(folder))


@flower.command()
def run(
    config: Annotated[
        Path | None, typer.Argument(help="TOML file; without one, the defaults.", show_default=False)
    ] = None,
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, such as train.lr=0.05.")] = None,
    folder: Folder = FOLDER,
    data_root: Annotated[Path | None, typer.Option(help="Folder with the datasets' Parquet files.")] = None,
    runs: Annotated[Path, typer.Option(help="Folder of run directories.")] = Path("runs"),
) -> None:
    """Train a federation on the deployment and show the server's log."""
    if config is not None and "=" in config.name and not config.exists():
        config, overrides = None, [str(config), *(overrides or [])]  # an override without a file before it
    load_config(config, overrides or [])  # report errors here, not in the log of another process
    deployment = _deployment(folder)
    from fedeas.flower.deployment.app import write_app

    given: dict[str, Scalar] = {
        "config": str(config.absolute()) if config else "",
        "overrides": json.dumps(overrides or []),
        "runs": str(runs.absolute()),
        "data-root": str(data_root.absolute()) if data_root else "",
    }
    try:
        outcome = deployment.run(write_app(deployment.folder / "app"), given)
    except KeyboardInterrupt:
        home = shlex.quote(str(deployment.flwr_home))
        raise RunError(f"the run continues; find it with `FLWR_HOME={home} flwr ls`, end it with `flwr stop`") from None
    print(f"run {outcome.run_id}: {outcome.status}")
    if not outcome.completed:
        print(outcome.details or f"the reason is in the log: {deployment.log('superlink')}")
        raise typer.Exit(1)


@flower.command()
def keys(
    folder: Annotated[Path, typer.Argument(help="Folder for certificates and keys; what exists in it is kept.")],
    nodes: Annotated[int, typer.Option(min=1, help="Number of nodes.")] = 1,
    host: Annotated[list[str] | None, typer.Option(help="Name or address of the server; may be repeated.")] = None,
) -> None:
    """Make certificates and node keys for a deployment over several machines."""
    _need_flower()
    from fedeas.flower.deployment.keys import make_certificates, make_node_key

    made = make_certificates(folder, host or [])
    private = [folder / f"node{index}" for index in range(nodes)]
    for path in private:
        make_node_key(path)
    server = f"{(host or ['127.0.0.1'])[0]}:{SERVER_PORT}"
    print(MACHINES.format(folder=folder, made=made, nodes=nodes, key=private[0], server=server, port=SERVER_PORT))


def _deployment(folder: Path) -> Loopback:
    _need_flower()
    from fedeas.flower.deployment.loopback import Loopback

    return Loopback(folder)


def _need_flower() -> None:
    if find_spec("flwr") is None:
        raise InputError("fedeas flower needs Flower: pip install 'fedeas[flower]'")


def _show(deployment: Loopback) -> None:
    state = deployment.state
    print(f"{deployment.folder}: SuperLink at {deployment.superlink.address}")
    pids = {"superlink": state.superlink, **{node.name: node.process for node in state.nodes}}
    for name, condition in deployment.status().items():
        process = pids[name]
        print(f"  {name:<10} {condition:<12} pid {process.pid if process else '-':<8} {deployment.log(name)}")


def _scalars(settings: list[str]) -> dict[str, Scalar]:
    """Read settings, each a line of TOML with a scalar: Flower passes only scalars to a node."""
    read: dict[str, Scalar] = {}
    for setting in settings:
        try:
            values = tomllib.loads(setting)
        except tomllib.TOMLDecodeError:
            values = {}
        if not values or not all(isinstance(value, str | int | float | bool) for value in values.values()):
            raise InputError(f"--node-config {setting}: write it as 'name=1' or 'name=\"text\"'")
        read.update(values)
    return read


def _option(folder: Path) -> str:
    return "" if folder == FOLDER else f" --folder {shlex.quote(str(folder))}"
