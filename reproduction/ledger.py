"""Where our results agree with the paper: a table whose lines are judged by rules, and the main result in short."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from itertools import combinations
from statistics import mean
from typing import NamedTuple

from fedeas import FedEAS
from fedeas.runs import Difference, Measured, Verdict, paired_difference
from reproduction import results as measures
from reproduction.methods import FEDAVG, FEDEAS, FULL_BALANCE, METHODS, MISSING_ONLY, POLICIES, UNIFORM, Method
from reproduction.published import EXAMPLE, Setting, published, setting
from reproduction.results import Measure, Results
from reproduction.studies import HEADLINE, PROTOCOLS, Protocol, Study, plan_of, study
from reproduction.tables import NOT_RUN
from reproduction.text import fixed, listed, markdown_table, signed

LEVEL_POINTS = 3.0  # levels of accuracy agree within this many points: initial weights, generator, test set differ
LEVEL_FACTOR = 2.0  # values of Gamma-hat agree within this factor
COUNT_POINTS = 1.0  # so do percentages that follow from label counts: the clean protocol has other clients
MOST_NAMED = 3  # pairs of methods named in a line; of more, only the number is given
HALF = 50  # “Most” of a gain is more than this percentage of it

BySeed = Mapping[int, float]
SCAFFOLD = METHODS["scaffold"]


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


ABSENT = Finding(Standing.NOT_RUN)

RULES = (
    f"A level of accuracy agrees if every method is within {LEVEL_POINTS:g} points of the paper's number, and in part "
    f"if some are. Gamma-hat agrees within a factor of {LEVEL_FACTOR:g}, a number from label counts within "
    f"{COUNT_POINTS:g} point.",
    "An order agrees if every pair of methods is shown to be in the paper's order, that is if the 95 % interval of its "
    "difference excludes 0. If a pair is shown the other way round, the order differs, or agrees in part if other "
    "pairs are as in the paper. Else it is open. “Rises with the budget” is an order of budgets; it cannot agree "
    "before all of them are run.",
    "A difference agrees if its interval contains the paper's number and excludes 0. It differs if its interval does "
    "not contain the paper's number. It is open if its interval contains both, or if there is none, as with one seed.",
    "Of “before”, “takes longer” and “more than half” only the direction is judged, not the size: the line agrees "
    "if the interval shows the paper's direction, and differs if it shows the opposite. Else, or if a seed never "
    "reaches the accuracy, it is open.",
    "Brackets show the interval over seeds, not corrected for the number of lines, and the number of seeds n.",
)


def judge_levels(run: Mapping[str, BySeed], printed: Mapping[str, Decimal]) -> Finding:
    """Which methods are within `LEVEL_POINTS` of the paper's numbers."""
    apart = {name: mean(values.values()) - float(printed[name]) for name, values in run.items()}
    if not apart:
        return ABSENT
    far = [f"{name} {signed(points, 2)}" for name, points in apart.items() if abs(points) > LEVEL_POINTS]
    said = f"{len(apart) - len(far)} of {len(apart)} within {LEVEL_POINTS:g} points"
    said += f"; not within: {', '.join(far)}" if far else ""
    return Finding(_share(len(apart) - len(far), len(apart)), said)


def judge_order(run: Mapping[str, BySeed], printed: Mapping[str, Decimal]) -> Finding:
    """Which pairs of methods are in the paper's order, as far as the intervals show it."""
    pairs = [(one, other) if printed[one] > printed[other] else (other, one) for one, other in combinations(run, 2)]
    pairs = [(high, low) for high, low in pairs if printed[high] != printed[low]]
    if not pairs:
        return ABSENT
    apart = {pair: paired_difference(run[pair[0]], run[pair[1]]) for pair in pairs}
    shown = {pair: found.verdict for pair, found in apart.items() if found is not None}
    same, other = ([pair for pair in pairs if shown.get(pair) is each] for each in (Verdict.HIGHER, Verdict.LOWER))
    said = [" > ".join(sorted(run, key=lambda name: mean(run[name].values()), reverse=True))]
    said.append(f"{len(same)} of {len(pairs)} pairs are shown to be in the paper's order")
    said += [f"the other way round: {_named(other)}"] if other else []
    said += [f"undecided: {_named(rest)}"] if (rest := [pair for pair in pairs if pair not in (*same, *other)]) else []
    standing = _share(len(same), len(same) + len(other)) if other or len(same) == len(pairs) else Standing.OPEN
    return Finding(standing, "; ".join(said))


