"""A Flower app as a bundle, made by Flower."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from fedeas.errors import InputError
from fedeas.flower.deployment import internals
from fedeas.flower.deployment.environment import environment, program


def bundle(folder: Path) -> bytes:
    """The app in `folder` as a bundle: made in this process if the installed Flower allows it, else by `flwr build`."""
    if internals.problem("bundles") is not None:
        return build(folder)
    from fedeas.flower.deployment.internals import bundles

    return bundles.bundle(folder)


def build(folder: Path) -> bytes:
    """The bundle that `flwr build` makes."""
    with tempfile.TemporaryDirectory() as made:
        command = [program("flwr"), "build", "--app", str(folder.absolute())]
        done = subprocess.run(command, cwd=made, env=environment(Path(made)), capture_output=True, text=True)
        found = list(Path(made).glob("*.fab"))
        if done.returncode or len(found) != 1:
            raise InputError(f"{folder}: Flower cannot bundle this app; `flwr build --app {folder}` says why")
        return found[0].read_bytes()
