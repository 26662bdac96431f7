"""The page "What reproduces": a verdict on each claim of the paper; and the main result in short."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from enum import StrEnum
from functools import cache
from itertools import pairwise
from statistics import mean
from typing import NamedTuple

from fedeas import FedEAS
from fedeas.config import RunConfig
from fedeas.runs import Difference, Measured, Verdict
from reproduction import results as measures
from reproduction.claims import FACTS, count_claims
from reproduction.methods import (
    ABLATION,
    FEDAVG,
    FEDEAS,
    FULL_BALANCE,
    GENERATORS,
    METHODS,
    MISSING_ONLY,
    POLICIES,
    SCAFFOLD,
    UNIFORM,
    Method,
    with_total,
)
from reproduction.published import EXAMPLE, Setting, published, setting
from reproduction.results import Measure, Results
from reproduction.studies import ANOTHER_START, HEADLINE, IMAGENET, PROTOCOLS, Study, plan_of, study
from reproduction.tables import NOT_RUN, half_digit
from reproduction.text import fixed, listed, markdown_table, signed

HALF = 50  # “Most” of a gain is more than this percentage of it
BASELINES = ("fedavg", "fedprox", "scaffold", "moon", "fedgen", "fedmix")


class Standing(StrEnum):
    """A verdict on a claim of the paper."""

    HOLDS = "holds"
    WEAKLY = "holds more weakly"
    FAILS = "does not hold"
    OPEN = "not shown"
    NOT_RUN = NOT_RUN


class Finding(NamedTuple):
    """A verdict on a claim, and the numbers behind it."""

    standing: Standing
    evidence: str = ""

    @property
    def text(self) -> str:
        """The verdict in bold, then the numbers."""
        return f"**{self.standing}**" + (f": {self.evidence}" if self.evidence else "")


class Line(NamedTuple):
    """A number behind a claim: the paper's, and the runs and the measure that give ours."""

    what: str
    paper: Decimal
    where: Setting
    methods: tuple[Method, ...]
    measure: Measure = measures.gain
    zero: float = 0  # the number that would show no effect


class View(NamedTuple):
    """The finished runs of the paper's training under one protocol and from one start."""

    study: Study
    results: Results

    @property
    def title(self) -> str:
        """The protocol and the start."""
        return f"{self.study.protocol} protocol, {self.study.origin}"

    def values(self, where: Setting, *methods: Method, measure: Measure = measures.accuracy) -> list[float]:
        """A measure of these methods' runs, for each seed that has a value."""
        return [*self.results.known([self.study.config(where, method) for method in methods], measure).values()]

    def judge(self, line: Line) -> Finding:
        """The verdict of these runs on a number of the paper."""
        values = self.results.values(self.configs(line), line.measure)
        known = [value for value in values.values() if value is not None]
        if not values:
            return Finding(Standing.NOT_RUN)
        if len(known) < len(values):  # a mean over the other seeds would be biased
            return Finding(Standing.OPEN, f"{len(known)} of {len(values)} seeds have such a number")
        ours = Difference.of(known)
        return judge(ours, line.paper, line.zero) if ours else Finding(Standing.OPEN)

    def configs(self, line: Line) -> list[RunConfig]:
        """The runs behind a number, with seed 0."""
        return [self.study.config(line.where, method) for method in line.methods]

    def made_by(self, lines: list[Line]) -> str:
        """The runs behind these numbers: how many, their minutes, machines and commits."""
        configs = {config for line in lines for config in self.configs(line)}
        runs = {run.path: run for config in configs for run in self.results.seeds(config).values()}.values()
        spent = sum(run.summary()["seconds"]["total"] for run in runs) / 60
        made = {name: {str(run.environment().get(name)) for run in runs} for name in ("commit", "machine")}
        commits = listed(sorted("not recorded" if each == "None" else each[:8] for each in made["commit"]))
        machines = listed(sorted(made["machine"]))
        return f"{self.title}: {len(runs)} runs, {spent:,.0f} minutes; commit {commits}; machine {machines}."


