"""A SuperNode that asks for work several times a second.

Flower's node sleeps three seconds when it has found no message, and half a second while it waits for a reply. Both are
numbers in its code, so a round would take four seconds however short the work. Here that one module gets a clock of its
own, whose sleeps are shorter. A Flower whose module looks different keeps its pace.
"""

from __future__ import annotations

import importlib
import inspect
import time
from types import SimpleNamespace

import flwr

from fedeas.flower.backoff import Pace

MODULE = "flwr.supernode.start_client_internal"
VERSION = "1.41."
IDLE = 3
SLEEPS = (f"time.sleep({IDLE})", "time.sleep(0.5)")
LONGEST_POLL = 1.0


def quicken(poll: float) -> str | None:
    """Let the node ask again after `poll` seconds, or later when it has long been idle; why not, if it cannot be."""
    if not flwr.__version__.startswith(VERSION):
        return f"Flower {flwr.__version__} is not {VERSION}x; the node keeps its own pace"
    module = importlib.import_module(MODULE)
    if getattr(module, "time", None) is not time or any(text not in inspect.getsource(module) for text in SLEEPS):
        return f"{MODULE} is not as expected; the node keeps its own pace"
    vars(module)["time"] = _clock(Pace(poll, LONGEST_POLL))
    return None


def _clock(pace: Pace) -> SimpleNamespace:
    """The time module with another sleep. Its length tells what the node waits for: a message, or its own app."""

    def sleep(seconds: float) -> None:
        if seconds >= IDLE:
            pace.pause()
        else:
            pace.reset()
            time.sleep(min(seconds, pace.shortest))

    return SimpleNamespace(**{**vars(time), "sleep": sleep})
