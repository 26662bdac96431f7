"""Count a run's synthetic images, each in the round in which its client first trains."""

from __future__ import annotations

from collections.abc import Iterable

from fedeas.core.arrays import IntArray
from fedeas.generators.noting import NotingGenerator
from fedeas.runs.store import Record, trained


class ImageTally:
    """Which clients have trained so far, and how many synthetic images each further client adds.

    `generated` has each client's number of them, `done` the records of earlier rounds; `journal` notes which images
    were in the bank, and is None if images are not kept in one.
    """

    def __init__(self, generated: IntArray, done: Iterable[Record], journal: NotingGenerator | None = None) -> None:
        self.generated, self.journal = generated, journal
        self.seen = {client for record in done for client in trained(record)}
        if journal is not None:
            journal.skip(self.seen)

    def count(self, record: Record) -> Record:
        """The images of clients that trained for the first time in this round, as fields for its record."""
        newcomers = sorted(set(trained(record)) - self.seen)
        self.seen.update(newcomers)
        drawn = {} if self.journal is None else self.journal.drawn(newcomers)
        images = {"images": drawn} if any(drawn.values()) else {}
        return {"generated": int(self.generated[newcomers].sum()), **images}

    def total(self, rounds: Iterable[Record]) -> Record:
        """The same fields for all rounds together; `images` is None if images are not kept in a bank."""
        rounds = list(rounds)
        drawn = [record.get("images", {}) for record in rounds]
        images = {name: sum(each.get(name, 0) for each in drawn) for name in ("found", "made")}
        return {
            "generated": sum(record["generated"] for record in rounds),
            "images": None if self.journal is None else images,
        }