def judge(ours: Difference, paper: Decimal, zero: float = 0) -> Finding:
    """Whether the interval of our number shows the paper's effect, and in its size."""
    decimals = max(1, -int(paper.as_tuple().exponent))
    inside = ", ".join(filter(None, (ours.range_text(decimals), f"n={ours.seeds}")))
    evidence = f"{fixed(ours.mean, decimals)} ({inside})"
    if ours.interval is None:
        return Finding(Standing.OPEN, evidence)
    sign = 1 if paper > zero else -1
    low, high = sorted(sign * (end - zero) for end in ours.interval)
    reaches = high >= sign * (float(paper) - zero) - half_digit(paper)
    if low > 0:
        return Finding(Standing.HOLDS if reaches else Standing.WEAKLY, evidence)
    return Finding(Standing.OPEN if reaches else Standing.FAILS, evidence)


RULES = f"""Each number is a difference or a ratio, paired by seed, with its 95 % interval over the n seeds.
Intervals are not corrected for the number of lines. All seeds of a setting share one partition, so they do not say what
another partition would give. Another start: weights that were trained on the other CIFAR dataset. Below each claim, the
verdicts of the first column are counted.

- **{Standing.HOLDS}**: the interval shows the effect, and reaches the paper's number or goes beyond it.
- **{Standing.WEAKLY}**: the interval shows the effect, but does not reach the paper's number.
- **{Standing.FAILS}**: the interval does not show the effect, and does not reach the paper's number.
- **{Standing.OPEN}**: the interval reaches from no effect to the paper's number, or there is none, as with one seed.

No effect is a difference of 0, a ratio of 1, and {HALF} % of Full-Balance's gain."""


@cache
def claims() -> dict[str, list[Line]]:
    """The paper's claims about runs, each with the numbers that it rests on."""
    paper, here, found = published(), setting(EXAMPLE), dict[str, list[Line]]()
    sweep, ablation, together, rounds = paper.beta_sweep, paper.ablation, paper.combination, paper.convergence.rounds
    for sentence, (one, rivals) in _rivals().items():
        found[sentence] = [
            Line(f"{where.title}: {other}", levels[one.title] - levels[other], where, (one, METHODS[other.lower()]))
            for where, other in rivals.items()
            for levels in [_printed(where)]
        ]
    specs = {f"beta = {beta}": FedEAS(float(beta)).spec for beta in sweep.beta}
    own = [Method(f"FedEAS, {name}", policy=spec) for name, spec in specs.items()]
    even = [Method(f"Uniform, {name}", policy=with_total("uniform", spec)) for name, spec in specs.items()]
    budgets = [*zip(own, sweep.fedeas, even, sweep.uniform, strict=True)]
    found["FedEAS outperforms Uniform at each budget (section 4.3), points"] = [
        Line(one.title, level - other_level, here, (one, other)) for one, level, other, other_level in budgets
    ]
    found["More images give more accuracy (section 4.3), points"] = [
        Line(f"{more.title}, above {less.title}", high - low, here, (more, less))
        for (less, low, *_), (more, high, *_) in pairwise(budgets)
    ]
    found["FedEAS recovers most of Full-Balance's gain over FedAvg (abstract), %"] = [
        Line(where.title, round(100 * share, 1), where, (FEDEAS, FEDAVG, FULL_BALANCE), measures.gain_recovered, HALF)
        for where, levels in ((where, _printed(where)) for where in paper.settings)
        if (full := levels.get("Full-Balance"))
        for share in [(levels["FedEAS"] - levels["FedAvg"]) / (full - levels["FedAvg"])]
    ]
    found["Full-Balance takes longer than FedEAS (introduction), ratio of minutes"] = [
        Line(here.title, paper.wall_clock.ratio, here, (FULL_BALANCE, FEDEAS), measures.time_ratio, 1)
    ]
    places = map(setting, paper.convergence.setting)
    found["FedEAS reaches 70 % sooner than Missing-only (introduction), ratio of rounds"] = [
        Line(where.title, round(late / soon, 2), where, (MISSING_ONLY, FEDEAS), measures.rounds_ratio, 1)
        for where, late, soon in zip(places, rounds["missing-only"], rounds["fedeas"], strict=True)
    ]
    whole, *others = (Method(title, policy=policy.spec) for title, policy in ABLATION.items())
    found["Both factors of the budget help (section 4.4), points"] = [
        Line(f"{here.title}: {other.title}", ablation.accuracy[0] - level, here, (whole, other))
        for other, level in zip(others, ablation.accuracy[1:], strict=True)
    ]
    found["FedEAS outperforms Uniform with either generator (section 4.2), points of peak accuracy"] = [
        Line(f"{here.title}: {name}", paper.generator_change[name], here, pair, measures.peak_gain)
        for name, source in GENERATORS.items()
        for pair in [(replace(FEDEAS, generator=source), replace(UNIFORM, generator=source))]
    ]
    both, place = FEDEAS.combined(SCAFFOLD), setting(together.setting)
    found["FedEAS with SCAFFOLD exceeds either alone (section 6), points of peak accuracy"] = [
        Line(f"{place.title}: {one.title}", together.both - together[one.name], place, (both, one), measures.peak_gain)
        for one in (FEDEAS, SCAFFOLD)
    ]
    found["Clients' updates differ less than FedAvg's (supplement A), Gamma-hat lower by %"] = [
        Line(f"{here.title}: {METHODS[name].title}", less, here, (METHODS[name], FEDAVG), measures.gamma_reduction)
        for name, less in paper.gamma_hat.reduction.items()
    ]
    return found


