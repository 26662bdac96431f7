"""A SuperNode that asks for work several times a second.

Flower's node sleeps three seconds when it has found no message, and half a second while it waits for a reply. Both
are constants in its code, so a round would take four seconds however short the work. Here that one module gets its own
time module with shorter sleeps. If the module looks different, it is left unchanged.
"""

from __future__ import annotations

import inspect
import time
from types import SimpleNamespace

from flwr.supernode import start_client_internal

from fedeas.flower.backoff import Pace

IDLE = 3
SLEEPS = (f"time.sleep({IDLE})", "time.sleep(0.5)")
LONGEST_POLL = 1.0


def quicken(poll: float) -> str | None:
    """Make the node ask again after `poll` seconds, or later if it has long been idle; return why not, if it cannot."""
    module = start_client_internal
    if getattr(module, "time", None) is not time or any(text not in inspect.getsource(module) for text in SLEEPS):
        return f"{module.__name__} is not as expected"
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
