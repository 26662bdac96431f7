"""Check that a run's summary has the measures that tables and charts use, and that they are numbers in range."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fedeas.core.provenance import Answer

SHARES = ("accuracy", "final", "peak")
COUNTS = ("total", "generated")
MAYBE_UNKNOWN = ("steps", "samples", "rounds_to_threshold", "gamma_hat", "imbalance_removed")
"""Numbers that are None if they were not measured."""
SECONDS = ("generate", "train", "total")


def summary_problem(summary: Mapping[str, Any]) -> str:
    """What is wrong with a summary, naming the first measure that cannot be used; empty if nothing is.

    >>> summary_problem({"accuracy": 2.0})
    'accuracy is 2.0, not a number from 0 to 1'
    """
    for name in SHARES:
        if not (_is_number(summary.get(name)) and 0 <= summary[name] <= 1):
            return _said(summary, name, "a number from 0 to 1")
    for name in COUNTS:
        if not (_is_number(summary.get(name)) and summary[name] >= 0):
            return _said(summary, name, "a number from 0 on")
    for name in MAYBE_UNKNOWN:
        if name not in summary or not (summary[name] is None or _is_number(summary[name])):
            return _said(summary, name, "a number or null")
    window = summary.get("window")
    if not (isinstance(window, list) and [type(end) for end in window] == [int, int] and 1 <= window[0] <= window[1]):
        return _said(summary, "window", "the first and the last of some rounds")
    seconds = summary.get("seconds")
    if not isinstance(seconds, Mapping) or not all(_is_number(seconds.get(name)) for name in SECONDS):
        return _said(summary, "seconds", f"numbers for {', '.join(SECONDS)}")
    return "" if summary.get("seen", Answer.CLEAN) in [*Answer] else _said(summary, "seen", " or ".join(Answer))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _said(summary: Mapping[str, Any], name: str, wanted: str) -> str:
    return f"{name} is {summary[name]!r}, not {wanted}" if name in summary else f"{name} is missing"
