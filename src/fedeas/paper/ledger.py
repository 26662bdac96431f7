"""A table of where our results agree with the paper; each line is computed from finished runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from itertools import combinations
from statistics import mean
from typing import NamedTuple

from fedeas.core.sentences import markdown_table
from fedeas.paper.measures import Measure, accuracy, gamma_hat, gamma_reduction, rounds_to_threshold
from fedeas.paper.published import EXAMPLE, Setting, published, setting
from fedeas.paper.results import Results
from fedeas.paper.studies import (
    FEDAVG,
    FEDEAS,
    HEADLINE,
    METHODS,
    MISSING_ONLY,
    PROTOCOLS,
    UNIFORM,
    Method,
    Protocol,
    Study,
    study,
)
from fedeas.paper.tables import NOT_RUN
from fedeas.runs.comparison import Difference, Measured, Verdict, fixed, paired_difference, signed

LEVEL_POINTS = 3.0
"""Levels of accuracy agree within this many points: our initial weights, generator and test set differ."""

LEVEL_FACTOR = 2.0
"""Values of Gamma-hat agree within this factor."""

MOST_NAMED = 3  # pairs of methods named in a line; of more, only the number is given


class Standing(StrEnum):
    """How our results compare with a statement of the paper."""

    AGREES = "agrees"
    PARTLY = "agrees in part"
    DIFFERS = "differs"
    OPEN = "open"
    NOT_RUN = NOT_RUN


class Finding(NamedTuple):
    """The result of our runs for a line, with its numbers."""

    standing: Standing
    evidence: str = ""

    @property
    def markdown(self) -> str:
        """Standing and evidence as one text."""
        return f"**{self.standing}**" + (f": {self.evidence}" if self.evidence else "")


ABSENT = Finding(Standing.NOT_RUN)


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
    """All lines for which there are runs, the setting of the headline first."""
    views = {protocol: View(protocol, results) for protocol in PROTOCOLS}
    others = [each for each in published().settings if each.id != HEADLINE]
    lines = [line for where in (setting(HEADLINE), *others) for line in _lines(where, views)]
    return [line for line in (*lines, *_gamma_lines(views)) if line.is_run]


def settings_without_runs(results: Results) -> list[Setting]:
    """The columns of the paper's main table without any run, under either protocol."""
    views = [View(protocol, results) for protocol in PROTOCOLS]
    return [each for each in published().settings if not any(view.methods(each) for view in views)]


@dataclass(frozen=True)
class View:
    """The finished runs under one protocol."""

    protocol: Protocol
    results: Results

    @cached_property
    def _study(self) -> Study:
        return study("full", self.protocol)

    def found(self, where: Setting, *methods: Method, measure: Measure) -> dict[int, float | None]:
        """A measure of these methods' runs, by seed; None for a run without it."""
        return self.results.values([self._study.config(where, method) for method in methods], measure)

    def values(self, where: Setting, *methods: Method, measure: Measure = accuracy) -> dict[int, float]:
        """The same, without seeds that have no value."""
        return _known(self.found(where, *methods, measure=measure))

    def methods(self, where: Setting) -> dict[str, dict[int, float]]:
        """Accuracy by seed of the methods that the paper has in this setting and that were run."""
        found = {name: self.values(where, METHODS[name]) for name in _printed(where)}
        return {name: values for name, values in found.items() if values}

    def minus(self, where: Setting, one: Method, other: Method) -> Difference | None:
        """The paired difference of two methods' accuracy."""
        return paired_difference(self.values(where, one), self.values(where, other))


def _known(values: Mapping[int, float | None]) -> dict[int, float]:
    return {seed: value for seed, value in values.items() if value is not None}


Views = Mapping[Protocol, View]


def _line(says: str, where: Setting, paper: str, views: Views, find: Callable[[View], Finding]) -> LedgerLine:
    return LedgerLine(says, where.title, paper, {protocol: find(view) for protocol, view in views.items()})


def _lines(where: Setting, views: Views) -> Iterator[LedgerLine]:
    printed = _printed(where)
    methods = {protocol: view.methods(where) for protocol, view in views.items()}
    run = [name for name in printed if any(name in found for found in methods.values())]
    levels = ", ".join(f"{METHODS[name].title} {printed[name]}" for name in run)
    yield _line("level of accuracy, %", where, levels, views, lambda view: _levels(methods[view.protocol], printed))
    order = _chain(sorted(run, key=lambda name: printed[name], reverse=True))
    yield _line("order of the methods", where, order, views, lambda view: _order(methods[view.protocol], printed))
    for name, other in (("fedavg", FEDAVG), ("uniform", UNIFORM), ("missing-only", MISSING_ONLY)):
        yield _gap_line(where, other, printed["fedeas"] - printed[name], views)
    if where.id in published().convergence.setting:
        yield _rounds_line(where, views)


