"""What to recommend beside FedEAS, as our experiments show it; a test compares this with their results."""

from __future__ import annotations

from typing import NamedTuple

from fedeas.core.sentences import listed
from fedeas.planning.counts import LabelCounts
from fedeas.planning.policies.pool import Pool, images_each

WHOLE_POOL = "pool with generator=shared(each=budget/classes)"
"""The pool with as many images as the budget has, in words."""


class Shown(NamedTuple):
    """A policy to recommend, and the datasets on which it is higher than FedEAS; none for FedEAS itself."""

    policy: str = "fedeas"
    datasets: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The policy and where it was shown to be better.

        >>> Shown("kl", ("digits",)).text, Shown().text
        ('kl (higher than FedEAS on digits)', 'fedeas')
        """
        return f"{self.policy}{_where(self.datasets)}"


class Advice(NamedTuple):
    """The policy if a server makes the images, and if clients do; where balanced softmax helps FedEAS or KL."""

    server: Shown = Shown()
    clients: Shown = Shown()
    balanced_softmax: tuple[str, ...] = ()

    @property
    def clauses(self) -> list[str]:
        """The advice, clause by clause.

        >>> Advice(server=Shown("pool", ("digits",))).clauses
        ['if a server makes the images, pool (higher than FedEAS on digits)', 'if clients make their own, fedeas']
        """
        loss = [f"with fedeas or kl, balanced softmax{_where(self.balanced_softmax)}"] if self.balanced_softmax else []
        makers = [
            f"if a server makes the images, {self.server.text}",
            f"if clients make their own, {self.clients.text}",
        ]
        return [*makers, *loss]

    @property
    def text(self) -> str:
        """The advice in one line."""
        return f"policies to compare, by our experiments: {'; '.join(self.clauses)}"

    def for_budget(self, images: int, counts: LabelCounts) -> str:
        """The advice in one line, with the numbers that a budget of so many images gives for these clients.

        >>> Advice(server=Shown(WHOLE_POOL)).for_budget(10, LabelCounts([[6, 2], [0, 8]])).partition(";")[0][-47:]
        'pool(distinct=10) with generator=shared(each=5)'
        """
        pool = Pool(distinct=images)
        each = images_each(pool.allocate(counts).n, images)
        return self.text.replace(WHOLE_POOL, f"{pool.spec} with generator=shared{f'({each=})' if each else ''}")


def _where(datasets: tuple[str, ...]) -> str:
    return f" (higher than FedEAS on {listed(datasets)})" if datasets else ""


SHOWN = Advice(
    server=Shown(WHOLE_POOL, ("digits", "fashion-mnist", "cifar10", "cifar100")),
    clients=Shown("kl", ("digits", "fashion-mnist", "cifar10")),
)
"""What the experiment ``fedeas reproduce beyond`` shows so far, on all its datasets together."""
