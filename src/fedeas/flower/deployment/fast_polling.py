"""A SuperNode that asks for work several times a second.

Flower's node sleeps three seconds when it has found no message, and half a second while it waits for a reply. Both
are constants in its code, so a round would take four seconds however short the work. Here that one module gets its own
time module with shorter sleeps. If the module of another Flower version looks different, it is left unchanged.
"""

from __future__ import annotations

import importlib
import inspect
import time
from types import SimpleNamespace

import flwr

from fedeas.flower.backoff import Pace

MODULE = "flwr.supernode.start_client_internal"
VERSIONS = ("1.41.", "1.42.")
IDLE = 3
SLEEPS = (f"time.sleep({IDLE})", "time.sleep(0.5)")
LONGEST_POLL = 1.0


def quicken(poll: float) -> str | None:
    """Make the node ask again after `poll` seconds, or later if it has long been idle; return why not, if it cannot."""
    if not flwr.__version__.startswith(VERSIONS):
        return f"Flower {flwr.__version__} is not {'x or '.join(VERSIONS)}x; the node keeps its own pace"
    module = importlib.import_module(MODULE)
    if getattr(module, "time", None) is not time or any(text not in inspect.getsource(module) for text in SLEEPS):
        return f"{MODULE} is not as expected; the node keeps its own pace"
    vars(module)["time"] = _clock(Pace(poll, LONGEST_POLL))
    return None


def _clock(pace: Pace) -> SimpleNamespace:
    """The time module with another sleep. The length of a sleep tells if the node waits for a message or its app."""

    def sleep(seconds: float) -> None:
        if seconds >= IDLE:
            pace.pause()
        else:
            pace.reset()
            time.sleep(min(seconds, pace.shortest))

    return SimpleNamespace(**{**vars(time), "sleep": sleep})