def _gap_line(where: Setting, other: Method, paper: Decimal, views: Views) -> LedgerLine:
    says = f"FedEAS above {other.title}, points"
    return _line(says, where, str(paper), views, lambda view: _size(view.minus(where, FEDEAS, other), paper))


def _rounds_line(where: Setting, views: Views) -> LedgerLine:
    place = published().convergence.setting.index(where.id)
    own, other = (published().convergence.rounds[name][place] for name in ("fedeas", "missing-only"))
    paper = f"round {own} against {other}, a factor of {other / own:.2f}"
    says = f"FedEAS reaches {published().convergence.threshold} % before Missing-only"
    return _line(says, where, paper, views, lambda view: _earlier(view, where))


def _gamma_lines(views: Views) -> Iterator[LedgerLine]:
    """The paper prints Gamma-hat in one setting; if that was not run, ours is from the setting of the headline."""
    printed, less = published().gamma_hat.median["fedavg"], published().gamma_hat.reduction["fedeas"]

    def level(view: View) -> Finding:
        where = _where_gamma_was_run(view)
        return _factor(Measured.of(list(view.values(where, FEDAVG, measure=gamma_hat).values())), float(printed), where)

    def reduction(view: View) -> Finding:
        where = _where_gamma_was_run(view)
        found = Difference.of(list(view.values(where, FEDEAS, FEDAVG, measure=gamma_reduction).values()))
        return _elsewhere(_size(found, less), where)

    yield _line("Gamma-hat of FedAvg", setting(EXAMPLE), f"{printed:f}", views, level)
    yield _line("FedEAS lowers Gamma-hat by, %", setting(EXAMPLE), str(less), views, reduction)


def _printed(where: Setting) -> dict[str, Decimal]:
    """The accuracies that the paper prints in a setting."""
    found = {name: published().printed(name, where) for name in METHODS}
    return {name: number for name, number in found.items() if number is not None}


def _levels(run: Mapping[str, Mapping[int, float]], printed: Mapping[str, Decimal]) -> Finding:
    """Which methods are within `LEVEL_POINTS` of the paper's numbers."""
    apart = {name: mean(values.values()) - float(printed[name]) for name, values in run.items()}
    if not apart:
        return ABSENT
    far = {name: points for name, points in apart.items() if abs(points) > LEVEL_POINTS}
    said = f"{len(apart) - len(far)} of {len(apart)} within {LEVEL_POINTS:g} points"
    named = ", ".join(f"{METHODS[name].title} {signed(points, 2)}" for name, points in far.items())
    said += f"; not within: {named}" if far else ""
    return Finding(_share(len(apart) - len(far), len(apart)), said)


def _share(agreeing: int, of: int) -> Standing:
    return Standing.AGREES if agreeing == of else Standing.PARTLY if agreeing else Standing.DIFFERS


def _order(run: Mapping[str, Mapping[int, float]], printed: Mapping[str, Decimal]) -> Finding:
    """Which pairs of methods are in the paper's order, as far as the intervals show it."""
    pairs = [(one, other) if printed[one] > printed[other] else (other, one) for one, other in combinations(run, 2)]
    pairs = [(high, low) for high, low in pairs if printed[high] != printed[low]]
    if not pairs:
        return ABSENT
    apart = {pair: paired_difference(run[pair[0]], run[pair[1]]) for pair in pairs}
    shown = {pair: found.verdict for pair, found in apart.items() if found is not None}
    same, other = ([pair for pair in pairs if shown.get(pair) is each] for each in (Verdict.HIGHER, Verdict.LOWER))
    said = [_chain(sorted(run, key=lambda name: mean(run[name].values()), reverse=True))]
    said.append(f"{len(same)} of {len(pairs)} pairs are shown to be in the paper's order")
    said += [f"the other way round: {_named(other)}"] if other else []
    said += [f"undecided: {_named(rest)}"] if (rest := [pair for pair in pairs if pair not in (*same, *other)]) else []
    standing = _share(len(same), len(same) + len(other)) if other or len(same) == len(pairs) else Standing.OPEN
    return Finding(standing, "; ".join(said))


def _named(pairs: Sequence[tuple[str, str]]) -> str:
    if len(pairs) > MOST_NAMED:
        return f"{len(pairs)} pairs"
    return ", ".join(f"{METHODS[high].title} over {METHODS[low].title}" for high, low in pairs)


