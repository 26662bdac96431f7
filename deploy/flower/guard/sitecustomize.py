"""Lets a Python process load one Flower app and no other. Python imports this module when it starts.

Flower unpacks the app that a run brings along into a folder, and adds the folder to Python's search path. Here every
import is refused while the search path has a folder that was not there at the start, unless that folder holds exactly
the files of the node's app. Nothing in FedEAS imports this module: `node.py` puts its folder into PYTHONPATH.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
import traceback
from pathlib import Path

APP = "FEDEAS_NODE_APP"
"""Environment variable: name of the node's app and the SHA-256 of each of its files, as JSON."""


class OneApp:
    """A finder of modules that finds none; it raises an error if the search path has the folder of another app."""

    def __init__(self, name: str, files: dict[str, str]) -> None:
        self.name = name
        self.files = files
        self.trusted = set(sys.path)

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Check the search path; other finders look for the module."""
        for folder in sys.path:
            if folder not in self.trusted:
                self._check(folder)

    def _check(self, folder: str) -> None:
        """Trust the folder from now on if it holds the node's app."""
        if _digests(Path(folder)) != self.files:
            raise ImportError(
                f"this node runs {self.name} only, and the run brings another app; "
                "install the same version on server and nodes"
            )
        self.trusted.add(folder)


def _digests(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if not path.is_dir()]
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _import_next() -> None:
    """Import the sitecustomize of this installation, if it has one; ours came first in the search path."""
    own, path = sys.modules.pop("sitecustomize"), list(sys.path)
    sys.path[:] = [folder for folder in path if folder != str(Path(__file__).parent)]
    try:
        importlib.import_module("sitecustomize")
    except ImportError:
        sys.modules["sitecustomize"] = own
    finally:
        sys.path[:] = path


try:
    _import_next()
    sys.meta_path.insert(0, OneApp(**json.loads(os.environ[APP])))
except BaseException:
    traceback.print_exc()
    os._exit(1)  # Python itself would go on, without the guard
