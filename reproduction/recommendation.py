"""What a planner should recommend: whatever the experiments show to be better than FedEAS, over all their budgets."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from statistics import mean
from typing import NamedTuple

from fedeas.core.sentences import listed, markdown_table
from fedeas.planning.policies import POLICIES, FedEAS
from fedeas.planning.policies.base import Needs, Policy
from fedeas.runs.comparison import Verdict
from reproduction.answers import mean_cell, mean_text, overall, where_shown
from reproduction.beyond import BALANCED_TITLE
from reproduction.findings import ALLOCATIONS, BALANCED, POOLS, Findings
from reproduction.methods import FEDEAS
from reproduction.robustness import at_end


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


def advice_of(experiments: Sequence[Findings]) -> Advice:
    """What these experiments recommend together."""
    return Advice(
        server=_recommended(experiments, POOLS),
        clients=_recommended(experiments, ALLOCATIONS),
        loss=_evidence(experiments, BALANCED_TITLE, BALANCED),
    )


def _recommended(experiments: Sequence[Findings], policies: Mapping[str, str]) -> Shown:
    """The policy that is better than FedEAS on most datasets, among equals that of the highest mean; else FedEAS."""
    shown = {title: _evidence(experiments, policy, [title]) for title, policy in policies.items()}
    ranks = {title: (len(each.datasets), _mean(experiments, title)) for title, each in shown.items() if each.higher}
    return shown[max(ranks, key=ranks.__getitem__)] if ranks else Shown()


def _mean(experiments: Sequence[Findings], method: str) -> float:
    """The mean difference to FedEAS over the experiments that have all runs of a method."""
    means = [overall(each)[method] for each in experiments if _verdicts(each, [method])]
    return mean(each.difference.mean for each in means)


def _evidence(experiments: Sequence[Findings], policy: str, methods: Sequence[str]) -> Shown:
    """Where one of a policy's methods is higher than FedEAS; FedEAS itself if one is lower, be it at one budget."""
    if any(where_shown(each, name, Verdict.LOWER) is not None for each, name in product(experiments, methods)):
        return Shown()
    judged = [(each.dataset, found) for each in experiments if (found := _verdicts(each, methods))]
    higher = [dataset for dataset, found in judged if Verdict.HIGHER in found]
    gained = _gained(experiments, methods[0]) if len(methods) == 1 else ""
    return Shown(policy, tuple(dict.fromkeys(higher)), len(higher), len(judged), gained) if higher else Shown()


def _gained(experiments: Sequence[Findings], method: str) -> str:
    """A method's mean over experiments, and at their smallest and largest budgets; empty without intervals."""
    ends = ((at_end(experiments, method, 0), "smallest"), (at_end(experiments, method, -1), "largest"))
    sizes = [f"{text} at the {size} budgets" for each, size in ends if (text := mean_cell(each))]
    return ", ".join([*mean_text(experiments, method), *sizes])


def _verdicts(found: Findings, methods: Sequence[str]) -> list[Verdict]:
    """The verdicts on these methods over all budgets of the experiment."""
    means = [overall(found)[name] for name in methods if name in overall(found)]
    return [each.verdict for each in means if each.verdict.is_given and each.budgets == found.budgets]


def advice_markdown(experiments: Sequence[Findings]) -> str:
    """What all experiments recommend together, and what each one does, a row each."""
    table = markdown_table(("experiment", "comparisons; seeds", *ADVICE_HEADS), map(_advice_row, experiments))
    running = [each.title for each in experiments if not each.is_finished]
    remarks = ["\n  - ".join(["Recommended:", *advice_of(experiments).clauses])]
    remarks += [f"Not finished: {'; '.join(running)}. Advice may change."] if running else []
    return "\n".join([*(f"- {line}" for line in remarks), "", table])


ADVICE_HEADS = ("if a server makes the images", "if clients make their own", "balanced softmax")


def _advice_row(found: Findings) -> list[str]:
    """An experiment's advice; a cell is empty until one of its methods has been compared at all budgets."""
    advice = advice_of([found])
    cells = (
        (POOLS, _title(advice.server.policy)),
        (ALLOCATIONS, _title(advice.clients.policy)),
        (BALANCED, "yes" if advice.loss.higher else "not shown to help"),
    )
    judged = {method for method, each in overall(found).items() if each.verdict.is_given}
    shown = [text if judged.intersection(methods) else "" for methods, text in cells]
    return [found.title, f"{len(found.compared)} of {len(found.planned)}; {found.seeds}", *shown]


def _title(policy: str) -> str:
    """The title of the method with this policy."""
    titles = {policy: title for title, policy in {**POOLS, **ALLOCATIONS}.items()}
    return titles.get(policy, FEDEAS.title)