def contains(ours: Difference, paper: Decimal) -> bool | None:
    """Whether our interval contains the paper's number, which is rounded; None if there is no interval."""
    if ours.interval is None:
        return None
    (low, high), digit = ours.interval, 0.5 * 10.0 ** int(paper.as_tuple().exponent)
    return low - digit <= float(paper) <= high + digit


def judge_direction(ours: Difference | None, evidence: str) -> Finding:
    """Whether a difference that is positive in the paper is shown to be so in our runs, however large."""
    if ours is None:
        return ABSENT
    standings = {Verdict.HIGHER: Standing.AGREES, Verdict.LOWER: Standing.DIFFERS}
    return Finding(standings.get(ours.verdict, Standing.OPEN), evidence)


def judge_earlier(one: Mapping[int, float | None], other: Mapping[int, float | None]) -> Finding:
    """Whether the first method reaches the threshold before the second, by seed; None for a seed that never did."""
    shared = sorted(one.keys() & other.keys())
    first, second = ({seed: at for seed in shared if (at := each[seed]) is not None} for each in (one, other))
    if len(first) < len(shared) or len(second) < len(shared):  # a mean over the other seeds would be biased
        return Finding(Standing.OPEN, f"reached by {len(first)} of {len(shared)} seeds against {len(second)}")
    later = paired_difference(second, first)
    if later is None:
        return ABSENT
    rounds = mean(first.values()), mean(second.values())
    evidence = f"round {rounds[0]:.0f} against {rounds[1]:.0f}, a factor of {rounds[1] / rounds[0]:.2f}"
    return judge_direction(later, f"{evidence}; apart by {difference_text(later, 0)}")


def judge_count(ours: float, paper: Decimal) -> Finding:
    """Whether a percentage that follows from label counts is within `COUNT_POINTS` of the paper's."""
    return Finding(_share(abs(ours - float(paper)) <= COUNT_POINTS), f"{fixed(ours, 1)}, from label counts")


def difference_text(ours: Difference, decimals: int = 2) -> str:
    """A difference with its interval and its number of seeds: ``2.0 (1.2 to 2.8, n=4)``."""
    inside = ", ".join(filter(None, (ours.range_text(decimals), f"n={ours.seeds}")))
    return f"{fixed(ours.mean, decimals)} ({inside})"


def _share(agreeing: int, of: int = 1) -> Standing:
    return Standing.AGREES if agreeing == of else Standing.PARTLY if agreeing else Standing.DIFFERS


def _named(pairs: Sequence[tuple[str, str]]) -> str:
    few = ", ".join(f"{high} over {low}" for high, low in pairs)
    return f"{len(pairs)} pairs" if len(pairs) > MOST_NAMED else few


class LedgerLine(NamedTuple):
    """A statement of the paper, and the result of our runs under each protocol."""

    says: str
    where: str
    paper: str
    found: Mapping[Protocol, Finding]


Statement = tuple[str, Setting, str, Finding]  # what the paper says, where, its number, and our result


def ledger(results: Results) -> list[LedgerLine]:
    """The paper's main claims, run or not, and each other line that has runs, the setting of the headline first."""
    views = [View(protocol, results) for protocol in PROTOCOLS]
    wheres = [setting(HEADLINE), *(each for each in published().settings if each.id != HEADLINE)]
    run = {where: [t for t in _printed(where) if any(t in view.methods(where) for view in views)] for where in wheres}
    main, others = list[list[Statement]](), list[list[Statement]]()
    for view in views:
        main.append([*_main_claims(view)])
        others.append([line for where in wheres for line in _statements(view, where, run[where])])
        others[-1] += _about_gamma(view)
    lines = list[LedgerLine]()
    for same in (*zip(*main, strict=True), *zip(*others, strict=True)):
        found = {protocol: each[3] for protocol, each in zip(PROTOCOLS, same, strict=True)}
        if len(lines) < len(main[0]) or set(found.values()) != {ABSENT}:
            says, where, paper, _ = same[0]
            lines.append(LedgerLine(says, where.title, paper, found))
    return lines


