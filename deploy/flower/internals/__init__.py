"""Everything in FedEAS that uses parts of Flower that are not public; nothing outside this package does.

Such parts may change with any version of Flower. Ask `problem` before you import a module from here: with a version
that these modules were not tested with, or without a name that they need, FedEAS goes on with Flower's public programs.
Only `superlink`, the operator's requests, has no public counterpart: it is tried with every version.
"""

from __future__ import annotations

import importlib
from importlib.metadata import version

from fedeas.core.errors import InputError

VERSIONS = ("1.41.", "1.42.")
"""Beginnings of the versions that these modules were tested with."""


def problem(module: str) -> str | None:
    """Why a module of this package cannot be used with the installed Flower; None if it can."""
    installed = version("flwr")
    if not installed.startswith(VERSIONS):
        return f"Flower {installed} is not one of {', '.join(f'{each}x' for each in VERSIONS)}"
    return _missing(module)


def need(module: str) -> None:
    """Raise an error if a module of this package cannot be imported; for those without a public counterpart."""
    missing = _missing(module)
    if missing is not None:
        raise InputError(f"{missing}; install a version that FedEAS knows: pip install 'flwr=={VERSIONS[-1]}*'")


def _missing(module: str) -> str | None:
    try:
        importlib.import_module(f"{__name__}.{module}")
    except ImportError as error:
        return f"Flower {version('flwr')} has changed ({error})"
    return None
