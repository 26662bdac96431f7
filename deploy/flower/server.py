"""A SuperLink with two doors: ``python -m deploy.flower.server``.

It differs from ``flower-superlink`` in who may do what. Flower serves all its interfaces on one port, and whoever
reaches that port may start runs, register nodes and take the server's tasks. Here nodes have a port of their own, on
which nothing but their interface answers. The operator's port is on loopback unless told otherwise: starting runs and
registering nodes needs the operator's key, and only the process that this one starts gets the server's tasks.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from deploy.flower import internals
from deploy.flower.doors import WebApp, two_doors
from deploy.flower.environment import program, search_path
from deploy.flower.keys import Certificates, read_operator_key, write_secret
from deploy.flower.processes import free_port
from deploy.flower.stock_superlink import handed_on, stock_superlink
from fedeas.core.errors import FedEASError, InputError
from fedeas.core.files import make_folder
from fedeas.flower.metrics_file import METRICS

NODES_PORT, OPERATOR_PORT = 8000, 8001
GRACE = 2
"""Seconds that open requests have when the SuperLink is told to end; one for the log of a run would go on with it."""


PAUSE = 1.0
"""Seconds between two checks whether the helper still runs, and before it is started again."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a SuperLink until it is told to end."""
    try:
        _serve(_options(_parser().parse_args(arguments)))
    except FedEASError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


@dataclass(frozen=True)
class ServerOptions:
    """Options of a SuperLink: its certificates and keys, its files, and the doors that are open already."""

    made: Certificates
    key: str
    secret: Path
    database: Path
    health: str | None
    operator: tuple[str, int]
    nodes_port: int
    doors: list[socket.socket]

    def flower_arguments(self, host: str, port: int) -> list[str]:
        """The command line of a flower-superlink at this address."""
        given = {
            "--host": host,
            "--port": port,
            "--ssl-ca-certfile": self.made.authority,
            "--ssl-certfile": self.made.server,
            "--ssl-keyfile": self.made.server_key,
            "--database": self.database,
            "--isolation": "process",
            "--superexec-auth-secret-file": self.secret,
            **({"--health-server-address": self.health} if self.health else {}),
        }
        switches = ["--enable-supernode-auth", "--disable-runtime-dependency-installation"]
        return [*(str(part) for pair in given.items() for part in pair), *switches]

    def server(self, app: WebApp, log_config: dict[str, Any]) -> uvicorn.Server:
        """A web server with TLS for the two doors."""
        return uvicorn.Server(
            uvicorn.Config(
                two_doors(app, self.nodes_port),
                log_config=log_config,
                ws="none",  # Flower needs none, and the doors check requests alone
                ssl_keyfile=self.made.server_key,
                ssl_certfile=self.made.server,
                timeout_graceful_shutdown=GRACE,
            )
        )


def _serve(settings: ServerOptions) -> None:
    problem = internals.problem("superlink_app")
    if problem is None:
        _serve_ours(settings)
    else:
        print(f"{problem}; Flower's own SuperLink runs behind the ports of this one", flush=True)
        _serve_stock(settings)


def _serve_ours(settings: ServerOptions) -> None:
    from deploy.flower.internals.superlink_app import log_config, superlink_app

    app = superlink_app(settings.flower_arguments(*settings.operator), settings.key)
    with _helper(settings, _reached_at(*settings.operator)):
        settings.server(app, log_config()).run(settings.doors)


def _serve_stock(settings: ServerOptions) -> None:
    address = ("127.0.0.1", free_port())
    with stock_superlink(settings.flower_arguments(*address), address) as behind:
        app = handed_on(address, settings.made.authority, settings.key)
        server = settings.server(app, uvicorn.config.LOGGING_CONFIG)
        threading.Thread(target=_end_with, args=(behind, server), daemon=True).start()
        with _helper(settings, _reached_at(*address)):
            server.run(settings.doors)


def _end_with(behind: subprocess.Popen[bytes], server: uvicorn.Server) -> None:
    """End the server when the SuperLink behind it has ended."""
    behind.wait()
    server.should_exit = True


def _options(options: argparse.Namespace) -> ServerOptions:
    made = Certificates.existing(options.certificates)
    _name_metrics(options.metrics)
    key = read_operator_key(options.key)
    make_folder(options.database.absolute().parent)
    secret = options.key.absolute().with_name(f"{options.key.name}.secret")
    write_secret(secret)
    operator = (options.operator_host, options.operator_port)
    doors = [_listen(*operator), _listen(options.host, options.port)]
    return ServerOptions(made, key, secret, options.database.absolute(), options.health, operator, options.port, doors)


def _name_metrics(path: Path | None) -> None:
    """Tell the server's part of each run, which is a process of its own, where to write its metrics."""
    if path is None:
        return
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path}: the folder {path.absolute().parent} does not exist; create it first")
    os.environ[METRICS] = str(path.absolute())


def _reached_at(host: str, port: int) -> str:
    """The address under which this machine reaches what listens on `host`."""
    near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{near}]:{port}" if ":" in near else f"{near}:{port}"


@contextmanager
def _helper(settings: ServerOptions, address: str) -> Iterator[None]:
    """Run Flower's process that starts the server's part of each run; it proves itself with the secret.

    Without it the SuperLink would accept runs and never start them.
    """
    command = [program("flower-superexec"), "--runtime-api-address", address]
    command += ["--root-certificates", str(settings.made.authority)]
    command += ["--superexec-auth-secret-file", str(settings.secret)]
    command += ["--parent-pid", str(os.getpid())]
    ending = threading.Event()
    keeper = threading.Thread(target=_keep_running, args=(command, ending), daemon=True)
    keeper.start()
    try:
        yield
    finally:
        ending.set()
        keeper.join()


def _keep_running(command: Sequence[str], ending: threading.Event) -> None:
    """Run a program until `ending` is set; start it again whenever it ends before."""
    while not ending.is_set():
        with suppress(OSError):  # without memory or descriptors none starts: try again
            _run(command, ending)
        ending.wait(PAUSE)


def _run(command: Sequence[str], ending: threading.Event) -> None:
    """Run a program until it ends or `ending` is set."""
    process = subprocess.Popen(command, env={**os.environ, "PATH": search_path()}, start_new_session=True)
    while process.poll() is None and not ending.wait(PAUSE):
        pass
    if process.poll() is None:
        process.terminate()
        process.wait()
    else:
        print(f"{command[0]} ended with code {process.returncode}; starting another", flush=True)


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise InputError(f"{host}:{port}: cannot listen there ({error.strerror}); choose another port") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m deploy.flower.server", description=__doc__.partition("\n")[0])
    parser.add_argument("--certificates", required=True, type=Path, help="Folder with ca.pem, server.pem, server.key.")
    parser.add_argument("--key", required=True, type=Path, help="The operator's key.")
    parser.add_argument("--host", default="0.0.0.0", help="Address on which nodes are awaited.")
    parser.add_argument("--port", type=int, default=NODES_PORT, help="Port for nodes.")
    parser.add_argument("--operator-host", default="127.0.0.1", help="Address on which the operator is awaited.")
    parser.add_argument("--operator-port", type=int, default=OPERATOR_PORT, help="Port for the operator.")
    parser.add_argument(
        "--database", type=Path, default=Path("superlink.db"), help="File of registered nodes and runs."
    )
    parser.add_argument("--health", help="Address at which `fedeas flower health` asks, as 127.0.0.1:9100.")
    parser.add_argument("--metrics", type=Path, help="File for Prometheus, written after each round; ends in .prom.")
    return parser


if __name__ == "__main__":
    main()