def ledger_markdown(results: Results) -> str:
    """The ledger as a table, with how often we agree, the settings without runs, and the rules below it."""
    lines, views = ledger(results), [View(protocol, results) for protocol in PROTOCOLS]
    heads = ("statement", "paper", "ours, clean protocol", "ours, the paper's protocol")
    rows = [[f"{line.says}; {line.where}", line.paper] for line in lines]
    said = list[str]()
    for protocol in PROTOCOLS:
        found = [line.found[protocol] for line in lines]
        for row, (standing, evidence) in zip(rows, found, strict=True):
            row.append(f"**{standing}**" + (f": {evidence}" if evidence else ""))
        count = Counter(each.standing for each in found)
        tally = ", ".join(f"{each} {count[each]}" for each in Standing if count[each])
        said.append(f"Under the {protocol} protocol: {tally}.")
    empty = [each.title for each in published().settings if not any(view.methods(each) for view in views)]
    said += [f"Not run under either protocol: {'; '.join(empty)}."] if empty else []
    rules = ["", "How lines are judged:", "", *(f"- {rule}" for rule in RULES)]
    return "\n".join([markdown_table(heads, rows), "", " ".join(said), *rules, ""])


class View(NamedTuple):
    """The finished runs of the paper's training under one protocol."""

    protocol: Protocol
    results: Results

    @property
    def study(self) -> Study:
        """The paper's training under this protocol."""
        return study("full", self.protocol)

    def values(self, where: Setting, *methods: Method, measure: Measure = measures.accuracy) -> dict[int, float]:
        """A measure of these methods' runs, by seed, without seeds that have no value."""
        return self.results.known([self.study.config(where, method) for method in methods], measure)

    def methods(self, where: Setting) -> dict[str, dict[int, float]]:
        """Accuracy by seed of the methods that the paper has in this setting and that were run, by title."""
        found = {method.title: self.values(where, method) for method in METHODS.values()}
        return {title: values for title, values in found.items() if values and title in _printed(where)}

    def mean_of(self, where: Setting, *methods: Method, measure: Measure = measures.gain) -> Difference | None:
        """The mean over seeds of a measure that compares these methods."""
        return Difference.of([*self.values(where, *methods, measure=measure).values()])


def _main_claims(view: View) -> Iterator[Statement]:
    """What abstract, introduction and conclusion say about costs and budgets, in the paper's own setting."""
    where, printed, sweep = setting(EXAMPLE), published(), published().beta_sweep
    yield _recovery(view, where)
    saving = next(fact.value for fact in printed.fact if fact.id == "full-balance-saving")
    few, many = (plan_of(view.study.config(where, method)).total for method in (FEDEAS, FULL_BALANCE))
    saved = judge_count(100 * (1 - few / many), saving)
    yield "FedEAS makes fewer images than Full-Balance by, %", where, str(saving), saved
    # Runs that reused images have no time, so they do not count.
    own, full = (view.values(where, method, measure=measures.minutes) for method in (FEDEAS, FULL_BALANCE))
    apart, evidence = paired_difference(full, own), ""
    if apart is not None:
        times = mean(full[seed] / own[seed] for seed in full.keys() & own.keys())
        evidence = f"{times:.1f} times as long; longer by {difference_text(apart, 1)} minutes"
    paper = f"{printed.wall_clock.ratio} times as long, on one RTX 4090"
    yield "Full-Balance takes longer than FedEAS", where, paper, judge_direction(apart, evidence)
    levels = {f"beta = {beta}": level for beta, level in zip(sweep.beta, sweep.fedeas, strict=True)}
    budgets = {f"beta = {beta}": Method("FedEAS", policy=FedEAS(float(beta)).spec) for beta in sweep.beta}
    run = {title: values for title, method in budgets.items() if (values := view.values(where, method))}
    order = judge_order(run, levels)
    if order != ABSENT and len(run) < len(levels):  # it needs all budgets to agree
        standing = Standing.OPEN if order.standing is Standing.AGREES else order.standing
        order = Finding(standing, f"{len(run)} of {len(levels)} budgets run; {order.evidence}")
    paper = ", ".join(f"{name}: {level}" for name, level in levels.items())
    yield "accuracy rises with the budget, %", where, paper, order
    together, both = setting(printed.combination.setting), FEDEAS.combined(SCAFFOLD)  # the paper quotes peaks
    for alone, level in ((FEDEAS, printed.combination.fedeas), (SCAFFOLD, printed.combination.scaffold)):
        says = f"{both.title} above {alone.title}, points of peak accuracy"
        yield _size(view, says, together, printed.combination.both - level, both, alone, measures.peak_gain)


