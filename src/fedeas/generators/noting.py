"""Note how many images of a run were already in the bank, before the others are made, so that a kill loses nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedeas.generators.bank import BankedGenerator
from fedeas.generators.base import GeneratorWrapper, Images, client_of
from fedeas.generators.pools import KeptPool

Note = dict[str, Any]
Banked = BankedGenerator | KeptPool
"""A generator whose images are kept in a bank."""


class NotingGenerator(GeneratorWrapper[Banked]):
    """A generator whose images are kept, and that notes for each client how many had to be made.

    `noted` are the notes of earlier starts of the run; `note` stores a new one.
    """

    def __init__(self, generator: Banked, noted: Iterable[Note], note: Callable[[Note], None]) -> None:
        super().__init__(generator)
        self._notes, self._note = list(noted), note
        self._known = {client for each in self._notes for client in each["clients"]}

    def sample(self, labels: ArrayLike, index: ArrayLike) -> Images:
        """The images of these addresses; at a client's first request the number of missing images is noted first."""
        classes, numbers = np.asarray(labels), np.asarray(index)
        clients = client_of(numbers)
        new = sorted({*clients.tolist()} - self._known)
        if new:
            asked = np.isin(clients, new)
            found, made = self.generator.holdings(classes[asked], numbers[asked])
            note = {"clients": new, "found": found, "made": made}
            self._note(note)
            self._notes.append(note)
            self._known.update(new)
        return self.generator.sample(classes, numbers)

    def skip(self, clients: Iterable[int]) -> None:
        """Count no image of these clients: theirs are in the records of an earlier start."""
        clients = set(clients)
        self._known.update(clients)
        self.drawn(clients)

    def drawn(self, clients: Iterable[int]) -> dict[str, int]:
        """Images found and made in the requests that were the first of one of these clients.

        A request may be for many clients; its images are counted with the client that trains first.
        """
        asked = set(clients)
        drawn = [note for note in self._notes if not asked.isdisjoint(note["clients"])]
        self._notes = [note for note in self._notes if asked.isdisjoint(note["clients"])]
        return {name: sum(note[name] for note in drawn) for name in ("found", "made")}
