"""Recompute every number of the paper that follows from label counts, and compare it with the printed one."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from enum import StrEnum
from itertools import groupby

import numpy as np

import fedeas
from fedeas import Allocation, FedEAS, FullBalance, LabelCounts, Uniform, beta_for_total, select_beta
from reproduction.methods import ABLATION
from reproduction.published import Row, Setting, example_counts, published, recorded
from reproduction.text import markdown_table

Number = int | float
FACTS = "Facts of CIFAR-10, K=20, alpha=0.1"
QUICK_DRAWS = 100  # the paper's slowest partition takes most of a minute to draw, so it is drawn only on request


class Status(StrEnum):
    """How our number compares with the printed one."""

    EXACT = "exact"
    ROUNDS = "rounds to"
    DISAGREES = "paper disagrees"
    WRONG = "MISMATCH"


@dataclass(frozen=True)
class Claim:
    """One number of the paper, and the number that we compute from label counts."""

    group: str
    says: str
    where: str
    paper: Decimal
    ours: Number
    why: str = ""
    is_printed: bool = True  # else it was recorded with the partitions

    @property
    def matches(self) -> bool:
        """Whether our number, rounded to the printed digits, equals the printed one."""
        digits = Decimal(1).scaleb(int(self.paper.as_tuple().exponent))
        return self.ours == self.paper or Decimal(repr(self.ours)).quantize(digits, ROUND_HALF_UP) == self.paper

    @property
    def status(self) -> Status:
        """A disagreement without an explanation is a mismatch, and so is an explanation without a disagreement."""
        if self.matches == bool(self.why):
            return Status.WRONG
        if self.why:
            return Status.DISAGREES
        return Status.EXACT if self.ours == self.paper else Status.ROUNDS

    @property
    def shown(self) -> str:
        """Our number, with two digits more than the paper's if they differ."""
        if float(self.ours).is_integer():
            return f"{int(self.ours):,}"
        digits = -int(self.paper.as_tuple().exponent) + 2
        return f"{self.ours:,}" if self.ours == self.paper else f"{self.ours:,.{digits}f}"


def count_claims(slow: bool = False) -> list[Claim]:
    """All claims, in the order of the paper; with `slow`, also redraw the partition that takes 10,826 draws."""
    paper, counts, totals, sweep = published(), example_counts(), published().totals, published().beta_sweep
    usual, betas = FedEAS(float(totals.beta)), [FedEAS(float(beta)) for beta in sweep.beta]
    claims = list[Claim]()
    for policy, row in ((usual, totals.fedeas), (FullBalance(), totals.full_balance)):
        for where, number in _cells(row):
            says, total = f"{policy.spec}, {where.title}", policy.allocate(where.counts()).total
            claims.append(Claim("Samples generated", says, "Table 1", number, total))
    for group, table, policies, row in (
        ("Beta sweep", "supplement F", betas, sweep.total),
        ("Budget-factor ablation", "Table 2", ABLATION.values(), paper.ablation.total),
    ):
        pairs = zip(policies, row, strict=True)
        claims += [Claim(group, each.spec, table, number, each.allocate(counts).total) for each, number in pairs]
    numbers = _numbers_of(counts)
    for fact in paper.fact:
        why = fact.get("disagrees", "")
        claims.append(Claim(FACTS, fact.says, fact.where, fact.value, numbers[fact.id], why))
    made = [policy.allocate(counts).total for policy in betas]
    efficiencies = [("full-balance", sweep.full_balance, sweep.full_balance_eta, FullBalance().allocate(counts).total)]
    for name in ("uniform", "fedeas"):
        names = [f"{name}, beta={beta}" for beta in sweep.beta]
        efficiencies[:0] = zip(names, sweep[name], sweep[f"{name}_eta"], made, strict=True)
    for says, level, eta, total in efficiencies:  # from the paper's accuracies and our totals
        ours = fedeas.accuracy_per_thousand(float(level - sweep.fedavg), total)
        claims.append(Claim("Efficiency eta, accuracies as printed", says, "supplement F", eta, ours))
    letter, literal = iter(recorded().as_printed), FedEAS(float(totals.beta), fill="all")
    for where, number in _cells(totals.fedeas):  # the totals of Eq. (gen) as printed, which the tables do not follow
        why = "" if next(letter) == number else "the tables fill only classes below the client's mean"
        total = literal.allocate(where.counts()).total
        claims.append(Claim("Eq. (gen) to the letter", f"{literal.spec}, {where.title}", "Table 1", number, total, why))
    group = "Not printed, recorded with the partition"
    more = [Claim(group, each.says, "-", each.value, numbers[each.id]) for each in recorded().fact]
    # Partitions drawn again must equal the shipped counts, after the recorded number of draws.
    group = "Draws until the shipped partition comes out"
    for setting, draws in zip(published().settings, recorded().draws, strict=True):
        if slow or draws <= QUICK_DRAWS:
            drawn = fedeas.partition(setting.config, images=False)
            same = np.array_equal(drawn.counts.n, setting.counts().n)
            ours = drawn.partition.recipe["draws"] if same else 0
            more.append(Claim(group, setting.title, "-", Decimal(draws), ours))
    return [*claims, *(replace(claim, is_printed=False) for claim in more)]


