"""The questions behind ``python -m reproduction beyond``, and what all its experiments together answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from statistics import mean
from typing import NamedTuple

from fedeas.runs import Difference, Verdict
from reproduction.beyond import BALANCED_TITLE, LARGEST, WHOLE
from reproduction.findings import BALANCED, EQUAL_STEPS, LEGEND, NOTHING, Compared, Findings, marked, verdict_among
from reproduction.methods import FEDAVG
from reproduction.text import listed, markdown_table, signed

STEPS = f", {EQUAL_STEPS}"
"""Ends the name of a method that is compared at equal steps."""


class Question(NamedTuple):
    """A question, the methods that replace FedEAS to answer it, and the answers if these are lower or higher."""

    asks: str
    methods: tuple[str, ...]
    if_lower: str
    if_higher: str


FITTING = ("Pool to the mean", LARGEST)
"""The pools that are just large enough for every client."""

QUESTIONS = (
    Question(
        "If each client has its own images: is an allocation needed, not equal numbers?", ("Uniform",), "Yes", "No"
    ),
    Question("Are synthetic images needed?", (FEDAVG.title, f"{FEDAVG.title}, {BALANCED_TITLE}"), "Yes", "No"),
    Question("Is another allocation of as many images better?", ("Greedy", "KL"), "No", "Yes"),
    Question("Does balanced softmax help, beside the images?", BALANCED, "No", "Yes"),
    Question("Is one pool for all clients better, just large enough for each of them?", FITTING, "No", "Yes"),
    Question("Also with equally many training steps?", tuple(f"{pool}{STEPS}" for pool in FITTING), "No", "Yes"),
    Question("Is one pool for all clients better, with as many images as FedEAS makes?", (WHOLE,), "No", "Yes"),
    Question("Also with equally many training steps?", (f"{WHOLE}{STEPS}",), "No", "Yes"),
)
METHODS = tuple(name for question in QUESTIONS for name in question.methods)
USES = tuple(name for name in METHODS if not name.startswith(FEDAVG.title))
"""The methods that give images to clients."""
NOT_SHOWN = "Not shown"
MIXED = "It depends"

GOAL = 1.0
"""Points of accuracy that another use of the images should gain at least."""

FEW = 2
"""As many experiments are named in an answer; more are counted."""


class Overall(NamedTuple):
    """A method's difference to FedEAS in one experiment: its mean over the budgets at which both have been run.

    It has a verdict once all budgets have all seeds.
    """

    difference: Difference
    verdict: Verdict
    budgets: int


@cache
def overall(found: Findings) -> dict[str, Overall]:
    """Each method of the questions, if it has been compared; the verdicts hold together with 95 % (Bonferroni)."""
    planned = {name: tables for name in METHODS if (tables := planned_tables(found, name))}
    means = dict[str, Overall]()
    for name, tables in planned.items():
        values = [each.by_seed for each in comparisons_of(found, name)]
        if (difference := mean_of(values)) is not None:
            complete = len(values) == len(tables) and difference.seeds >= found.planned_seeds
            verdict = verdict_among(len(planned) + bool(found.tried), difference, complete)
            means[name] = Overall(difference, verdict, len(values))
    return means


def mean_of(budgets: Sequence[Mapping[int, float]]) -> Difference | None:
    """The difference over several budgets, given by seed for each: averaged within the seeds that all budgets have.

    >>> mean_of([{0: 1.0, 1: 2.0}, {0: 3.0, 1: 6.0, 2: 9.0}])
    Difference(mean=3.0, spread=1.4142135623730951, seeds=2)
    """
    seeds = set[int].intersection(*(set(each) for each in budgets)) if budgets else set[int]()
    return Difference.of([mean(each[seed] for each in budgets) for seed in sorted(seeds)])


def planned_tables(found: Findings, name: str) -> list[str]:
    """The tables in which a method will be compared, one for each budget."""
    wanted = name.removesuffix(STEPS), name.endswith(STEPS)
    return [table for table, method in found.planned if (method, table.endswith(EQUAL_STEPS)) == wanted]


def comparisons_of(found: Findings, name: str) -> list[Compared]:
    """The comparisons of a method that have been made."""
    tables = planned_tables(found, name)
    return [each for each in found.compared if each.table in tables and each.method == name.removesuffix(STEPS)]


def answer(question: Question, experiments: Sequence[Findings]) -> str:
    """The answer in short, and below it, in a list, what each method of the question shows."""
    evidence = [text for method in question.methods if (text := _evidence(method, experiments))]
    return "\n  - ".join([f"**{_short(question, experiments)}**", *evidence])


def goal(experiments: Sequence[Findings]) -> str:
    """Which methods gain the goal over experiments, with an interval above zero, and what they gain at equal steps."""
    lines = list[str]()
    for name in METHODS:
        found = mean_of_experiments(experiments, name)
        if found and not name.endswith(STEPS) and found.mean >= GOAL and found.verdict is Verdict.HIGHER:
            lines.append(
                "; ".join([f"{name}: {next(mean_text(experiments, name))}", *_at_equal_steps(experiments, name)])
            )
    return "\n  - ".join(["**Yes**" if lines else f"**{NOT_SHOWN}**", *lines])


def _at_equal_steps(experiments: Sequence[Findings], method: str) -> Iterator[str]:
    """What a method gains with all steps and with equal ones, in the experiments that have both."""
    pairs = [[whole_difference(each, name) for name in (method, method + STEPS)] for each in clean(experiments)]
    both = [(usual.mean, control.mean) for usual, control in pairs if usual and control]
    means = [Difference.of(values) for values in zip(*((one, other, other - one) for one, other in both), strict=True)]
    texts = [mean_cell(each) for each in means]
    if all(texts) and texts:
        yield "on the {} with {}: {} with all steps, {} with equal ones, so {}".format(len(both), EQUAL_STEPS, *texts)


def _short(question: Question, experiments: Sequence[Findings]) -> str:
    """What some experiment shows while none shows the opposite, be it at one budget; with their number if few do."""
    lower, higher = (_shown(question.methods, experiments, verdict) for verdict in (Verdict.LOWER, Verdict.HIGHER))
    if any(lower) == any(higher):
        return MIXED if any(lower) else NOT_SHOWN
    word, (whole, _) = (question.if_lower, lower) if any(lower) else (question.if_higher, higher)
    judged = sum(any(_is_judged(each, method) for method in question.methods) for each in experiments)
    if not whole:
        return f"{word}, at single budgets only"
    return (
        word if 2 * len(whole) > judged else f"{word}, in {len(whole)} of {judged} experiments; not shown in the others"
    )


def _shown(methods: Sequence[str], experiments: Sequence[Findings], verdict: Verdict) -> tuple[list[str], list[str]]:
    """The experiments in which one of these methods has this verdict over all budgets, or only at those named."""
    whole, partly = list[str](), list[str]()
    for each in experiments:
        places = [where_shown(each, method, verdict) for method in methods]
        whole += [each.title] if "" in places else []
        partly += [] if "" in places else [each.title + at for at in places if at]
    return whole, partly


def _is_judged(found: Findings, method: str) -> bool:
    """Whether the experiment has all runs of a method."""
    return method in overall(found) and overall(found)[method].verdict.is_given


def _evidence(method: str, experiments: Sequence[Findings]) -> str:
    """In which experiments a method is lower or higher than FedEAS, and its mean; empty if nothing can be said yet."""
    judged, parts = sum(_is_judged(each, method) for each in experiments), list[str]()
    for verdict in (Verdict.LOWER, Verdict.HIGHER):
        whole, partly = _shown([method], experiments, verdict)
        if whole:
            named = f", on {listed(whole)}" if len(whole) <= FEW else ""
            parts.append(f"{verdict} than FedEAS in {len(whole)} of {judged} experiments{named}")
        elif partly:
            parts.append(f"{verdict} than FedEAS in no experiment on the mean over budgets")
        if partly:
            parts.append(f"at single budgets {'also ' * bool(whole)}{verdict} on {listed(partly)}")
    if not parts and judged:
        parts = [f"no difference to FedEAS is shown in {judged} experiments"]
    parts = [*mean_text(experiments, method), *parts]
    return f"{method}: {'; '.join(parts)}" if parts else ""


def mean_text(experiments: Sequence[Findings], method: str) -> Iterator[str]:
    """The mean over experiments with its interval, if it has one."""
    found = mean_of_experiments(experiments, method)
    if found is not None and found.interval is not None:
        yield f"{signed(found.mean, 2)} points ({found.range_text(2)}) over {found.seeds} clean experiments"


def where_shown(found: Findings, method: str, verdict: Verdict) -> str | None:
    """Nothing to add if a method has this verdict over all budgets, else the budgets at which it has; None if none."""
    whole = overall(found).get(method)
    if whole is not None and whole.verdict is verdict:
        return ""
    budgets = [each.budget for each in comparisons_of(found, method) if each.verdict is verdict]
    return f" at {listed(budgets)}" if budgets else None


def mean_of_experiments(experiments: Sequence[Findings], method: str) -> Difference | None:
    """A method's mean difference over the experiments that have compared it under the clean protocol at all budgets.

    Experiments are the units of its interval, not seeds: it says where the mean over many experiments like these lies.
    """
    return Difference.of(gains_of(experiments, method))


def gains_of(experiments: Sequence[Findings], method: str) -> list[float]:
    """A method's mean difference to FedEAS in each clean experiment that has all its runs."""
    return [each for gains in _by_dataset(experiments, method).values() for each in gains]


