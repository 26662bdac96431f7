"""What to recommend beside FedEAS, as our experiments show it; a test compares this with their results."""

from __future__ import annotations

from typing import NamedTuple

from fedeas.core.sentences import listed
from fedeas.planning.counts import LabelCounts
from fedeas.planning.policies.pool import Pool, images_each

WHOLE_POOL = "pool with generator=shared(each=budget/classes)"
"""The pool with as many images as the budget has, in words."""


class Shown(NamedTuple):
    """A policy to recommend, and the evidence: it is higher than FedEAS in some experiments, and lower in none.

    Attributes:
        policy: the policy; FedEAS itself needs no evidence.
        datasets: those of the experiments in which it is higher.
        higher: number of these experiments.
        judged: number of experiments that have all runs of the policy.
    """

    policy: str = "fedeas"
    datasets: tuple[str, ...] = ()
    higher: int = 0
    judged: int = 0

    @property
    def text(self) -> str:
        """The policy and where it was shown to be better.

        >>> print(Shown("kl", ("digits",), 1, 3).text)
        kl (higher than FedEAS in 1 of 3 experiments, on digits; lower in none)
        >>> print(Shown().text)
        fedeas
        """
        if not self.higher:
            return self.policy
        where = f"in {self.higher} of {self.judged} experiments, on {listed(self.datasets)}"
        return f"{self.policy} (higher than FedEAS {where}; lower in none)"


class Advice(NamedTuple):
    """The policy if a server makes the images, and if clients do; and balanced softmax, if it helps FedEAS or KL."""

    server: Shown = Shown()
    clients: Shown = Shown()
    loss: Shown = Shown()

    @property
    def clauses(self) -> list[str]:
        """The advice, clause by clause.

        >>> Advice(clients=Shown("kl")).clauses
        ['if a server makes the images, fedeas', 'if clients make their own, kl']
        """
        makers = [
            f"if a server makes the images, {self.server.text}",
            f"if clients make their own, {self.clients.text}",
        ]
        return [*makers, *([f"with fedeas or kl, {self.loss.text}"] if self.loss.higher else [])]

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


SHOWN = Advice(
    server=Shown(WHOLE_POOL, ("digits", "fashion-mnist", "cifar10", "cifar100"), higher=10, judged=13),
    clients=Shown("kl", ("digits", "fashion-mnist", "cifar10"), higher=5, judged=13),
)
"""What the experiment ``fedeas reproduce beyond`` shows so far, on all its datasets together."""
