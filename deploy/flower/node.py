"""A node: Flower's SuperNode, and the program that starts a process for each message, held to one app.

Flower unpacks the app that a run brings along and loads it with all rights of the node's account. The module in `guard`
keeps each of the node's processes from loading any app but the node's own, which is the installed FedEAS.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

from deploy.flower.programs import environment, free_port, program, run_together
from deploy.flower.server import options
from fedeas import InputError

GUARD = Path(__file__).parent / "guard"
APP = "FEDEAS_NODE_APP"  # as in guard/sitecustomize.py
RETRIES = 20
"""Attempts to reach the SuperLink before the node ends; by default Flower never stops trying."""


@dataclass(frozen=True)
class Node:
    """Where the SuperLink is, the authority's certificate, and the node's key, settings and only app."""

    superlink: str
    root_certificate: Path
    key: Path
    settings: Path
    app: Path | None = None

    def run(self) -> int:
        """Run until SIGTERM or Ctrl-C, or until a program ends; return the exit code."""
        for path in (self.root_certificate, self.key, self.settings):
            if not path.is_file():
                raise InputError(f"{path}: no such file")
        if self.app is None:
            _fedeas("check-node", str(self.settings))
        with tempfile.TemporaryDirectory(prefix="fedeas-node-") as folder:
            secret = Path(folder) / "secret"
            secret.touch(0o600)
            secret.write_bytes(secrets.token_bytes(32))
            return run_together(self.commands(f"127.0.0.1:{free_port()}", secret), guarded(self.app))

    def commands(self, runtime: str, secret: Path) -> list[list[str]]:
        """The two programs, which meet at the loopback address `runtime`; without the secret nobody takes a message."""
        host, _, port = runtime.rpartition(":")
        node = {
            "--superlink": self.superlink,
            "--root-certificates": self.root_certificate,
            "--auth-supernode-private-key": self.key,
            "--node-config": self.settings.absolute(),
            "--max-retries": RETRIES,
            "--host": host,
            "--port": port,
            "--isolation": "process",
            "--superexec-auth-secret-file": secret,
        }
        executor = {"--runtime-api-address": runtime, "--superexec-auth-secret-file": secret}
        return [
            [program("flower-supernode"), *options(node)],
            [program("flower-superexec"), "--insecure", *options(executor)],
        ]


def guarded(app: Path | None = None) -> dict[str, str]:
    """The environment in which a Python process loads the app in `app` alone, by default the installed FedEAS."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "app" if app is None else app
        if app is None:
            _fedeas("app", str(folder))
        name, files = bundled(folder, Path(made))
    paths = filter(None, (str(GUARD), os.environ.get("PYTHONPATH")))
    return environment(
        PYTHONPATH=os.pathsep.join(paths),
        PYTHONSAFEPATH="1",  # Python finds modules of the installation alone
        PYTHONDONTWRITEBYTECODE="1",  # compiled modules would be more files in the app's folder
        **{APP: json.dumps({"name": name, "files": files})},
    )


def bundled(app: Path, made: Path) -> tuple[str, dict[str, str]]:
    """Publisher, name and version of a Flower app, and the SHA-256 of each file that Flower bundles, by path."""
    command = [program("flwr"), "build", "--app", str(app.absolute())]
    done = subprocess.run(command, cwd=made, env=environment(FLWR_HOME=str(made)), capture_output=True, text=True)
    found = list(made.glob("*.fab"))
    if done.returncode or len(found) != 1:
        raise InputError(f"{app}: Flower cannot bundle this app; `flwr build --app {app}` says why")
    with ZipFile(found[0]) as bundle:
        own = [name for name in bundle.namelist() if not name.startswith(".info/")]
        files = {name: bundle.read(name) for name in own}
    settings = tomllib.loads(files["pyproject.toml"].decode())
    project, publisher = settings["project"], settings["tool"]["flwr"]["app"]["publisher"]
    name = f"{publisher}/{project['name']} {project['version']}"
    return name, {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}


def _fedeas(*arguments: str) -> None:
    """Run a command of ``fedeas flower``; an InputError if it fails."""
    command = [sys.executable, "-m", "fedeas", "flower", *arguments]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    if done.returncode:
        raise InputError(done.stderr.strip().removeprefix("error: ") or f"{' '.join(command)} failed")