def _size(ours: Difference | None, paper: Decimal) -> Finding:
    """Whether our interval contains the paper's rounded number; open if it contains 0 as well."""
    if ours is None:
        return ABSENT
    evidence = _difference(ours)
    if ours.interval is None:
        return Finding(Standing.OPEN, evidence)
    (low, high), digit = ours.interval, 0.5 * 10.0 ** int(paper.as_tuple().exponent)
    if not low - digit <= float(paper) <= high + digit:
        return Finding(Standing.DIFFERS, evidence)
    return Finding(Standing.OPEN if ours.verdict is Verdict.UNDECIDED else Standing.AGREES, evidence)


def _earlier(view: View, where: Setting) -> Finding:
    """Whether FedEAS reaches the threshold before Missing-only, paired by seed."""
    own, other = (view.found(where, method, measure=rounds_to_threshold) for method in (FEDEAS, MISSING_ONLY))
    shared = sorted(own.keys() & other.keys())
    first, second = (_known({seed: each[seed] for seed in shared}) for each in (own, other))
    if len(first) < len(shared) or len(second) < len(shared):  # a mean over the other seeds would be biased
        evidence = f"reached by {len(first)} of {len(shared)} seeds against {len(second)}"
        return Finding(Standing.OPEN, evidence)
    later = paired_difference(second, first)
    if later is None:
        return ABSENT
    rounds = mean(first.values()), mean(second.values())
    evidence = f"round {rounds[0]:.0f} against {rounds[1]:.0f}, a factor of {rounds[1] / rounds[0]:.2f}; "
    standings = {Verdict.HIGHER: Standing.AGREES, Verdict.LOWER: Standing.DIFFERS}
    return Finding(standings.get(later.verdict, Standing.OPEN), f"{evidence}apart by {_difference(later, 0)}")


def _where_gamma_was_run(view: View) -> Setting:
    example = setting(EXAMPLE)
    return example if view.values(example, FEDAVG, measure=gamma_hat) else setting(HEADLINE)


def _factor(ours: Measured | None, paper: float, where: Setting) -> Finding:
    if ours is None:
        return ABSENT
    times = ours.mean / paper
    near = 1 / LEVEL_FACTOR <= times <= LEVEL_FACTOR
    evidence = f"{ours.text(3)} (n={ours.seeds}), {fixed(times, 0 if times > 10 else 2)} times the paper's"
    return _elsewhere(Finding(Standing.AGREES if near else Standing.DIFFERS, evidence), where)


def _elsewhere(finding: Finding, where: Setting) -> Finding:
    """Name the setting of our runs if it is not the paper's."""
    here = "" if where.id == EXAMPLE or finding == ABSENT else f", at K={where.clients}"
    return finding._replace(evidence=f"{finding.evidence}{here}")


def _difference(ours: Difference, decimals: int = 2) -> str:
    inside = ", ".join(filter(None, (ours.range_text(decimals), f"n={ours.seeds}")))
    return f"{fixed(ours.mean, decimals)} ({inside})"


def _chain(names: Sequence[str]) -> str:
    return " > ".join(METHODS[name].title for name in names)


def ledger_markdown(lines: Sequence[LedgerLine], remarks: str) -> str:
    """The ledger as a table, with remarks below it."""
    heads = ("statement", "paper", "ours, clean protocol", "ours, the paper's protocol")
    rows = [
        [f"{line.says}; {line.where}", line.paper, *(each.markdown for each in line.found.values())] for line in lines
    ]
    return "\n".join([markdown_table(heads, rows), "", remarks, ""])


def ledger_remarks(lines: Sequence[LedgerLine], results: Results) -> str:
    """Remarks below the ledger: how often we agree, the criteria, and the settings without runs."""
    said = [_tally(lines, protocol) for protocol in PROTOCOLS if lines]
    said.append(
        f"A level agrees if it is within {LEVEL_POINTS:g} points of the paper's, Gamma-hat if it is within a factor of "
        f"{LEVEL_FACTOR:g}. An order or a difference counts only if its 95 % interval over seeds excludes 0, else it "
        "is open. Brackets show the interval and the number of seeds n."
    )
    empty = [where.title for where in settings_without_runs(results)]
    said += [f"Not run under either protocol: {'; '.join(empty)}."] if empty else []
    return " ".join(said)


def _tally(lines: Sequence[LedgerLine], protocol: Protocol) -> str:
    """The number of lines with each standing under a protocol."""
    found = Counter(line.found[protocol].standing for line in lines)
    return f"Under the {protocol} protocol: {', '.join(f'{each} {found[each]}' for each in Standing if found[each])}."
