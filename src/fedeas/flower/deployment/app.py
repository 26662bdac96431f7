"""FedEAS as a Flower app: a folder with a pyproject.toml that names the server and the client part.

Both parts come from the installed package, so the folder holds nothing else.
"""

from __future__ import annotations

from pathlib import Path

from fedeas import __version__
from fedeas.core.files import make_folder, write_bytes

# The repository's pyproject.toml has the same tables, so that `flwr run .` works there; a test compares them.
TABLES = """\
[tool.flwr.app]
publisher = "fedeas"
fab-include = ["/pyproject.toml"]

[tool.flwr.app.components]
serverapp = "fedeas.flower.app:server"
clientapp = "fedeas.flower.app:client"

[tool.flwr.app.config]
config = ""
overrides = ""
runs = "runs"
data-root = ""
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
