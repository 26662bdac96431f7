"""How long commands take: announced beforehand, and shown while they work."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fedeas.config.run import RunConfig
from fedeas.core.deadline import duration, seconds_left
from fedeas.core.foreign_text import printable
from fedeas.runs.store import Record

if TYPE_CHECKING:
    from fedeas.federation.run import Forecast

LONG = 60.0  # seconds from which on a command says beforehand how long it will take
SECONDS_PER_LINE = 60.0  # within a round, without a terminal
Tell = Callable[[int, int, str], None]
"""Told how much is done of how much, and a text."""


def announce(seconds: float, what: str, about: str = "about") -> None:
    """Say beforehand how long a command will take, in one line, if that is over a minute."""
    if seconds >= LONG:
        print(f"{about} {duration(seconds)} {what}", file=sys.stderr, flush=True)


def say_how_long(ahead: Forecast) -> None:
    """Say how long a run will take, if that is more than a minute."""
    images = f"; {ahead.images:,} synthetic images come on top" if ahead.images else ""
    about = "at most about" if ahead.is_bound else "about"
    announce(ahead.seconds, f"of training for {ahead.rounds:,} rounds on this machine{images}", about)


def next_step(text: str) -> None:
    """Suggest what to do next, in one line and only on a terminal."""
    console = Console()
    if console.is_terminal:
        console.print(f"next: {printable(text)}", markup=False, highlight=False, style="dim", soft_wrap=True)


def live_bar(console: Console, transient: bool = True, disable: bool = False) -> Progress:
    """A live line with a text, a bar, how much is done, and the time left."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=transient, disable=disable)


@contextmanager
def steps_shown(console: Console, seconds: float, transient: bool = True) -> Iterator[Tell]:
    """Show how much is done of how much, with a text: a live line in a terminal, else a line every few `seconds`."""
    if not console.is_terminal:
        is_due = every(seconds)

        def say(done: int, of: int, text: str) -> None:
            if is_due():
                print(f"{done:,} of {of:,} {text}", file=console.file, flush=True)

        yield say
        return
    with live_bar(console, transient) as bar:
        task = bar.add_task("")
        yield lambda done, of, text: bar.update(task, completed=done, total=of, description=text)


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
def progress(config: RunConfig, quiet: bool = False) -> Iterator[Any]:
    """Show each round, and clients within long ones: a live line in a terminal, plain lines elsewhere."""
    console = Console()
    if not (quiet or console.is_terminal):
        yield PlainLines(config.label, config.seed, config.rounds.total)
        return
    with live_bar(console, disable=quiet) as bar:
        yield RoundBar(bar, f"{config.label}, seed {config.seed}", config.rounds.total)


def _new_images(record: Record) -> int:
    """How many images were made in a round; one image of a pool serves many clients."""
    return int(record.get("images", {"made": record.get("generated", 0)})["made"])


def _generator_loss(record: Record) -> str:
    """The loss of a round in which clients train their generator."""
    return f"loss {record.get('train_loss', float('nan')):.4f}"


class RoundBar:
    """A live line: clients of the current round, new images so far, accuracy, a bar of rounds, and the time left."""

    def __init__(self, bar: Progress, name: str, total: int) -> None:
        self.bar, self.name, self.total = bar, name, total
        self.task = bar.add_task(name, total=total)
        self.before = self.round = self.images = 0
        self.accuracy = ""

    def __call__(self, record: Record) -> None:
        """A round has ended."""
        self.round = record["round"]
        self.images += _new_images(record)
        if "accuracy" in record:
            self.accuracy = f"  accuracy {record['accuracy']:.1%}"
        self._show(f"{len(record['clients'])} clients")

    def on_client(self, done: int, of: int) -> None:
        """A client of the current round is done."""
        self._show(f"{done} of {of} clients", done / of)

    def on_stage(self, record: Record, of: int) -> None:
        """A round in which clients train their generator has ended; there are `of` before the first of the run."""
        self.before = of
        text = f"{self.name}  generator, {_generator_loss(record)}"
        self.bar.update(self.task, completed=record["round"], total=of + self.total, description=text)

    def _show(self, clients: str, share: float = 0.0) -> None:
        synthetic = f"  {self.images:,} new images" if self.images else ""
        text = f"{self.name}  {clients}{synthetic}{self.accuracy}"
        self.bar.update(self.task, completed=self.before + self.round + share, description=text)


class PlainLines:
    """Print a line for each round, for log files: accuracy, loss, new images, seconds, and the time left.

    The time left is that of the remaining rounds at the mean pace so far, without the time for images. Within a round
    that takes minutes, there is a line every minute.
    """

    def __init__(self, label: str, seed: int, total: int) -> None:
        self.name, self.total = f"{label} seed {seed}", total
        self.records: list[Record] = []
        self.last = time.monotonic()

    def __call__(self, record: Record) -> None:
        """Print the line of a round."""
        self.records.append(record)
        spent, left = sum(record["seconds"].values()), seconds_left(self.records, self.total) or 0.0
        tested = f"accuracy {record['accuracy']:.2%}, " if "accuracy" in record else ""
        images = f"{made:,} new images, " if (made := _new_images(record)) else ""
        loss = f"loss {record['train_loss']:.4f}, " if "train_loss" in record else ""
        self._print(f"{tested}{loss}{images}{spent:.1f} s, {duration(left)} left", record["round"], self.total)

    def on_client(self, done: int, of: int) -> None:
        """Print a line if the last one is a minute ago."""
        if done < of and self._is_due():
            # A resumed run does not know its round before the first one ends.
            self._print(f"{done} of {of} clients", self.records[-1]["round"] + 1 if self.records else 0, self.total)

    def on_stage(self, record: Record, of: int) -> None:
        """Print a line for a round in which clients train their generator, if the last one is a minute ago."""
        if record["round"] in (1, of) or self._is_due():
            self._print(_generator_loss(record), record["round"], of, ", generator")

    def _is_due(self) -> bool:
        return time.monotonic() - self.last >= SECONDS_PER_LINE

    def _print(self, text: str, round: int, of: int, stage: str = "") -> None:
        self.last = time.monotonic()
        where = f", round {round:,} of {of:,}" if round else ""
        print(f"{printable(self.name)}{stage}{where}: {text}", flush=True)
