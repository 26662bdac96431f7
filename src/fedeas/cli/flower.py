"""``fedeas flower``: FedEAS on Flower, on several machines or as a whole deployment on one."""

from __future__ import annotations

import shlex
import tomllib
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedeas.cli.runs import read_config
from fedeas.core.errors import FedEASError, InputError, RunError
from fedeas.core.extras import extra_for

if TYPE_CHECKING:
    from deploy.flower.connection import Scalar
    from deploy.flower.internals.superlink import SuperLink
    from deploy.flower.loopback import Loopback

flower = typer.Typer(no_args_is_help=True, help="FedEAS on Flower: processes that exchange messages.")

Folder = Annotated[Path, typer.Option(help="Folder of the deployment: keys, logs, state.")]
ConnectionFile = Annotated[
    Path | None, typer.Option(help="Connection file of a SuperLink; by default that of the deployment in --folder.")
]
FOLDER = Path(".fedeas-flower")
MACHINES = """\
{folder}: certificates, the operator's key and {nodes} node keys

The operator's key and server.key stay on the server. Each node's private key belongs on its own machine only;
`fedeas flower node-key` makes it there, and only the .pub file travels.

on the server:
  python -m deploy.flower.server --certificates {folder} --key {folder}/operator.key --port {port}
on the server, once for each node:
  fedeas flower register {key}.pub --client 0 --connection {folder}/connection.toml
on each node, with its key and {made.authority.name}:
  python -m deploy.flower.node --superlink {server}:{port} --root-certificate {made.authority} \\
    --key {key} --node-config 'partition-id=0 num-partitions={partitions} state-dir="state"'
on the server:
  fedeas flower run --connection {folder}/connection.toml CONFIG.toml

Nodes need port {port} of the server. The operator's port, {operator_port}, listens on the server's loopback alone."""


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
    deployment.up(nodes, _scalars(node_config or []), [] if limit is None else ["--limit", str(limit)])
    _show(deployment)
    print(f"\nstart a run:  fedeas flower run{_option(folder)} CONFIG.toml")
    print(f"at the end:   fedeas flower down{_option(folder)}")


@flower.command()
def down(folder: Folder = FOLDER) -> None:
    """Stop the deployment on this machine; keys and logs are kept."""
    deployment = _deployment(folder)
    known = deployment.file.exists()
    ended = deployment.down()
    print(f"{folder}: {ended} processes ended" if known else f"{folder}: nothing to end")


@flower.command()
def status(
    folder: Folder = FOLDER,
    connection: ConnectionFile = None,
    wait: Annotated[
        float, typer.Option(min=0, help="With --connection: wait as many seconds for all clients to be online.")
    ] = 0.0,
) -> None:
    """Show the processes of the deployment, or the clients of a SuperLink elsewhere, and runs that have not ended."""
    if connection is not None:
        superlink = _superlink(folder, connection)
        _show_clients(superlink, wait)
        _show_runs(superlink)
        return
    deployment = _deployment(folder)
    _show(deployment)
    if deployment.status()["superlink"] == "online":
        _show_runs(deployment.superlink)


@flower.command()
def health(
    address: Annotated[str, typer.Argument(help="The --health address of a SuperLink or a node, as host:port.")],
    wait: Annotated[float, typer.Option(min=0, help="Wait as many seconds for it.")] = 0.0,
) -> None:
    """Ask a SuperLink or a node on this machine whether it is up."""
    _need_flower()
    from deploy.flower.health import await_health

    await_health(address, wait)
    print(f"{address}: serving")


@flower.command()
def run(
    config: Annotated[
        Path | None, typer.Argument(help="TOML file; without one, the defaults.", show_default=False)
    ] = None,
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, such as train.lr=0.05.")] = None,
    folder: Folder = FOLDER,
    connection: ConnectionFile = None,
    data_root: Annotated[Path | None, typer.Option(help="Folder with the datasets' files, on the server.")] = None,
    runs: Annotated[Path, typer.Option(help="Folder of run directories, on the server.")] = Path("runs"),
) -> None:
    """Train a federation on the deployment and show the server's log."""
    root = None if data_root is None else _on_server(data_root, connection)
    settings = read_config(config, [*(overrides or []), "engine.name=flower"], root)
    superlink = _superlink(folder, connection)
    from deploy.flower.operator import members, run_app

    given: dict[str, Scalar] = {
        "settings": settings.model_dump_json(),
        "runs": _on_server(runs, connection),
        "members": members(superlink),
    }
    shown = _ShownLog()
    try:
        outcome = run_app(superlink, None, given, shown.add)
    except KeyboardInterrupt:
        raise RunError("the run continues; `fedeas flower status` shows it, `fedeas flower stop` ends it") from None
    if outcome.error is not None:
        _name_unfinished(superlink)
        raise outcome.error
    shown.print_error()
    print(f"run {outcome.run_id}: {outcome.status}")
    if not outcome.completed:
        stopped = outcome.status == "finished:stopped"
        resume = "it was stopped; the same command resumes it"
        print(outcome.details or (resume if stopped else "the reason is in the SuperLink's log"))
        raise typer.Exit(1)


@flower.command()
def stop(
    run_id: Annotated[int, typer.Argument(help="The run, as `fedeas flower status` shows it.")],
    folder: Folder = FOLDER,
    connection: ConnectionFile = None,
) -> None:
    """End a run; it can be resumed with the command that started it."""
    superlink = _superlink(folder, connection)
    superlink.run_status(run_id)  # an unknown run is an error of its own
    superlink.stop_run(run_id)
    print(f"run {run_id}: stopped")


