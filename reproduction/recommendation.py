"""What a planner should recommend: whatever the experiments show to be better than FedEAS, over all their budgets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product
from statistics import mean
from typing import NamedTuple

from fedeas.runs import Verdict
from reproduction.answers import at_end, mean_text, overall, where_shown
from reproduction.beyond import BALANCED_TITLE
from reproduction.findings import ALLOCATIONS, BALANCED, POOLS, Findings
from reproduction.methods import FEDEAS
from reproduction.text import listed, markdown_table, mean_cell

NEED_COUNTS = ("pool", "greedy", "kl")  # the policies for which clients must reveal their label counts
ENDS = ((0, "smallest"), (-1, "largest"))


class Shown(NamedTuple):
    """A policy to recommend, and the evidence: it is shown to be higher than FedEAS somewhere, and lower nowhere.

    `gained` is its mean over experiments, and at their smallest and largest budgets, with intervals, in words.
    """

    policy: str = "fedeas"  # FedEAS itself needs no evidence
    datasets: tuple[str, ...] = ()  # those of the experiments in which it is higher
    higher: int = 0  # number of these experiments
    judged: int = 0  # number of experiments that have all runs of the policy
    gained: str = ""

    @property
    def text(self) -> str:
        """The policy, and where it was shown to be better.

        >>> print(Shown("kl", ("digits",), 1, 3).text)
        kl (shown to be higher than FedEAS in 1 of 3 experiments, on digits, and lower in none)
        """
        where = f"in {self.higher} of {self.judged} experiments, on {listed(self.datasets)}"
        told = [f"shown to be higher than FedEAS {where}, and lower in none", *filter(None, [self.gained])]
        return f"{self.policy} ({'; '.join(told)})" if self.higher else self.policy


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
        """
        names = [re.split(r"[ (]", each.policy)[0] for each in (self.server, self.clients)]
        told = [f"if a server makes the images, {self.server.text}", f"if clients make their own, {self.clients.text}"]
        told += [f"with fedeas, {self.loss.text}"] if self.loss.higher else []
        if names[0] == "pool":
            told.append("clients of a pool have more images than those of fedeas, and so train for more steps")
        if telling := [name for name in names if name in NEED_COUNTS]:
            needs = "the server needs the label counts of all clients"
            told.append(f"for {listed(telling)} {needs}, for fedeas it does not")
        return told


def advice_of(experiments: Sequence[Findings]) -> Advice:
    """What these experiments recommend together."""
    server, clients = (_recommended(experiments, each) for each in (POOLS, ALLOCATIONS))
    return Advice(server, clients, loss=_evidence(experiments, BALANCED_TITLE, BALANCED))


def _recommended(experiments: Sequence[Findings], policies: Mapping[str, str]) -> Shown:
    """The policy that is better than FedEAS on most datasets, among equals that of the highest mean; else FedEAS."""
    ranks = dict[tuple[int, float], Shown]()
    for title, policy in policies.items():
        shown = _evidence(experiments, policy, [title])
        if shown.higher:
            means = [overall(each)[title].difference.mean for each in experiments if _verdicts(each, [title])]
            ranks.setdefault((len(shown.datasets), mean(means)), shown)
    return ranks[max(ranks)] if ranks else Shown()


def _evidence(experiments: Sequence[Findings], policy: str, methods: Sequence[str]) -> Shown:
    """Where one of a policy's methods is higher than FedEAS; FedEAS itself if one is lower, be it at one budget."""
    if any(where_shown(each, name, Verdict.LOWER) is not None for each, name in product(experiments, methods)):
        return Shown()
    judged = [(each.dataset, found) for each in experiments if (found := _verdicts(each, methods))]
    higher = [dataset for dataset, found in judged if Verdict.HIGHER in found]
    gained = ""
    if len(methods) == 1:
        ends = [(size, mean_cell(at_end(experiments, methods[0], end))) for end, size in ENDS]
        sizes = [f"{text} at the {size} budgets" for size, text in ends if text]
        gained = ", ".join([*mean_text(experiments, methods[0]), *sizes])
    return Shown(policy, tuple(dict.fromkeys(higher)), len(higher), len(judged), gained) if higher else Shown()


def _verdicts(found: Findings, methods: Sequence[str]) -> list[Verdict]:
    """The verdicts on these methods over all budgets of the experiment."""
    means = [overall(found)[name] for name in methods if name in overall(found)]
    return [each.verdict for each in means if each.verdict.is_given and each.budgets == found.budgets]


def advice_markdown(experiments: Sequence[Findings]) -> str:
    """What all experiments recommend together, and what each does; a cell is empty until a method has all its runs."""
    heads = ("experiment", "comparisons; seeds", "if a server makes the images", "if clients make their own")
    titles = {policy: title for title, policy in {**POOLS, **ALLOCATIONS}.items()}
    rows = list[list[str]]()
    for found in experiments:
        advice = advice_of([found])
        server, clients = (titles.get(each.policy, FEDEAS.title) for each in (advice.server, advice.clients))
        loss = "yes" if advice.loss.higher else "not shown to help"
        judged = {method for method, each in overall(found).items() if each.verdict.is_given}
        cells = ((POOLS, server), (ALLOCATIONS, clients), (BALANCED, loss))
        shown = [text if judged.intersection(methods) else "" for methods, text in cells]
        rows.append([found.title, f"{len(found.compared)} of {len(found.planned)}; {found.seeds}", *shown])
    table = markdown_table([*heads, BALANCED_TITLE], rows)
    running = [each.title for each in experiments if not each.is_finished]
    remarks = ["\n  - ".join(["Recommended:", *advice_of(experiments).clauses])]
    remarks += [f"Not finished: {'; '.join(running)}. Advice may change."] if running else []
    return "\n".join([*(f"- {line}" for line in remarks), "", table])
