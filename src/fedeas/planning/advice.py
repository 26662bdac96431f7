"""What to recommend beside FedEAS, as our experiments show it; a test compares this with their results."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from fedeas.core.sentences import listed
from fedeas.planning.counts import LabelCounts
from fedeas.planning.policies import POLICIES, FedEAS
from fedeas.planning.policies.base import Needs, Policy
from fedeas.planning.policies.pool import Pool, images_each

WHOLE_POOL = "pool with generator=shared(each=budget/classes)"
"""The pool with as many images as the budget has, in words."""


class Shown(NamedTuple):
    """A policy to recommend, and the evidence: it is shown to be higher than FedEAS somewhere, and lower nowhere.

    Attributes:
        policy: the policy; FedEAS itself needs no evidence.
        datasets: those of the experiments in which it is higher.
        higher: number of these experiments.
        judged: number of experiments that have all runs of the policy.
        gained: its mean over experiments, and at their smallest and largest budgets, with intervals, in words.
    """

    policy: str = "fedeas"
    datasets: tuple[str, ...] = ()
    higher: int = 0
    judged: int = 0
    gained: str = ""

    @property
    def text(self) -> str:
        """The policy, and where it was shown to be better.

        >>> print(Shown("kl", ("digits",), 1, 3).text)
        kl (shown to be higher than FedEAS in 1 of 3 experiments, on digits, and lower in none)
        >>> print(Shown().text)
        fedeas
        """
        where = f"in {self.higher} of {self.judged} experiments, on {listed(self.datasets)}"
        told = [f"shown to be higher than FedEAS {where}, and lower in none", *filter(None, [self.gained])]
        return f"{self.policy} ({'; '.join(told)})" if self.higher else self.policy

    @property
    def name(self) -> str:
        """The policy's name alone."""
        return re.split(r"[ (]", self.policy)[0]

    @property
    def needs_counts(self) -> bool:
        """Whether clients must reveal their label counts for the policy, if it spends as much as FedEAS."""
        kind = POLICIES.get(self.name)
        if kind is None or kind.is_local:
            return False
        with_budget: Callable[[Policy], Policy] = kind
        return with_budget(FedEAS()).needs is Needs.COUNTS


class Advice(NamedTuple):
    """The policy if a server makes the images, and if clients do; and balanced softmax, if it helps FedEAS."""

    server: Shown = Shown()
    clients: Shown = Shown()
    loss: Shown = Shown()

    @property
    def clauses(self) -> list[str]:
        """The advice, clause by clause.

        >>> Advice().clauses
        ['if a server makes the images, fedeas', 'if clients make their own, fedeas']
        >>> Advice(clients=Shown("kl")).clauses[-1]
        'for kl the server needs the label counts of all clients, for fedeas it does not'
        """
        makers = [
            f"if a server makes the images, {self.server.text}",
            f"if clients make their own, {self.clients.text}",
        ]
        losses = [f"with fedeas, {self.loss.text}"] if self.loss.higher else []
        more = ["clients of a pool have more images than those of fedeas, and so train for more steps"]
        telling = listed([each.name for each in (self.server, self.clients) if each.needs_counts])
        counts = f"for {telling} the server needs the label counts of all clients, for fedeas it does not"
        return [*makers, *losses, *(more if self.server.name == "pool" else []), *([counts] if telling else [])]

    @property
    def text(self) -> str:
        """The advice, a line for each clause."""
        return "\n- ".join(["policies to compare, by our experiments:", *self.clauses])

    def for_budget(self, budget: int, counts: LabelCounts) -> str:
        """The advice, with the numbers that a budget of so many images gives for these clients.

        A plain pool may make fewer images than its budget: this is about the budget.

        >>> Advice(server=Shown(WHOLE_POOL)).for_budget(10, LabelCounts([[6, 2], [0, 8]])).split("images, ")[1][:47]
        'pool(distinct=10) with generator=shared(each=5)'
        """
        pool = Pool(distinct=budget)
        each = images_each(pool.allocate(counts).n, budget)
        return self.text.replace(WHOLE_POOL, f"{pool.spec} with generator=shared{f'({each=})' if each else ''}")


SHOWN = Advice(
    server=Shown(
        WHOLE_POOL, ("digits", "fashion-mnist", "cifar10", "cifar100"), higher=11, judged=14,
        gained="+2.10 points (1.27 to 2.94) over 13 clean experiments, +3.32 (1.76 to 4.87) at the smallest budgets, "
        "+0.57 (0.28 to 0.87) at the largest budgets",
    ),
    clients=Shown(
        "kl", ("digits", "fashion-mnist", "cifar10"), higher=6, judged=14,
        gained="+0.49 points (0.14 to 0.85) over 13 clean experiments, +0.57 (0.04 to 1.10) at the smallest budgets, "
        "+0.35 (0.16 to 0.54) at the largest budgets",
    ),
)  # fmt: skip
"""What the experiment ``python -m reproduction beyond`` shows so far, on all its datasets together."""
