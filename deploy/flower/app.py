"""FedEAS as a Flower app: a folder with a pyproject.toml that names the server and the client part.

Both parts come from the installed package, so the folder holds nothing else. A run brings its app along as a bundle;
nodes run the client part of one app only, from their own installation, and refuse runs with any other bundle.
"""

from __future__ import annotations

import hashlib
import importlib
import subprocess
import tempfile
import tomllib
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

from deploy.flower import internals
from deploy.flower.environment import environment, program
from fedeas import __version__
from fedeas.core.errors import InputError
from fedeas.core.files import make_folder, write_bytes

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp

TABLES = """\
[tool.flwr.app]
publisher = "fedeas"
fab-include = ["/pyproject.toml"]

[tool.flwr.app.components]
serverapp = "fedeas.flower.app:server"
clientapp = "fedeas.flower.app:client"

[tool.flwr.app.config]
settings = ""
runs = "runs"
members = ""
"""

PROJECT = f"""\
[project]
name = "fedeas"
version = "{__version__}"
description = "FedEAS as a Flower app"
license = "Apache-2.0"
dependencies = []

"""


def write_app(folder: Path) -> Path:
    """Write the app's folder and return it."""
    make_folder(folder)
    write_bytes(folder / "pyproject.toml", (PROJECT + TABLES).encode())
    return folder


def bundle(folder: Path) -> bytes:
    """The app in `folder` as a bundle: made in this process if the installed Flower allows it, else by `flwr build`."""
    if internals.problem("bundles") is not None:
        return build(folder)
    from deploy.flower.internals.bundles import build_fab_from_disk

    return build_fab_from_disk(folder)


def build(folder: Path) -> bytes:
    """The bundle that `flwr build` makes."""
    with tempfile.TemporaryDirectory() as made:
        command = [program("flwr"), "build", "--app", str(folder.absolute())]
        done = subprocess.run(command, cwd=made, env=environment(Path(made)), capture_output=True, text=True)
        found = list(Path(made).glob("*.fab"))
        if done.returncode or len(found) != 1:
            raise InputError(f"{folder}: Flower cannot bundle this app; `flwr build --app {folder}` says why")
        return found[0].read_bytes()


@dataclass(frozen=True)
class Bundle:
    """A Flower app as a run brings it along."""

    content: bytes

    @staticmethod
    def of(folder: str | Path | None = None) -> Bundle:
        """The bundle of the app in `folder`, by default of the installed FedEAS."""
        if folder is None:
            with tempfile.TemporaryDirectory() as made:
                return Bundle(bundle(write_app(Path(made) / "fedeas")))
        if not (Path(folder) / "pyproject.toml").is_file():
            raise InputError(f"{folder}: no Flower app; give a folder with a pyproject.toml")
        return Bundle(bundle(Path(folder)))

    @property
    def digest(self) -> str:
        """The SHA-256 of the bundle, which Flower calls its hash."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def name(self) -> str:
        """Publisher, name and version, such as fedeas/fedeas 0.1.0."""
        project = self._settings["project"]
        return f"{self._settings['tool']['flwr']['app']['publisher']}/{project['name']} {project['version']}"

    @property
    def files(self) -> dict[str, str]:
        """The SHA-256 of each of the app's files, by path; Flower's own list of them is left out."""
        with ZipFile(BytesIO(self.content)) as files:
            own = [name for name in files.namelist() if not name.startswith(".info/")]
            return {name: hashlib.sha256(files.read(name)).hexdigest() for name in own}

    @property
    def _settings(self) -> dict[str, Any]:
        with ZipFile(BytesIO(self.content)) as files:
            return tomllib.loads(files.read("pyproject.toml").decode())

    def load_client(self) -> ClientApp:
        """Import the client part from this installation; nothing is read from the bundle but its name."""
        from flwr.clientapp import ClientApp

        module, _, name = self._settings["tool"]["flwr"]["app"]["components"]["clientapp"].partition(":")
        client = getattr(importlib.import_module(module), name)
        assert isinstance(client, ClientApp)
        return client


def check_same_app(allowed: Bundle, name: str, content: bytes) -> None:
    """Refuse a run whose app is not the one that this node runs; `name` is what the run calls it."""
    if Bundle(content).digest == allowed.digest:
        return
    raise InputError(
        f"this node runs {allowed.name} only, and the run brings {name} with another content; "
        "install the same version on server and nodes"
    )
