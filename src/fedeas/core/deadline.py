"""A time limit that is checked between rounds, the time that rounds take, and times in words."""

import time
from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any

ONCE = ("generate", "prepare")  # phases of a round that only new clients and sizes need


def lasting_seconds(record: dict[str, Any]) -> float:
    """The seconds of a round without the phases in `ONCE`: what another round like it would take."""
    return float(sum(spent for name, spent in record.get("seconds", {}).items() if name not in ONCE))


def seconds_left(records: Sequence[dict[str, Any]], total: int) -> float | None:
    """Time for the rounds that are left at the mean pace so far, without images and compilation; None without a round.

    >>> seconds_left([{"round": 1, "seconds": {"train": 2.0, "generate": 60.0, "prepare": 60.0}}], total=4)
    6.0
    """
    return mean(map(lasting_seconds, records)) * (total - records[-1]["round"]) if records else None


class Deadline:
    """Called after each round, tells whether to pause because the next round would probably end too late."""

    def __init__(self, minutes: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.end = clock() + 60 * minutes

    def __call__(self, record: dict[str, Any]) -> bool:
        """Whether another round like this one would end too late."""
        return self.end - self.clock() < lasting_seconds(record)


def duration(seconds: float) -> str:
    """A time in words that fit its size.

    >>> [duration(seconds) for seconds in (4.2, 150, 9000)]
    ['4 s', '2 min 30 s', '2 h 30 min']
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
