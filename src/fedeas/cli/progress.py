"""How long commands take: announced beforehand, and shown while they work."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fedeas.core.foreign_text import printable

LONG = 60.0  # seconds from which on a command says beforehand how long it will take


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


def announce(seconds: float, what: str, about: str = "about") -> None:
    """Say beforehand how long a command will take, in one line, if that is over a minute."""
    if seconds >= LONG:
        print(f"{about} {duration(seconds)} {what}", file=sys.stderr, flush=True)


def next_step(text: str) -> None:
    """Suggest what to do next, in one line and only on a terminal."""
    console = Console()
    if console.is_terminal:
        console.print(f"next: {printable(text)}", markup=False, highlight=False, style="dim", soft_wrap=True)


def live_bar(console: Console, transient: bool = True, disable: bool = False) -> Progress:
    """A live line with a text, a bar, how much is done, and the time left."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=transient, disable=disable)


def every(seconds: float) -> Callable[[], bool]:
    """Return a function that is True at most once every `seconds`, and not at once."""
    last = time.monotonic()

    def is_due() -> bool:
        nonlocal last
        due = time.monotonic() - last >= seconds
        last = time.monotonic() if due else last
        return due

    return is_due
