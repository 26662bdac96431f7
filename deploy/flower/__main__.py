"""``python -m deploy.flower``: set up servers and nodes."""

from __future__ import annotations

import shlex
import signal
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from deploy.flower.certificates import Certificates
from deploy.flower.clients import Clients, home
from deploy.flower.node import Node
from deploy.flower.one_machine import OneMachine
from deploy.flower.server import NODES_PORT, OPERATOR_PORT, Server
from fedeas import InputError

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Set up servers and nodes on which FedEAS runs.")

Keys = Annotated[Path, typer.Option(help="Folder with ca.pem, server.pem and server.key.")]


@app.command()
def keys(
    folder: Annotated[Path, typer.Argument(help="Folder for certificates; existing files are kept.")],
    host: Annotated[list[str] | None, typer.Option(help="Name or address of the server; may be repeated.")] = None,
) -> None:
    """Make a certificate authority and the server's certificate."""
    made = Certificates(folder)
    made.make(host or [])
    print(f"{made.authority} is for all nodes; everything else in {folder} stays here")


@app.command()
def server(
    keys: Keys,
    host: Annotated[str, typer.Option(help="Address on which nodes are awaited.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(help="Port for nodes.")] = NODES_PORT,
    operator_port: Annotated[int, typer.Option(help="Port for the operator, on loopback.")] = OPERATOR_PORT,
    database: Annotated[Path, typer.Option(help="File of registered nodes and runs.")] = Path("superlink.db"),
) -> None:
    """Run a SuperLink on loopback, and nginx in front of it for nodes."""
    raise typer.Exit(Server(Certificates(keys), host, port, operator_port, database).run())


@app.command()
def node(
    superlink: Annotated[str, typer.Option(help="Address of the server, as host:port.")],
    root_certificate: Annotated[Path, typer.Option(help="The authority's certificate, ca.pem.")],
    key: Annotated[Path, typer.Option(help="Private key of this node, made with ssh-keygen.")],
    settings: Annotated[Path, typer.Option(help="Settings of this node, a TOML file.")],
    app: Annotated[Path | None, typer.Option(help="Folder of the only app to run; by default FedEAS.")] = None,
) -> None:
    """Run a SuperNode that loads the installed FedEAS and no other app."""
    raise typer.Exit(Node(superlink, root_certificate, key, settings, app).run())


@app.command()
def register(
    public_key: Annotated[Path, typer.Argument(help="The node's public key, a .pub file.")],
    client: Annotated[int | None, typer.Option(min=0, help="Number of the client; else the first free one.")] = None,
) -> None:
    """Let the node with this key take part, as this client and no other."""
    clients = Clients(home())
    number = clients.register(public_key, client)
    print(f"client {number}: {public_key} is registered; {clients.file} has its node")


@app.command()
def unregister(client: Annotated[int, typer.Option(min=0, help="Number of the client.")]) -> None:
    """Withdraw a client's key: its node is cut off, and that key is never accepted again."""
    Clients(home()).unregister(client)
    print(f"client {client}: its key is withdrawn; register another")


@app.command()
def status(wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for all clients.")] = 0.0) -> None:
    """Show which clients are online; the exit code is 1 if one is not."""
    states = Clients(home()).await_all(wait)
    for client, state in states.items():
        print(f"client {client:<4} {state}")
    raise typer.Exit(set(states.values()) != {"online"})


@app.command()
def up(
    nodes: Annotated[int, typer.Option(min=1, help="Number of nodes.")] = 3,
    folder: Annotated[Path, typer.Option(help="Folder for keys, logs and state.")] = Path(".fedeas-flower"),
    setting: Annotated[
        list[str] | None, typer.Option(help="Setting of all nodes, such as 'data-root=\"/data\"'.")
    ] = None,
) -> None:
    """Run a server and nodes on this machine until Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with OneMachine(folder, nodes, _scalars(setting or [])) as deployment:
            print(f"{nodes} nodes are online; Ctrl-C ends them. In another terminal:")
            print(f"  export FLWR_HOME={shlex.quote(str(deployment.folder))}")
            print(f"  fedeas flower run partition.clients={nodes} CONFIG.toml", flush=True)
            while deployment.ended is None:
                time.sleep(1)
            raise InputError(f"{deployment.ended} ended; {deployment.log(deployment.ended)} has the reason")
    except KeyboardInterrupt:
        print("ended")


def _scalars(settings: Sequence[str]) -> dict[str, str | int | float | bool]:
    """Read settings, each a line of TOML with a scalar: Flower passes only scalars to a node."""
    read: dict[str, str | int | float | bool] = {}
    for setting in settings:
        try:
            values = tomllib.loads(setting)
        except tomllib.TOMLDecodeError:
            values = {}
        if not values or not all(isinstance(value, str | int | float | bool) for value in values.values()):
            raise InputError(f"--setting {setting}: write it as 'name=1' or 'name=\"text\"'")
        read.update(values)
    return read


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; an error is one line."""
    try:
        app(arguments, prog_name="python -m deploy.flower")
    except (InputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(InputError.exit_code)


if __name__ == "__main__":
    main()