def claims_markdown(claims: Iterable[Claim]) -> str:
    """Our numbers beside the paper's, a table for each group."""
    parts = list[str]()
    for (group, is_printed), members in groupby(claims, key=lambda claim: (claim.group, claim.is_printed)):
        rows = list[list[str]]()
        for claim in members:
            verdict = f"{claim.status}: {claim.why}" if claim.why else str(claim.status)
            rows.append([claim.says, claim.where, f"{claim.paper:,}", claim.shown, verdict])
        heads = ("what", "where", "paper" if is_printed else "recorded", "ours", "")
        parts.append(f"### {group}\n\n{markdown_table(heads, rows)}\n")
    return "\n".join(parts)


def _cells(row: Row) -> Iterator[tuple[Setting, Decimal]]:
    for setting, printed in zip(published().settings, row, strict=True):
        if printed is not None:
            yield setting, printed


def _numbers_of(counts: LabelCounts) -> dict[str, Number]:
    """The facts of one partition, by their ids in the data files."""
    policy = FedEAS(float(published().totals.beta))
    plan, demand = policy.allocate(counts), FullBalance().allocate(counts)
    shares, negative = fedeas.concentration(counts, plan), fedeas.marginal_gain(counts) < 0
    uniform = Uniform(plan.total).allocate(counts)
    each, rest = divmod(plan.total, counts.n.size)
    class_major = Allocation((each + (np.arange(counts.n.size) < rest)).reshape(counts.n.T.shape).T)
    whole, without_entropy, linear = (each.allocate(counts).total for each in ABLATION.values())
    interval, linear_beta = select_beta(counts), beta_for_total(FedEAS(gamma=1), counts, plan.total).beta
    (grid_beta,) = [float(beta) for beta in published().beta_sweep.beta if float(beta) in interval]
    removed, by_uniform, by_class_major = (
        100 * fedeas.imbalance_removed(counts, each) for each in (plan, uniform, class_major)
    )
    real, synthetic = float(np.median(counts.sizes)), float(np.median(plan.per_client))
    return {
        # Section 2.2 and Fig. 2(a): how much imbalance the plan removes, and at how few clients it is.
        "top-imbalance": 100 * float(shares.imbalance[4]),
        "top-budget": 100 * float(shares.budget[4]),
        "removed": removed,
        "negative-pairs": int(negative.sum()),
        # Abstract and section 2.2: the plan beside one that balances every client.
        "full-balance-saving": 100 * (1 - plan.total / demand.total),
        "full-balance-fraction": 100 * plan.total / demand.total,
        "demand-least": int(demand.per_client.min()),
        "demand-most": int(demand.per_client.max()),
        # Section 2.2, Fig. 2(b) and supplement A: the plan beside an even spread of the same total.
        "uniform-gap": removed - by_uniform,
        "uniform-negative": int(uniform.n[negative].sum()),
        "uniform-negative-share": 100 * int(uniform.n[negative].sum()) / plan.total,
        "uniform-each": plan.total // counts.n.size,
        "class-major-negative": int(class_major.n[negative].sum()),
        "class-major-gap": removed - by_class_major,
        # Sections 3.1 and 4.3: which beta is admissible, and how unequal the clients' budgets are.
        "beta-lo": interval.lo,
        "beta-hi": interval.hi,
        "beta-grid": grid_beta,
        "no-admissible-beta": sum(not select_beta(each.counts()) for each in published().settings),
        "budget-ratio": fedeas.budget_ratio(policy.budgets(counts)),
        "linear-ratio": fedeas.budget_ratio(FedEAS(linear_beta, gamma=1).budgets(counts)),
        # Section 4.4 and Table 2: totals without entropy, and with budgets linear in the size.
        "ablation-no-entropy-extra": without_entropy - whole,
        "ablation-linear-extra": linear - whole,
        "ablation-no-entropy-at-8": FedEAS(8, entropy=False).allocate(counts).total,
        "ablation-linear-at-8": FedEAS(8, gamma=1).allocate(counts).total,
        # Section 4.3 and supplement D: real and synthetic images of the clients.
        "synthetic-share": 100 * fedeas.synthetic_share(counts, plan),
        "median-cache": synthetic,
        "median-real": real,
        "real-fraction": 100 * real / (real + synthetic),
        "real-total": counts.total,
        "absent-pairs": int((counts.n == 0).sum()),
    }
