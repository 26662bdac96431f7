"""A table of where our results agree with the paper; each line is computed from finished runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from statistics import mean
from typing import NamedTuple

from fedeas import FedEAS
from fedeas.runs import Difference, Measured, paired_difference
from reproduction import measures, standings
from reproduction.measures import Measure
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


Statement = tuple[str, Setting, str, Finding]
"""What the paper says, in which setting, with which number, and the result of our runs under one protocol."""


def ledger(results: Results) -> list[LedgerLine]:
    """The paper's main claims, run or not, and each other line that has runs, the setting of the headline first."""
    views, others = [View(protocol, results) for protocol in PROTOCOLS], list[LedgerLine]()
    for where in (setting(HEADLINE), *(each for each in published().settings if each.id != HEADLINE)):
        run = [title for title in _printed(where) if any(title in view.methods(where) for view in views)]
        others += _beside(views, _statements, where, run)
    others += _beside(views, _about_gamma)
    return [*_beside(views, _main_claims), *(line for line in others if line.is_run)]


def _beside(views: Sequence[View], states: Callable[..., Iterator[Statement]], *of: object) -> Iterator[LedgerLine]:
    """Lines with the results of all views beside each other."""
    for same in zip(*(states(view, *of) for view in views), strict=True):
        says, where, paper, _ = same[0]
        yield LedgerLine(
            says, where.title, paper, {view.protocol: each[3] for view, each in zip(views, same, strict=True)}
        )


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

    def found(self, where: Setting, *methods: Method, measure: Measure) -> dict[int, float | None]:
        """A measure of these methods' runs, by seed; None for a run without it."""
        return self.results.values([self.study.config(where, method) for method in methods], measure)

    def values(self, where: Setting, *methods: Method, measure: Measure = measures.accuracy) -> dict[int, float]:
        """The same, without seeds that have no value."""
        return standings.known(self.found(where, *methods, measure=measure))

    def methods(self, where: Setting) -> dict[str, dict[int, float]]:
        """Accuracy by seed of the methods that the paper has in this setting and that were run, by title."""
        found = {method.title: self.values(where, method) for method in METHODS.values()}
        return {title: values for title, values in found.items() if values and title in _printed(where)}

    def mean_of(self, where: Setting, *methods: Method, measure: Measure = measures.gain) -> Difference | None:
        """The mean over seeds of a measure that compares these methods."""
        return Difference.of(list(self.values(where, *methods, measure=measure).values()))


def _main_claims(view: View) -> Iterator[Statement]:
    """What abstract, introduction and conclusion say about costs and budgets, in the paper's own setting."""
    where, printed, sweep = setting(EXAMPLE), published(), published().beta_sweep
    yield _recovery(view, where)
    saving = next(fact.value for fact in printed.facts if fact.id == "full-balance-saving")
    few, many = (plan_of(view.study.config(where, method)).total for method in (FEDEAS, FULL_BALANCE))
    saved = standings.judge_count(100 * (1 - few / many), saving)
    yield "FedEAS makes fewer images than Full-Balance by, %", where, str(saving), saved
    # Runs that reused images have no time, so they do not count.
    own, full = (view.values(where, method, measure=measures.minutes) for method in (FEDEAS, FULL_BALANCE))
    apart, evidence = paired_difference(full, own), ""
    if apart is not None:
        times = mean(full[seed] / own[seed] for seed in full.keys() & own.keys())
        evidence = f"{times:.1f} times as long; longer by {standings.difference_text(apart, 1)} minutes"
    paper = f"{printed.wall_clock.ratio} times as long, on one RTX 4090"
    yield "Full-Balance takes longer than FedEAS", where, paper, standings.judge_direction(apart, evidence)
    levels = {f"beta = {beta}": level for beta, level in zip(sweep.beta, sweep.fedeas, strict=True)}
    budgets = {f"beta = {beta}": Method("FedEAS", policy=FedEAS(float(beta)).spec) for beta in sweep.beta}
    run = {title: values for title, method in budgets.items() if (values := view.values(where, method))}
    order = standings.judge_order(run, levels)
    if order != ABSENT and len(run) < len(levels):  # it needs all budgets to agree
        standing = Standing.OPEN if order.standing is Standing.AGREES else order.standing
        order = Finding(standing, f"{len(run)} of {len(levels)} budgets run; {order.evidence}")
    paper = ", ".join(f"{name}: {level}" for name, level in levels.items())
    yield "accuracy rises with the budget, %", where, paper, order
    together, both = setting(printed.combination.setting), combined(FEDEAS, SCAFFOLD)  # the paper quotes peaks
    for alone, level in ((FEDEAS, printed.combination.fedeas), (SCAFFOLD, printed.combination.scaffold)):
        says = f"{both.title} above {alone.title}, points of peak accuracy"
        yield _size(view, says, together, printed.combination.both - level, both, alone, measures.peak_gain)


