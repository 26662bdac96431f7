"""Measures that fill the cells of tables: numbers from the summaries of one or two runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fedeas

Record = dict[str, Any]
Measure = Callable[..., float | None]


def _percent(key: str) -> Callable[[Record], float]:
    return lambda run: 100 * float(run[key])


def _number(key: str) -> Callable[[Record], float | None]:
    return lambda run: None if run[key] is None else float(run[key])  # some runs lack it


accuracy = _percent("accuracy")  # mean over the window
final = _percent("final")  # after the last round
peak = _percent("peak")  # best of all rounds
steps = _number("steps")  # of all clients in all rounds
images_seen = _number("samples")  # an image counts each time it is seen
gamma_hat = _number("gamma_hat")  # median dissimilarity of the clients' updates
rounds_to_threshold = _number("rounds_to_threshold")  # None if it was never reached


def gain(run: Record, base: Record) -> float:
    """Points of accuracy above another run."""
    return accuracy(run) - accuracy(base)


def gain_recovered(run: Record, base: Record, full: Record) -> float | None:
    """How much of the gain of `full` over `base` a run reaches, in percent."""
    whole = gain(full, base)
    return 100 * gain(run, base) / whole if whole else None


def efficiency(run: Record, base: Record) -> float | None:
    """Points of accuracy gained for each thousand samples."""
    return fedeas.accuracy_per_thousand(gain(run, base), run["total"]) if run["total"] else None


def minutes(run: Record) -> float | None:
    """Minutes of generation and training; None if images were in the bank already, which shortens the run."""
    found = (run["images"] or {}).get("found", 0)
    return None if found else float(run["seconds"]["total"]) / 60


def gamma_reduction(run: Record, base: Record) -> float | None:
    """How much less the updates differ than another run's, in percent."""
    ours, theirs = gamma_hat(run), gamma_hat(base)
    return None if ours is None or not theirs else 100 * (1 - ours / theirs)


def peak_gain(run: Record, base: Record) -> float:
    """Points of peak accuracy above another run."""
    return peak(run) - peak(base)


def time_ratio(run: Record, base: Record) -> float | None:
    """How many times longer than another run."""
    own, other = minutes(run), minutes(base)
    return None if own is None or not other else own / other