def _rivals() -> dict[str, tuple[Method, dict[Setting, str]]]:
    """The claims about accuracy at the default budget: a method, and which one it is compared with in each setting."""
    best, settings = dict[Setting, str](), published().settings
    for where in settings:
        levels = {title: level for title, level in _printed(where).items() if title.lower() in BASELINES}
        best[where] = max(levels, key=levels.__getitem__)
    uniform, missing_only, fedavg = (dict.fromkeys(settings, each.title) for each in (UNIFORM, MISSING_ONLY, FEDAVG))
    return {
        "FedEAS outperforms Uniform at the same number of images (abstract), points": (FEDEAS, uniform),
        "FedEAS outperforms Missing-only at the same number of images (section 4.2), points": (FEDEAS, missing_only),
        "FedEAS outperforms FedAvg (section 4.2), points": (FEDEAS, fedavg),
        "FedEAS outperforms the best method without images, but for mild skew (section 4.2), points": (FEDEAS, best),
        "So does Uniform, but for mild skew (section 4.2), points": (UNIFORM, best),
    }


def reproduces_markdown(results: Results) -> str:
    """The page: the verdicts on every claim, by protocol and start, and what follows from label counts."""
    studies = [study("full", protocol, start) for start in (IMAGENET, ANOTHER_START) for protocol in PROTOCOLS]
    lines = [line for group in claims().values() for line in group]
    views = [(view, [view.judge(line) for line in lines]) for view in (View(each, results) for each in studies)]
    shown = views[:1] + [each for each in views[1:] if any(one.standing is not Standing.NOT_RUN for one in each[1])]
    made = [f"- {view.made_by(lines)} {_tally(found)}" for view, found in shown]
    parts, at = ["# What reproduces", RULES, "\n".join(made)], 0
    for sentence, group in claims().items():
        found = [every[at : at + len(group)] for _, every in shown]
        at += len(group)
        cells = ([each.text for each in row] for row in zip(*found, strict=True))
        rows = [[line.what, str(line.paper).replace("-", "−"), *row] for line, row in zip(group, cells, strict=True)]
        table = markdown_table(["", "paper", *(view.title for view, _ in shown)], rows)
        parts.append(f"### {sentence}\n\n{_tally(found[0])}\n\n{table}")
    facts = [claim for claim in count_claims() if claim.group == FACTS]
    counted = [Finding(Standing.HOLDS if each.matches else Standing.FAILS, each.shown) for each in facts]
    rows = [
        [each.says, each.where, str(each.paper), own.text, each.why] for each, own in zip(facts, counted, strict=True)
    ]
    heads = ("", "where", "paper", "ours, on the paper's partition", "")
    about = f"### What follows from label counts, the three observations among it; {setting(EXAMPLE).title}"
    return "\n\n".join([*parts, about, _tally(counted), markdown_table(heads, rows)])