@flower.command()
def register(
    public_key: Annotated[Path, typer.Argument(help="The node's public key, a .pub file.")],
    client: Annotated[
        int | None,
        typer.Option(min=0, help="Number of the client that this key is, counted from 0; else the first free one."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask to compare the key's fingerprint.")] = False,
    folder: Folder = FOLDER,
    connection: ConnectionFile = None,
) -> None:
    """Let the node with this key take part, as this client and no other; without --client, after a confirmation."""
    superlink = _superlink(folder, connection)
    from deploy.flower.operator import admit, clients_file

    def confirm(number: int, fingerprint: str) -> bool:
        return yes or typer.confirm(
            f"{public_key}: {fingerprint}\nDid its owner tell you this? It becomes client {number}"
        )

    number, node = admit(superlink, public_key, client, confirm)
    print(f"client {number}: {public_key}, registered as node {node}; {clients_file(superlink)} has its key")


@flower.command()
def unregister(
    client: Annotated[int, typer.Option(min=0, help="Number of the client whose key is no longer valid.")],
    folder: Folder = FOLDER,
    connection: ConnectionFile = None,
) -> None:
    """Withdraw a client's key: its node is cut off, and `register` can give the client another key."""
    superlink = _superlink(folder, connection)
    from deploy.flower.operator import withdraw

    withdraw(superlink, client)
    print(f"client {client}: its key is withdrawn; register another with `fedeas flower register`")


@flower.command()
def node_key(
    path: Annotated[Path, typer.Argument(help="Path of the private key; the public key is written beside it.")],
) -> None:
    """Make the key of a node on its own machine; only the .pub file has to leave it."""
    _need_flower()
    from deploy.flower.keys import make_node_key

    print(f"{path} stays here; send {make_node_key(path)} to the operator")


@flower.command()
def keys(
    folder: Annotated[Path, typer.Argument(help="Folder for certificates and keys; what exists in it is kept.")],
    nodes: Annotated[int, typer.Option(min=0, help="Number of node keys to make here.")] = 0,
    host: Annotated[list[str] | None, typer.Option(help="Name or address of the server; may be repeated.")] = None,
) -> None:
    """Make certificates and node keys for a deployment over several machines."""
    _need_flower()
    from deploy.flower.connection import Connection
    from deploy.flower.keys import make_certificates, make_node_key, make_operator_key
    from deploy.flower.server import NODES_PORT, OPERATOR_PORT

    made = make_certificates(folder, host or [])
    key = make_operator_key(folder / "operator.key")
    if not (folder / "connection.toml").exists():
        here = Connection(f"127.0.0.1:{OPERATOR_PORT}", made.authority, key, folder / "clients.toml")
        here.write(folder / "connection.toml")
    private = [folder / f"node{index}" for index in range(nodes)]
    for path in private:
        make_node_key(path)
    ports = {"port": NODES_PORT, "operator_port": OPERATOR_PORT, "server": (host or ["127.0.0.1"])[0]}
    node = {"key": private[0] if private else "NODE", "partitions": nodes or "CLIENTS"}
    print(MACHINES.format(folder=folder, made=made, nodes=nodes, **node, **ports))


def _superlink(folder: Path, connection: Path | None) -> SuperLink:
    """The SuperLink of a connection file, by default of the deployment in `folder`."""
    _need_superlink()
    from deploy.flower.connection import Connection
    from deploy.flower.internals.superlink import SuperLink

    return SuperLink(_deployment(folder).connection if connection is None else Connection.read(connection))


def _deployment(folder: Path) -> Loopback:
    _need_superlink()
    from deploy.flower.loopback import Loopback

    return Loopback(folder)


def _need_superlink() -> None:
    """Check that the installed Flower can send an operator's requests."""
    _need_flower()
    from deploy.flower import internals

    internals.need("superlink")


def _need_flower() -> None:
    with extra_for("fedeas flower"):
        import_module("flwr")


def _show(deployment: Loopback) -> None:
    state = deployment.state
    print(f"{deployment.folder}: SuperLink at {deployment.nodes_address}, operator at {deployment.superlink.address}")
    pids = {"superlink": state.superlink, **{node.name: node.process for node in state.nodes}}
    for name, condition in deployment.status().items():
        process = pids[name]
        print(f"  {name:<10} {condition:<12} pid {process.pid if process else '-':<8} {deployment.log(name)}")


def _show_clients(superlink: SuperLink, wait: float) -> None:
    from deploy.flower.operator import await_clients

    states = await_clients(superlink, wait)
    print(f"{superlink.address}: {len(states)} client{'' if len(states) == 1 else 's'}")
    for client, condition in states.items():
        print(f"  client {client:<4} {condition}")


def _show_runs(superlink: SuperLink) -> None:
    for run_id in superlink.unfinished_runs():
        print(f"  run {run_id}: {superlink.run_status(run_id).status}")


def _name_unfinished(superlink: SuperLink) -> None:
    """Say which other runs have not ended: one of them may be working on the same run directory."""
    with suppress(FedEASError):  # the run's own error matters more
        for run_id in superlink.unfinished_runs():
            print(f"run {run_id} has not ended: `fedeas flower status` shows it, `fedeas flower stop` ends it")


class _ShownLog:
    """Prints the lines of a run's log; the last one, if it is an error, is left to the command's own."""

    def __init__(self) -> None:
        self.error: str | None = None

    def add(self, line: str) -> None:
        self.print_error()
        if line.startswith("error: "):
            self.error = line
        else:
            print(line)

    def print_error(self) -> None:
        if self.error is not None:
            print(self.error)
        self.error = None


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


def _on_server(path: Path, connection: Path | None) -> str:
    """A path as the server understands it: on this machine, its working directory is another one."""
    return str(path if connection else path.absolute())


def _option(folder: Path) -> str:
    return "" if folder == FOLDER else f" --folder {shlex.quote(str(folder))}"
