"""A table of where our results agree with the paper; each line is computed from finished runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from statistics import mean
from typing import NamedTuple

from fedeas import FedEAS
from fedeas.runs import Difference, Measured, paired_difference
from reproduction import measures, standings
from reproduction.methods import (
    FEDAVG,
    FEDEAS,
    FULL_BALANCE,
    METHODS,
    MISSING_ONLY,
    SCAFFOLD,
    UNIFORM,
    Method,
    combined,
)
from reproduction.profiles import HEADLINE
from reproduction.published import EXAMPLE, Setting, published, setting
from reproduction.results import Results
from reproduction.standings import ABSENT, RULES, Finding, Standing
from reproduction.studies import PROTOCOLS, Protocol, Study, plan_of, study
from reproduction.text import markdown_table

HALF = 50
"""“Most” of a gain is more than this percentage of it."""


class LedgerLine(NamedTuple):
    """A statement of the paper, and the result of our runs under each protocol."""

    says: str
    where: str
    paper: str
    found: Mapping[Protocol, Finding]

    @property
    def is_run(self) -> bool:
        """Whether any of our runs has a result for it."""
        return any(finding != ABSENT for finding in self.found.values())


def ledger(results: Results) -> list[LedgerLine]:
    """The paper's main claims, run or not, and each other line that has runs, the setting of the headline first."""
    views = {protocol: View(protocol, results) for protocol in PROTOCOLS}
    others = [each for each in published().settings if each.id != HEADLINE]
    lines = [line for where in (setting(HEADLINE), *others) for line in _lines(where, views)]
    return [*_main_claims(views), *(line for line in (*lines, *_gamma_lines(views)) if line.is_run)]


def ledger_markdown(results: Results) -> str:
    """The ledger as a table, with how often we agree, the settings without runs, and the rules below it."""
    lines, views = ledger(results), [View(protocol, results) for protocol in PROTOCOLS]
    heads = ("statement", "paper", "ours, clean protocol", "ours, the paper's protocol")
    rows = [
        [f"{line.says}; {line.where}", line.paper, *(each.markdown for each in line.found.values())] for line in lines
    ]
    said = list[str]()
    for protocol in PROTOCOLS:
        found = Counter(line.found[protocol].standing for line in lines)
        tally = ", ".join(f"{each} {found[each]}" for each in Standing if found[each])
        said.append(f"Under the {protocol} protocol: {tally}.")
    empty = [each.title for each in published().settings if not any(view.methods(each) for view in views)]
    said += [f"Not run under either protocol: {'; '.join(empty)}."] if empty else []
    rules = ["", "How lines are judged:", "", *(f"- {rule}" for rule in RULES)]
    return "\n".join([markdown_table(heads, rows), "", " ".join(said), *rules, ""])


@dataclass(frozen=True)
class View:
    """The finished runs under one protocol."""

    protocol: Protocol
    results: Results

    @cached_property
    def study(self) -> Study:
        """The paper's training under this protocol."""
        return study("full", self.protocol)

    def found(self, where: Setting, *methods: Method, measure: measures.Measure) -> dict[int, float | None]:
        """A measure of these methods' runs, by seed; None for a run without it."""
        return self.results.values([self.study.config(where, method) for method in methods], measure)

    def values(
        self, where: Setting, *methods: Method, measure: measures.Measure = measures.accuracy
    ) -> dict[int, float]:
        """The same, without seeds that have no value."""
        return standings.known(self.found(where, *methods, measure=measure))

    def methods(self, where: Setting) -> dict[str, dict[int, float]]:
        """Accuracy by seed of the methods that the paper has in this setting and that were run, by title."""
        found = {method.title: self.values(where, method) for method in METHODS.values()}
        return {title: values for title, values in found.items() if values and title in _printed(where)}

    def mean_of(self, where: Setting, *methods: Method, measure: measures.Measure = measures.gain) -> Difference | None:
        """The mean over seeds of a measure that compares these methods."""
        return Difference.of(list(self.values(where, *methods, measure=measure).values()))


Views = Mapping[Protocol, View]


def _line(says: str, where: Setting, paper: str, views: Views, find: Callable[[View], Finding]) -> LedgerLine:
    return LedgerLine(says, where.title, paper, {protocol: find(view) for protocol, view in views.items()})