def _recovery(view: View, where: Setting) -> Statement:
    shares = view.values(where, FEDEAS, FEDAVG, FULL_BALANCE, measure=measures.gain_recovered).values()
    share, above = (Difference.of([each - less for each in shares]) for less in (0, HALF))
    found = ABSENT if share is None else judge_direction(above, difference_text(share, 1))
    own, base, full = (_printed(where)[method.title] for method in (FEDEAS, FEDAVG, FULL_BALANCE))
    says = "FedEAS reaches more than half of Full-Balance's gain over FedAvg, %"
    return says, where, f"{100 * (own - base) / (full - base):.1f}", found


def _size(
    view: View, says: str, where: Setting, paper: Decimal, one: Method, other: Method, measure: Measure
) -> Statement:
    """Whether our interval of a comparison contains the paper's number; open if it contains 0 as well."""
    ours = view.mean_of(where, one, other, measure=measure)
    if ours is None:
        return says, where, str(paper), ABSENT
    inside = contains(ours, paper)
    is_open = inside is None or (inside and ours.verdict is Verdict.UNDECIDED)
    standing = Standing.OPEN if is_open else Standing.AGREES if inside else Standing.DIFFERS
    return says, where, str(paper), Finding(standing, difference_text(ours))


def _statements(view: View, where: Setting, run: Sequence[str]) -> Iterator[Statement]:
    """What the tables say about a setting, in which these methods have been run."""
    printed, threshold, found = _printed(where), published().convergence, view.methods(where)
    levels = ", ".join(f"{title} {printed[title]}" for title in run)
    yield "level of accuracy, %", where, levels, judge_levels(found, printed)
    order = " > ".join(sorted(run, key=lambda title: printed[title], reverse=True))
    yield "order of the methods", where, order, judge_order(found, printed)
    for other in (FEDAVG, UNIFORM, MISSING_ONLY):
        says = f"FedEAS above {other.title}, points"
        yield _size(view, says, where, printed[FEDEAS.title] - printed[other.title], FEDEAS, other, measures.gain)
    if where.id in threshold.setting:
        own, later = (threshold.rounds[name][threshold.setting.index(where.id)] for name in ("fedeas", "missing-only"))
        runs = [[view.study.config(where, each)] for each in (FEDEAS, MISSING_ONLY)]
        reached = [view.results.values(run, measures.rounds_to_threshold) for run in runs]
        paper = f"round {own} against {later}, a factor of {later / own:.2f}"
        says = f"FedEAS reaches {threshold.threshold} % before Missing-only"
        yield says, where, paper, judge_earlier(*reached)
    if FULL_BALANCE.title in printed and where.id != EXAMPLE:  # that one is among the main claims
        yield _recovery(view, where)


def _about_gamma(view: View) -> Iterator[Statement]:
    """In the one setting in which the paper prints Gamma-hat: its scale depends on how many clients take part."""
    where, printed = setting(EXAMPLE), published().gamma_hat
    level, less = printed.median["fedavg"], printed.reduction["fedeas"]
    found, ours = ABSENT, Measured.of([*view.values(where, FEDAVG, measure=measures.gamma_hat).values()])
    if ours is not None:
        times = ours.mean / float(level)
        evidence = f"{ours.text(3)} (n={ours.seeds}), {fixed(times, 0 if times > 10 else 2)} times the paper's"
        found = Finding(_share(1 / LEVEL_FACTOR <= times <= LEVEL_FACTOR), evidence)
    yield "Gamma-hat of FedAvg", where, f"{level:f}", found
    yield _size(view, "FedEAS lowers Gamma-hat by, %", where, less, FEDEAS, FEDAVG, measures.gamma_reduction)


def _printed(where: Setting) -> dict[str, Decimal]:
    """The accuracies that the paper prints in a setting, by the methods' titles."""
    found = {method.title: published().printed(name, where) for name, method in METHODS.items()}
    return {title: number for title, number in found.items() if number is not None}