def mean_of_datasets(experiments: Sequence[Findings], method: str) -> Difference | None:
    """The same with datasets as units, each with the mean of its experiments, which may resemble each other."""
    return Difference.of([mean(means) for means in _by_dataset(experiments, method).values()])


def _by_dataset(experiments: Sequence[Findings], method: str) -> dict[str, list[float]]:
    """A method's mean difference in each experiment that counts."""
    found: dict[str, list[float]] = {}
    for each in clean(experiments):
        if (difference := whole_difference(each, method)) is not None:
            found.setdefault(each.dataset, []).append(difference.mean)
    return found


def clean(experiments: Sequence[Findings]) -> list[Findings]:
    """The experiments with the clean protocol; means are over these."""
    return [each for each in experiments if each.protocol == "clean"]


def whole_difference(found: Findings, method: str) -> Difference | None:
    """A method's mean difference to FedEAS over all budgets of an experiment, once all its runs are there."""
    whole = overall(found).get(method)
    if whole is None or not whole.verdict.is_given or whole.budgets < found.budgets:
        return None
    return whole.difference


def answers_markdown(experiments: Sequence[Findings]) -> str:
    """The answers, and what they rest on: each method's means, and its differences by dataset and experiment."""
    begun = [each for each in experiments if each.compared]
    if not begun:
        return NOTHING
    lines = [f"- Does another use of at most as many images gain a point or more over FedEAS? {goal(begun)}"]
    lines += [f"- {question.asks} {answer(question, begun)}" for question in QUESTIONS]
    tables = {"**Experiments with the clean protocol**": _means(begun)}
    for name in dict.fromkeys(each.dataset for each in begun):
        own = [each for each in begun if each.dataset == name]
        setups = dict.fromkeys(each.setup for each in own if each.setup)  # which the paper's tables may not share
        tables[f"**{name}**" + (f" ({'; '.join(setups)})" if setups else "")] = _differences(own)
    shown = [f"{title}\n\n{markdown_table(heads, rows)}" for title, (heads, *rows) in tables.items()]
    about = "Each cell is the mean over all budgets, or over those that have been run. Answers count the experiments "
    about += "that have all runs of a method."
    return "\n\n".join(["\n".join(lines), *shown, f"{LEGEND} {about}"])


