"""How long commands take: announced beforehand, and shown while they work."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fedeas.config.run import RunConfig
from fedeas.core.deadline import duration, seconds_left
from fedeas.core.foreign_text import printable
from fedeas.runs.store import Record

if TYPE_CHECKING:
    from fedeas.federation.run import Forecast

LONG = 60.0  # seconds from which on a command says beforehand how long it will take
SECONDS_PER_LINE, SECONDS_PER_STEP = 60.0, 10.0  # within a round, and of other steps, without a terminal
CALLS_TO_PACE = 4  # until the pace of steps is steady
Tell = Callable[..., None]
"""Told how much is done of how much, and perhaps a text."""


def announce(seconds: float, what: str, about: str = "about") -> None:
    """Say beforehand how long a command will take, in one line, if that is over a minute."""
    if seconds >= LONG:
        print(f"{about} {duration(seconds)} {what}", file=sys.stderr, flush=True)


def say_how_long(ahead: Forecast) -> None:
    """Say how long a run will take, if that is more than a minute."""
    images = f"; {ahead.images:,} synthetic images come on top" if ahead.images else ""
    about = "at most about" if ahead.is_bound else "about"
    announce(ahead.seconds, f"of training for {ahead.rounds:,} rounds on this machine{images}", about)


def live_bar(console: Console, transient: bool = True, disable: bool = False) -> Progress:
    """A live line with a text, a bar, how much is done, and the time left."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=transient, disable=disable)


@contextmanager
def steps_shown(noun: str, console: Console, transient: bool = True, announced: bool = False) -> Iterator[Tell]:
    """Show how much is done of how much, and the time left: a live line in a terminal, else a line every few seconds.

    Once the pace is known, say how long it will take, if that is not `announced` yet.
    """
    is_due, calls, first, start = every(SECONDS_PER_STEP), 0, 0, 0.0
    with live_bar(console, transient, disable=not console.is_terminal) as bar:
        task = bar.add_task("")

        def tell(done: int, of: int, more: str = "") -> None:
            nonlocal calls, first, start
            if not calls:
                first, start = done, time.perf_counter()
            calls += 1
            rate = (done - first) / max(time.perf_counter() - start, 1e-9)
            left = (of - done) / rate if rate else 0.0
            if calls == CALLS_TO_PACE and not announced:
                announce(left, f"for the {of - done:,} {noun} that are left")
            text = f"{noun}{more}" + (f", {rate:,.1f} a second, about {duration(left)} left" if rate else "")
            bar.update(task, completed=done, total=of, description=text)
            if not console.is_terminal and is_due():
                print(f"{done:,} of {of:,} {text}", file=console.file, flush=True)

        yield tell


def every(seconds: float) -> Callable[[], bool]:
    """Return a function that is True at most once every `seconds`, and not at once."""
    last = time.monotonic()

    def is_due() -> bool:
        nonlocal last
        due = time.monotonic() - last >= seconds
        last = time.monotonic() if due else last
        return due

    return is_due


@contextmanager
def progress(config: RunConfig, quiet: bool = False) -> Iterator[Rounds]:
    """Show each round, and clients within long ones."""
    console, about = Console(), (config.label, config.seed, config.rounds.total)
    if not (quiet or console.is_terminal):
        yield Rounds(*about)
        return
    with live_bar(console, disable=quiet) as bar:
        yield Rounds(*about, bar)


class Rounds:
    """Show rounds in a live line of a terminal, elsewhere in a line for each: accuracy, loss, new images and seconds.

    The time left is that of the remaining rounds at the mean pace so far, without the time for images. Within a round
    that takes minutes, there is a line every minute.
    """

    def __init__(self, label: str, seed: int, total: int, bar: Progress | None = None) -> None:
        self.name, self.total, self.bar = f"{label} seed {seed}", total, bar
        self.records: list[Record] = []
        self.is_due = every(SECONDS_PER_LINE)
        if bar is not None:
            self.task = bar.add_task(self.name, total=total)

    def __call__(self, record: Record) -> None:
        """A round has ended."""
        self.records.append(record)
        spent, left = sum(record["seconds"].values()), seconds_left(self.records, self.total) or 0.0
        # One image of a pool serves many clients.
        made = record.get("images", {"made": record.get("generated", 0)})["made"]
        tested = f"accuracy {record['accuracy']:.2%}, " if "accuracy" in record else ""
        loss = f"loss {record['train_loss']:.4f}, " if "train_loss" in record else ""
        images = f"{made:,} new images, " if made else ""
        self._show(f"{tested}{loss}{images}{spent:.1f} s, {duration(left)} left", record["round"], self.total)

    def on_client(self, done: int, of: int) -> None:
        """A client of the current round is done."""
        if self.bar or (done < of and self.is_due()):
            before = self.records[-1]["round"] if self.records else 0
            self._show(f"{done} of {of} clients", before + done / of, self.total)

    def on_stage(self, record: Record, of: int) -> None:
        """A round in which clients train their generator has ended."""
        if self.bar or record["round"] in (1, of) or self.is_due():
            self._show(f"loss {record.get('train_loss', float('nan')):.4f}", record["round"], of, ", generator")

    def _show(self, text: str, done: float, of: int, stage: str = "") -> None:
        if self.bar:
            self.bar.update(self.task, completed=done, total=of, description=printable(f"{self.name}{stage}: {text}"))
            return
        # A resumed run does not know its round before the first one ends.
        where = f", round {ceil(done):,} of {of:,}" if self.records or stage else ""
        print(f"{printable(self.name)}{stage}{where}: {text}", flush=True)