WHERE = setting(HEADLINE)
STARTS = {
    Verdict.LOWER: "FedEAS is higher than",
    Verdict.HIGHER: "FedEAS is lower than",
    Verdict.UNDECIDED: "No difference is shown between FedEAS and",
    Verdict.ONE_SEED: "One seed cannot tell FedEAS from",
    Verdict.NO_SPREAD: "Seeds that all differ by the same amount cannot tell FedEAS from",
}


def headline(view: View) -> str:
    """The comparison of policies at equal budget: our result, the paper's, and what our intervals leave out."""
    level, fedavg = (Measured.of(list(view.values(WHERE, method).values())) for method in (FEDEAS, FEDAVG))
    if level is None:
        return f"> FedEAS has not been run on {WHERE.title}."
    plan = plan_of(view.study.config(WHERE, FEDEAS))
    share = f"which are {100 * plan.summary.synthetic_share:.0f} % of the training data at {plan.allocation.policy}"
    said = [
        f"On {WHERE.title}, under the {view.protocol} protocol, FedEAS reaches {level.text(2)} % (n = {level.seeds}) "
        f"with {plan.total:,} synthetic images, {share}. This is the accuracy in {view.study.window}: mean ± standard "
        "deviation over n seeds."
    ]
    if fedavg is not None:
        own, other = (view.values(WHERE, method, measure=measures.steps).values() for method in (FEDAVG, FEDEAS))
        work = f" with {100 * mean(own) / mean(other):.0f} % of FedEAS's training steps" if own and other else ""
        said.append(f"FedAvg, without synthetic images, reaches {fedavg.text(2)} % (n = {fedavg.seeds}){work}.")
    others = {each.title: view.mean_of(WHERE, each, FEDEAS) for each in POLICIES if each != FEDEAS}
    differences = {title: found for title, found in others.items() if found is not None}
    if differences:
        numbers = ((title, signed(each.mean, 2), each.range_text(2)) for title, each in differences.items())
        shown = ", ".join(f"{title} {apart} ({ends or 'no interval'})" for title, apart, ends in numbers)
        said.append(f"Differences to FedEAS in points, with 95 % intervals paired by seed: {shown}.")
    names = {verdict: [key for key, each in differences.items() if each.verdict is verdict] for verdict in STARTS}
    said += [f"{start} {listed(names[verdict])}." for verdict, start in STARTS.items() if names[verdict]]
    named = (FEDEAS, MISSING_ONLY, UNIFORM, FEDAVG)
    levels = [f"{_printed(WHERE)[each.title]} % for {each.title}" for each in named]
    paper = [f"The paper reports {listed(levels)}, under its own protocol.", *_paper_gap(view.results)]
    left_out = [
        "All seeds of a method have the same split of the data among clients and the same synthetic images, so the "
        "intervals do not say what another split or other images would give."
    ]
    if len(differences) > 1:
        left_out.append(
            f"Each of the {len(differences)} intervals to FedEAS stands alone: they are not corrected for the number "
            "of comparisons, while the verdicts of “Beyond FedEAS” are corrected for all comparisons of an experiment."
        )
    return "\n>\n".join(f"> {' '.join(paragraph)}" for paragraph in (said, paper, left_out))


def _paper_gap(results: Results) -> Iterator[str]:
    """The paper's FedEAS minus its Uniform beside ours, under each protocol that has been run; do we reproduce it?"""
    found = {protocol: View(protocol, results).mean_of(WHERE, FEDEAS, UNIFORM) for protocol in PROTOCOLS}
    ours = {protocol: each for protocol, each in found.items() if each is not None}
    if not ours:
        return
    paper = _printed(WHERE)[FEDEAS.title] - _printed(WHERE)[UNIFORM.title]
    shown = [f"by {difference_text(each)} under the {protocol} protocol" for protocol, each in ours.items()]
    yield f"Its FedEAS is above its Uniform by {paper} points, ours {listed(shown)}."
    inside = {protocol: contains(each, paper) for protocol, each in ours.items()}
    parts = list[str]()
    for where, answer in (("outside", False), ("inside", True)):
        names = [protocol for protocol, each in inside.items() if each is answer]
        parts += [f"{where} our interval under the {listed(names)} protocol{'s' * (len(names) > 1)}"] if names else []
    if parts:
        end = "." if True in inside.values() else ": we do not reproduce it."
        yield f"The paper's number is {listed(parts)}{end}"
    else:
        yield "With one seed there is no interval, so this does not show whether we reproduce it."
