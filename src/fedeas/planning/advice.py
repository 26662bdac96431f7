"""What to recommend beside FedEAS, as our experiments show it; a test compares this with their results."""

from __future__ import annotations

from typing import NamedTuple


class Advice(NamedTuple):
    """Which policy to take if a server makes the images, and if clients do; whether balanced softmax adds to it."""

    server: str
    clients: str
    balanced_softmax: bool

    @property
    def clauses(self) -> list[str]:
        """The advice, clause by clause.

        >>> Advice("pool", "fedeas", False).clauses
        ['if a server makes the images, pool', 'if clients make their own, fedeas']
        """
        loss = ["in both cases, balanced softmax"] if self.balanced_softmax else []
        return [f"if a server makes the images, {self.server}", f"if clients make their own, {self.clients}", *loss]

    @property
    def text(self) -> str:
        """The advice in one line."""
        return f"policies to compare, by our experiments: {'; '.join(self.clauses)}"


SHOWN = Advice(server="pool", clients="fedeas", balanced_softmax=False)
"""What the experiment ``fedeas reproduce beyond`` shows so far."""
