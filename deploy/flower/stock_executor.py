"""Flower's own executor as the executor of a node: a new process for each message, and one app only.

It needs nothing of Flower but its public programs, so it works with versions that `internals` does not know. Flower
unpacks what a run brings along; the module in `guard` keeps each process from loading it, unless it is the node's app.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from deploy.flower.app import Bundle
from deploy.flower.environment import FIXED, program, search_path

GUARD = Path(__file__).parent / "guard"
APP = "FEDEAS_NODE_APP"  # as in guard/sitecustomize.py
NO_INSTALLATION = {"FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1", "UV_OFFLINE": "1", "UV_NO_BUILD": "1"}
"""A version of Flower that installs what an app depends on, with uv, neither downloads nor builds anything."""


def start_stock_executor(runtime: str, secret: Path, app: Bundle) -> subprocess.Popen[bytes]:
    """Start the executor for the node at `runtime`; it ends with this process."""
    command = [program("flower-superexec"), "--insecure", "--runtime-api-address", runtime]
    command += ["--superexec-auth-secret-file", str(secret), "--parent-pid", str(os.getpid())]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, env={**os.environ, **guarded(app)})


def guarded(app: Bundle) -> dict[str, str]:
    """Environment variables with which a Python process loads this app alone."""
    paths = filter(None, (str(GUARD), os.environ.get("PYTHONPATH")))
    has_code = any(name.endswith(".py") for name in app.files)
    return {
        **FIXED,
        **NO_INSTALLATION,
        APP: json.dumps({"name": app.name, "files": app.files}),
        "PATH": search_path(),
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONSAFEPATH": "1",  # the search path at the start is that of the installation
        # Compiled modules would be more files in the app's folder.
        **({"PYTHONDONTWRITEBYTECODE": "1"} if has_code else {}),
    }
