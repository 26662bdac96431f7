"""The environment variables of all processes of a deployment."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import cast

from fedeas.core.errors import InputError

FIXED = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
    "PYTHONUNBUFFERED": "1",
    "NO_PROXY": "*",
    "no_proxy": "*",
}
PROXIES = ("http_proxy", "https_proxy", "all_proxy")


def environment(home: Path) -> dict[str, str]:
    """The caller's environment without telemetry and proxies, and with Flower's files in `home`.

    Flower starts its helpers by bare name, so the folder of this interpreter's programs comes first in the path.
    Several nodes share the cores of one machine: each has one thread, unless the caller sets another number.
    """
    kept = {name: value for name, value in os.environ.items() if name.lower() not in PROXIES}
    return {"OMP_NUM_THREADS": "1", **kept, **FIXED, "PATH": search_path(), "FLWR_HOME": str(home)}


def search_path() -> str:
    """The caller's search path for programs, after the folder of this interpreter's programs."""
    return os.pathsep.join(filter(None, (str(Path(sys.executable).parent), os.environ.get("PATH"))))


def program(name: str) -> str:
    """The full path of one of Flower's programs."""
    found = shutil.which(name, path=search_path())
    if found is None:
        raise InputError(f"{name} is not installed beside {sys.executable}; pip install 'fedeas[flower]'")
    return found


def program_main(name: str) -> Callable[[], object]:
    """The function that one of Flower's programs calls, to run it in this process."""
    return cast(Callable[[], object], entry_points(group="console_scripts")[name].load())


@contextmanager
def without_proxies() -> Iterator[None]:
    """Turn proxies off in this process, for connections to loopback."""
    before = os.environ.get("no_proxy")
    os.environ["no_proxy"] = "*"
    try:
        yield
    finally:
        if before is None:
            del os.environ["no_proxy"]
        else:
            os.environ["no_proxy"] = before