def _means(experiments: Sequence[Findings]) -> list[list[str]]:
    """A row for each method that has a mean over experiments."""
    rows = [["instead of FedEAS", "experiments", "mean over experiments (95 %)", "over datasets (95 %)"]]
    for name in METHODS:
        found = _by_dataset(experiments, name)
        means = [mean_cell(of(experiments, name)) for of in (mean_of_experiments, mean_of_datasets)]
        rows += [[name, f"{sum(map(len, found.values()))} on {len(found)} datasets", *means]] if any(means) else []
    return rows


def _differences(experiments: Sequence[Findings]) -> list[list[str]]:
    """A row for each method that has been compared, a column for each experiment, and how many seeds these have."""
    rows = [["instead of FedEAS", *(each.setting for each in experiments)]]
    for name in METHODS:
        cells = list[str]()
        for found in experiments:
            each = overall(found).get(name)
            partly = f" ({each.budgets} of {found.budgets} budgets)" if each and each.budgets < found.budgets else ""
            cells.append(f"{marked(each.difference, each.verdict)}{partly}" if each else "")
        rows += [[name, *cells]] if any(cells) else []
    return [*rows, ["seeds", *(each.seeds for each in experiments)]]


def mean_cell(found: Difference | None) -> str:
    """A mean with its 95 % interval; empty if there is none."""
    if found is None or found.interval is None:  # as of one experiment
        return ""
    return f"{signed(found.mean, 2)} ({found.range_text(2)})"