def _tally(found: Sequence[Finding]) -> str:
    """How many numbers have each verdict."""
    count = Counter(each.standing for each in found)
    return f"Of {len(found)}: {', '.join(f'{each} {count[each]}' for each in Standing if count[each])}."


def _printed(where: Setting) -> dict[str, Decimal]:
    """The accuracies that the paper prints in a setting, by the methods' titles."""
    found = {method.title: published().printed(name, where) for name, method in METHODS.items()}
    return {title: number for title, number in found.items() if number is not None}


SHOWN = {
    Verdict.LOWER: "FedEAS is higher than",
    Verdict.HIGHER: "FedEAS is lower than",
    Verdict.UNDECIDED: "No difference is shown between FedEAS and",
    Verdict.ONE_SEED: "One seed cannot tell FedEAS from",
    Verdict.NO_SPREAD: "Seeds that all differ by the same amount cannot tell FedEAS from",
}


def headline(results: Results) -> str:
    """The comparison of policies at equal budget: our result, the paper's, and what our intervals leave out."""
    view, where = View(study("full", "clean"), results), setting(HEADLINE)
    level, fedavg = (Measured.of(view.values(where, method)) for method in (FEDEAS, FEDAVG))
    if level is None:
        return f"> FedEAS has not been run on {where.title}."
    plan = plan_of(view.study.config(where, FEDEAS))
    share = f"which are {100 * plan.summary.synthetic_share:.0f} % of the training data at {plan.allocation.policy}"
    said = [
        f"On {where.title} ({view.title}), FedEAS reaches {level.text(2)} % (n = {level.seeds}) with {plan.total:,} "
        f"synthetic images, {share}. This is the accuracy in {view.study.window}: mean ± standard deviation over n "
        "seeds."
    ]
    if fedavg is not None:
        own, other = (view.values(where, method, measure=measures.steps) for method in (FEDAVG, FEDEAS))
        work = f" with {100 * mean(own) / mean(other):.0f} % of FedEAS's training steps" if own and other else ""
        said.append(f"FedAvg, without synthetic images, reaches {fedavg.text(2)} % (n = {fedavg.seeds}){work}.")
    others = {
        each.title: view.values(where, each, FEDEAS, measure=measures.gain) for each in POLICIES if each != FEDEAS
    }
    differences = {title: found for title, values in others.items() if (found := Difference.of(values))}
    if differences:
        numbers = ((title, signed(each.mean, 2), each.range_text(2)) for title, each in differences.items())
        shown = ", ".join(f"{title} {apart} ({ends or 'no interval'})" for title, apart, ends in numbers)
        said.append(f"Differences to FedEAS in points, with 95 % intervals paired by seed: {shown}.")
    names = {verdict: [key for key, each in differences.items() if each.verdict is verdict] for verdict in SHOWN}
    said += [f"{start} {listed(names[verdict])}." for verdict, start in SHOWN.items() if names[verdict]]
    levels = [f"{_printed(where)[each.title]} % for {each.title}" for each in (FEDEAS, MISSING_ONLY, UNIFORM, FEDAVG)]
    left_out = (
        "All seeds of a method have the same split of the data among clients and the same synthetic images, so the "
        "intervals do not say what another split or other images would give. Intervals are not corrected for the "
        "number of comparisons."
    )
    paper = f"The paper reports {listed(levels)}, under its own protocol."
    return "\n>\n".join(f"> {paragraph}" for paragraph in (" ".join(said), paper, left_out))