def _main_claims(views: Views) -> Iterator[LedgerLine]:
    """What abstract, introduction and conclusion say about costs and budgets, in the paper's own setting."""
    where, printed, sweep = setting(EXAMPLE), published(), published().beta_sweep
    yield _recovery_line(where, views)
    saving = next(fact.value for fact in printed.facts if fact.id == "full-balance-saving")

    def saved(view: View) -> Finding:
        own, full = (plan_of(view.study.config(where, method)).total for method in (FEDEAS, FULL_BALANCE))
        return standings.judge_count(100 * (1 - own / full), saving)

    yield _line("FedEAS makes fewer images than Full-Balance by, %", where, str(saving), views, saved)

    def longer(view: View) -> Finding:
        """Runs that reused images have no time, so they do not count."""
        own, full = (view.values(where, method, measure=measures.minutes) for method in (FEDEAS, FULL_BALANCE))
        apart = paired_difference(full, own)
        if apart is None:
            return ABSENT
        times = mean(full[seed] / own[seed] for seed in full.keys() & own.keys())
        evidence = f"{times:.1f} times as long; longer by {standings.difference_text(apart, 1)} minutes"
        return standings.judge_direction(apart, evidence)

    times = f"{printed.wall_clock.ratio} times as long, on one RTX 4090"
    yield _line("Full-Balance takes longer than FedEAS", where, times, views, longer)
    levels = {f"beta = {beta}": level for beta, level in zip(sweep.beta, sweep.fedeas, strict=True)}
    budgets = {f"beta = {beta}": Method("FedEAS", policy=FedEAS(float(beta)).spec) for beta in sweep.beta}

    def rising(view: View) -> Finding:
        """Whether the budgets are in the paper's order; it needs all of them to agree."""
        found = {title: view.values(where, method) for title, method in budgets.items()}
        run = {title: values for title, values in found.items() if values}
        order = standings.judge_order(run, levels)
        if order == ABSENT or len(run) == len(levels):
            return order
        standing = Standing.OPEN if order.standing is Standing.AGREES else order.standing
        return Finding(standing, f"{len(run)} of {len(levels)} budgets run; {order.evidence}")

    paper = ", ".join(f"{name}: {level}" for name, level in levels.items())
    yield _line("accuracy rises with the budget, %", where, paper, views, rising)
    together, both = setting(printed.combination.setting), combined(FEDEAS, SCAFFOLD)  # the paper quotes peaks
    for alone, level in ((FEDEAS, printed.combination.fedeas), (SCAFFOLD, printed.combination.scaffold)):
        says = f"{both.title} above {alone.title}, points of peak accuracy"
        yield _size_line(says, together, printed.combination.both - level, views, both, alone, measures.peak_gain)


def _recovery_line(where: Setting, views: Views) -> LedgerLine:
    def recovered(view: View) -> Finding:
        shares = view.values(where, FEDEAS, FEDAVG, FULL_BALANCE, measure=measures.gain_recovered).values()
        share, above = (Difference.of([each - less for each in shares]) for less in (0, HALF))
        return ABSENT if share is None else standings.judge_direction(above, standings.difference_text(share, 1))

    own, base, full = (_printed(where)[method.title] for method in (FEDEAS, FEDAVG, FULL_BALANCE))
    says = "FedEAS reaches more than half of Full-Balance's gain over FedAvg, %"
    return _line(says, where, f"{100 * (own - base) / (full - base):.1f}", views, recovered)


def _size_line(
    says: str, where: Setting, paper: Decimal, views: Views, one: Method, other: Method, measure: measures.Measure
) -> LedgerLine:
    """A line that compares two methods by a measure."""
    return _line(
        says, where, str(paper), views,
        lambda view: standings.judge_size(view.mean_of(where, one, other, measure=measure), paper),
    )  # fmt: skip


def _lines(where: Setting, views: Views) -> Iterator[LedgerLine]:
    printed, threshold = _printed(where), published().convergence
    found = {protocol: view.methods(where) for protocol, view in views.items()}
    run = [title for title in printed if any(title in each for each in found.values())]
    levels = ", ".join(f"{title} {printed[title]}" for title in run)
    yield _line(
        "level of accuracy, %", where, levels, views, lambda view: standings.judge_levels(found[view.protocol], printed)
    )
    order = standings.chain(sorted(run, key=lambda title: printed[title], reverse=True))
    yield _line(
        "order of the methods", where, order, views, lambda view: standings.judge_order(found[view.protocol], printed)
    )
    for other in (FEDAVG, UNIFORM, MISSING_ONLY):
        says = f"FedEAS above {other.title}, points"
        yield _size_line(says, where, published_gap(where, other), views, FEDEAS, other, measures.gain)
    if where.id in threshold.setting:
        own, later = (threshold.rounds[name][threshold.setting.index(where.id)] for name in ("fedeas", "missing-only"))

        def earlier(view: View) -> Finding:
            pair = (FEDEAS, MISSING_ONLY)
            both = (view.found(where, method, measure=measures.rounds_to_threshold) for method in pair)
            return standings.judge_earlier(*both)

        says = f"FedEAS reaches {threshold.threshold} % before Missing-only"
        yield _line(says, where, f"round {own} against {later}, a factor of {later / own:.2f}", views, earlier)
    if FULL_BALANCE.title in printed and where.id != EXAMPLE:  # that one is among the main claims
        yield _recovery_line(where, views)


def _gamma_lines(views: Views) -> Iterator[LedgerLine]:
    """In the one setting in which the paper prints Gamma-hat: its scale depends on how many clients take part."""
    where, printed = setting(EXAMPLE), published().gamma_hat
    level, less = printed.median["fedavg"], printed.reduction["fedeas"]

    def median(view: View) -> Finding:
        values = view.values(where, FEDAVG, measure=measures.gamma_hat).values()
        return standings.judge_factor(Measured.of(list(values)), level)

    yield _line("Gamma-hat of FedAvg", where, f"{level:f}", views, median)
    yield _size_line("FedEAS lowers Gamma-hat by, %", where, less, views, FEDEAS, FEDAVG, measures.gamma_reduction)


def published_gap(where: Setting, other: Method) -> Decimal:
    """How many points the paper's FedEAS is above another method."""
    return _printed(where)[FEDEAS.title] - _printed(where)[other.title]


def _printed(where: Setting) -> dict[str, Decimal]:
    """The accuracies that the paper prints in a setting, by the methods' titles."""
    found = {method.title: published().printed(name, where) for name, method in METHODS.items()}
    return {title: number for title, number in found.items() if number is not None}