def _recovery(view: View, where: Setting) -> Statement:
    shares = view.values(where, FEDEAS, FEDAVG, FULL_BALANCE, measure=measures.gain_recovered).values()
    share, above = (Difference.of([each - less for each in shares]) for less in (0, HALF))
    found = ABSENT if share is None else standings.judge_direction(above, standings.difference_text(share, 1))
    own, base, full = (_printed(where)[method.title] for method in (FEDEAS, FEDAVG, FULL_BALANCE))
    says = "FedEAS reaches more than half of Full-Balance's gain over FedAvg, %"
    return says, where, f"{100 * (own - base) / (full - base):.1f}", found


def _size(
    view: View, says: str, where: Setting, paper: Decimal, one: Method, other: Method, measure: Measure
) -> Statement:
    """A comparison of two methods by a measure."""
    return says, where, str(paper), standings.judge_size(view.mean_of(where, one, other, measure=measure), paper)


def _statements(view: View, where: Setting, run: Sequence[str]) -> Iterator[Statement]:
    """What the tables say about a setting, in which these methods have been run."""
    printed, threshold, found = _printed(where), published().convergence, view.methods(where)
    levels = ", ".join(f"{title} {printed[title]}" for title in run)
    yield "level of accuracy, %", where, levels, standings.judge_levels(found, printed)
    order = standings.chain(sorted(run, key=lambda title: printed[title], reverse=True))
    yield "order of the methods", where, order, standings.judge_order(found, printed)
    for other in (FEDAVG, UNIFORM, MISSING_ONLY):
        says = f"FedEAS above {other.title}, points"
        yield _size(view, says, where, published_gap(where, other), FEDEAS, other, measures.gain)
    if where.id in threshold.setting:
        own, later = (threshold.rounds[name][threshold.setting.index(where.id)] for name in ("fedeas", "missing-only"))
        reached = [view.found(where, each, measure=measures.rounds_to_threshold) for each in (FEDEAS, MISSING_ONLY)]
        paper = f"round {own} against {later}, a factor of {later / own:.2f}"
        says = f"FedEAS reaches {threshold.threshold} % before Missing-only"
        yield says, where, paper, standings.judge_earlier(*reached)
    if FULL_BALANCE.title in printed and where.id != EXAMPLE:  # that one is among the main claims
        yield _recovery(view, where)


def _about_gamma(view: View) -> Iterator[Statement]:
    """In the one setting in which the paper prints Gamma-hat: its scale depends on how many clients take part."""
    where, printed = setting(EXAMPLE), published().gamma_hat
    level, less = printed.median["fedavg"], printed.reduction["fedeas"]
    ours = Measured.of(list(view.values(where, FEDAVG, measure=measures.gamma_hat).values()))
    yield "Gamma-hat of FedAvg", where, f"{level:f}", standings.judge_factor(ours, level)
    yield _size(view, "FedEAS lowers Gamma-hat by, %", where, less, FEDEAS, FEDAVG, measures.gamma_reduction)


def published_gap(where: Setting, other: Method) -> Decimal:
    """How many points the paper's FedEAS is above another method."""
    return _printed(where)[FEDEAS.title] - _printed(where)[other.title]


def _printed(where: Setting) -> dict[str, Decimal]:
    """The accuracies that the paper prints in a setting, by the methods' titles."""
    found = {method.title: published().printed(name, where) for name, method in METHODS.items()}
    return {title: number for title, number in found.items() if number is not None}
