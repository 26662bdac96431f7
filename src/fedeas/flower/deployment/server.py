"""A SuperLink with two doors: ``python -m fedeas.flower.deployment.server``.

It differs from ``flower-superlink`` in who may do what. Flower serves all its interfaces on one port, and whoever
reaches that port may start runs, register nodes and take the server's tasks. Here nodes have a port of their own, on
which nothing but their interface answers. The operator's port is on loopback unless told otherwise: starting runs and
registering nodes needs the operator's key, and only the process that this one starts gets the server's tasks.
"""

from __future__ import annotations

import argparse
import hmac
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import uvicorn
from flwr.supercore.auth.typing import AccountInfo
from flwr.superlink.auth_plugin import NoOpControlAuthnPlugin

from fedeas.core.files import make_folder
from fedeas.errors import FedEASError, InputError
from fedeas.flower.deployment.environment import program, search_path
from fedeas.flower.deployment.keys import Certificates, read_operator_key, write_secret
from fedeas.flower.metrics_file import METRICS

NODES_PORT, OPERATOR_PORT = 8000, 8001
NODES_PATHS = "/v1/fleet/"
REFUSED = 404
GRACE = 2
"""Seconds that open requests have when the SuperLink is told to end; one for the log of a run would go on with it."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
WebApp = Callable[[Scope, Receive, Send], Awaitable[None]]
Metadata = Sequence[tuple[str, str | bytes]]


class OperatorOnly(NoOpControlAuthnPlugin):
    """Lets requests of the operator pass: those that carry the operator's key."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key

    def validate_tokens_in_metadata(self, metadata: Metadata) -> tuple[bool, AccountInfo | None]:
        """Compare the given key with the operator's, in a time that tells nothing about it."""
        given = [value.encode() if isinstance(value, str) else value for _, value in metadata]
        if len(given) != 1 or not hmac.compare_digest(given[0], self.key.encode()):
            return False, None
        return super().validate_tokens_in_metadata(metadata)

    def refresh_tokens(self, metadata: Metadata) -> tuple[Metadata | None, AccountInfo | None]:
        """Nothing to refresh: the key is the operator's file."""
        return None, None


def two_doors(app: WebApp, nodes_port: int) -> WebApp:
    """Serve the nodes' interface on their port alone, and everything else on the other port alone."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (scope["server"][1] == nodes_port) != scope["path"].startswith(NODES_PATHS):
            await send({"type": "http.response.start", "status": REFUSED, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await app(scope, receive, send)

    return serve


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a SuperLink until it is told to end."""
    try:
        _serve(_parser().parse_args(arguments))
    except FedEASError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _serve(options: argparse.Namespace) -> None:
    made = Certificates.existing(options.certificates)
    _name_metrics(options.metrics)
    key = read_operator_key(options.key)
    make_folder(options.database.absolute().parent)
    secret = options.key.absolute().with_name(f"{options.key.name}.secret")
    write_secret(secret)
    doors = [_listen(options.operator_host, options.operator_port), _listen(options.host, options.port)]
    app = two_doors(_superlink(made, key, secret, options), options.port)
    from flwr.supercore.http_logging import get_uvicorn_log_config
    from flwr.supercore.logger import console_handler

    settings = uvicorn.Config(
        app,
        log_config=get_uvicorn_log_config(console_handler.level),
        ssl_keyfile=made.server_key,
        ssl_certfile=made.server,
        timeout_graceful_shutdown=GRACE,
    )
    helper = _start_helper(made, secret, _reached_at(options.operator_host, options.operator_port))
    try:
        uvicorn.Server(settings).run(doors)
    finally:
        helper.terminate()


def _name_metrics(path: Path | None) -> None:
    """Tell the server's part of each run, which is a process of its own, where to write its metrics."""
    if path is None:
        return
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path}: the folder {path.absolute().parent} does not exist; create it first")
    os.environ[METRICS] = str(path.absolute())


def _superlink(made: Certificates, key: str, secret: Path, options: argparse.Namespace) -> WebApp:
    """Flower's SuperLink as a web app that asks for the operator's key."""
    from flwr.superlink.cli.flower_superlink import SuperLinkLifespan, _parse_superlink_lifespan_config
    from flwr.superlink.main import create_app

    given = {
        "--host": options.operator_host,
        "--port": options.operator_port,
        "--ssl-ca-certfile": made.authority,
        "--ssl-certfile": made.server,
        "--ssl-keyfile": made.server_key,
        "--database": options.database.absolute(),
        "--isolation": "process",
        "--superexec-auth-secret-file": secret,
        **({"--health-server-address": options.health} if options.health else {}),
    }
    switches = ["--enable-supernode-auth", "--disable-runtime-dependency-installation"]
    sys.argv = ["flower-superlink", *(str(part) for pair in given.items() for part in pair), *switches]
    config = _parse_superlink_lifespan_config()
    config.authn_plugin = OperatorOnly(key)
    app: WebApp = create_app(config, SuperLinkLifespan)
    return app


def _reached_at(host: str, port: int) -> str:
    """The address under which this machine reaches what listens on `host`."""
    near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{near}]:{port}" if ":" in near else f"{near}:{port}"


def _start_helper(made: Certificates, secret: Path, address: str) -> subprocess.Popen[bytes]:
    """Start Flower's process that starts the server's part of each run; it proves itself with the secret."""
    command = [program("flower-superexec"), "--runtime-api-address", address]
    command += ["--root-certificates", str(made.authority), "--superexec-auth-secret-file", str(secret)]
    surroundings = {**os.environ, "PATH": search_path()}
    return subprocess.Popen([*command, "--parent-pid", str(os.getpid())], env=surroundings, start_new_session=True)


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise InputError(f"{host}:{port}: cannot listen there ({error.strerror}); choose another port") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m fedeas.flower.deployment.server", description=__doc__.partition("\n")[0]
    )
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
