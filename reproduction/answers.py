"""What the experiments behind ``python -m reproduction beyond`` answer and recommend together."""

from collections.abc import Sequence
from functools import cache
from itertools import product
from statistics import mean
from typing import NamedTuple

from scipy.special import bdtr

from fedeas.runs import Difference, Verdict
from reproduction.beyond import BALANCED_TITLE, CONTRASTS, EQUAL_STEPS, LARGEST, POOL, SIDE, WHOLE, Contrast
from reproduction.findings import ALLOCATIONS, BALANCED, LEGEND, NOTHING, POOLS, Compared, Findings, marked
from reproduction.methods import FEDAVG, FEDEAS
from reproduction.results import mean_of
from reproduction.text import fixed, listed, markdown_table, mean_cell

STEPS = f", {EQUAL_STEPS}"  # ends the name of a method that is compared at equal steps


class Question(NamedTuple):
    """A question, the methods that replace FedEAS to answer it, and the answers if these are lower or higher."""

    asks: str
    methods: tuple[str, ...]
    if_lower: str
    if_higher: str


UNIFORM = ("Uniform",)
FITTING = (POOL, LARGEST)  # the pools that are just large enough for every client
QUESTIONS = (
    Question("If each client has its own images: is an allocation needed, not equal numbers?", UNIFORM, "Yes", "No"),
    Question("Are synthetic images needed?", (FEDAVG.title, f"{FEDAVG.title}, {BALANCED_TITLE}"), "Yes", "No"),
    Question("Is another allocation of as many images better?", ("Greedy", "KL"), "No", "Yes"),
    Question("Does balanced softmax help, beside the images?", BALANCED, "No", "Yes"),
    Question("Is one pool for all clients better, just large enough for each of them?", FITTING, "No", "Yes"),
    Question("Also with equally many training steps?", tuple(f"{pool}{STEPS}" for pool in FITTING), "No", "Yes"),
    Question("Is one pool for all clients better, with as many images as FedEAS makes?", (WHOLE,), "No", "Yes"),
    Question("Also with equally many training steps?", (f"{WHOLE}{STEPS}",), "No", "Yes"),
)
METHODS = tuple(name for question in QUESTIONS for name in question.methods)
USES = tuple(name for name in METHODS if not name.startswith(FEDAVG.title))  # the methods that give images to clients
NOT_SHOWN, MIXED = "Not shown", "It depends"
GOAL = 1.0  # points of accuracy that another use of the images should gain at least


class Overall(NamedTuple):
    """A method's difference to FedEAS in one experiment: its mean over the budgets at which both have been run."""

    difference: Difference
    verdict: Verdict  # given once all budgets have all seeds
    budgets: int


@cache
def overall(found: Findings) -> dict[str, Overall]:
    """Each method of the questions, if it has been compared; the verdicts hold together with 95 % (Bonferroni)."""
    planned = {name: tables for name in METHODS if (tables := planned_tables(found, name))}
    means, among = dict[str, Overall](), len(planned) + bool(found.tried)
    for name, tables in planned.items():
        values = [each.by_seed for each in comparisons_of(found, name)]
        if (difference := mean_of(values)) is not None:
            complete = len(values) == len(tables) and difference.seeds >= found.planned_seeds
            verdict = difference.verdict_among(among) if complete else Verdict.UNFINISHED
            means[name] = Overall(difference, verdict, len(values))
    return means


def planned_tables(found: Findings, name: str) -> list[str]:
    """The tables in which a method will be compared, one for each budget."""
    wanted = name.removesuffix(STEPS), name.endswith(STEPS)
    return [table for table, method in found.planned if (method, table.endswith(EQUAL_STEPS)) == wanted]


def comparisons_of(found: Findings, name: str) -> list[Compared]:
    """The comparisons of a method that have been made."""
    tables = planned_tables(found, name)
    return [each for each in found.compared if each.table in tables and each.method == name.removesuffix(STEPS)]


def answer(question: Question, experiments: Sequence[Findings]) -> str:
    """What some experiment shows, at one budget or over all, while none shows the opposite."""
    lower, higher = (
        any(shows(each, method, verdict) for method in question.methods for each in experiments)
        for verdict in (Verdict.LOWER, Verdict.HIGHER)
    )
    if lower == higher:
        return MIXED if lower else NOT_SHOWN
    return question.if_lower if lower else question.if_higher


def shows(found: Findings, method: str, verdict: Verdict) -> bool:
    """Whether a method has this verdict over all budgets or at one."""
    whole = overall(found).get(method)
    at_one = any(each.verdict is verdict for each in comparisons_of(found, method))
    return at_one or (whole is not None and whole.verdict is verdict)


def gains_of(experiments: Sequence[Findings], method: str) -> list[float]:
    """A method's mean difference to FedEAS in each clean experiment that has all its runs."""
    return [whole.difference.mean for each in clean(experiments) if (whole := complete(each, method))]


def mean_of_experiments(experiments: Sequence[Findings], method: str) -> Difference | None:
    """The mean of these gains; its interval says where the mean over many experiments like these lies."""
    return Difference.of(gains_of(experiments, method))


def mean_of_datasets(experiments: Sequence[Findings], method: str) -> Difference | None:
    """The same with datasets as units, each with the mean of its experiments, which may resemble each other."""
    return Difference.of([mean(gains) for own in by_dataset(experiments).values() if (gains := gains_of(own, method))])


def by_dataset(experiments: Sequence[Findings]) -> dict[str, list[Findings]]:
    """The experiments of each dataset."""
    names = dict.fromkeys(each.dataset for each in experiments)
    return {name: [each for each in experiments if each.dataset == name] for name in names}


def clean(experiments: Sequence[Findings]) -> list[Findings]:
    """The experiments with the clean protocol; means are over these."""
    return [each for each in experiments if each.protocol == "clean"]


def complete(found: Findings, method: str) -> Overall | None:
    """A method's mean difference to FedEAS over all budgets of an experiment, once all its runs are there."""
    whole = overall(found).get(method)
    return whole if whole and whole.verdict.is_given and whole.budgets >= found.budgets else None


ANSWER_HEADS = ("question", "instead of FedEAS", "mean over experiments (95 %)", "over datasets (95 %)", "verdicts")


def answers_markdown(experiments: Sequence[Findings]) -> str:
    """The answers with each method's means and verdicts, and its differences by dataset and experiment."""
    begun = [each for each in experiments if each.compared]
    if not begun:
        return NOTHING
    means = {name: mean_of_experiments(begun, name) for name in USES if not name.endswith(STEPS)}
    gaining = [name for name, mean in means.items() if mean and mean.mean >= GOAL and mean.verdict is Verdict.HIGHER]
    said = f"**Yes**: {listed(gaining)}." if gaining else f"**{NOT_SHOWN}**."
    rows = list[list[str]]()
    for question in QUESTIONS:
        begins = f"{question.asks} **{answer(question, begun)}**"
        for name in question.methods:
            judged = [whole.verdict for each in begun if (whole := overall(each).get(name)) and whole.verdict.is_given]
            cells = [mean_cell(of(begun, name)) for of in (mean_of_experiments, mean_of_datasets)]
            counts = list[str]()
            for verdict in (Verdict.LOWER, Verdict.HIGHER):
                clear, shown = judged.count(verdict), sum(shows(each, name, verdict) for each in begun)
                single = f" (and at single budgets in {shown - clear})" * (shown > clear)
                counts += [f"{verdict} in {clear}{single}"] if shown else []
            rows.append([begins, name, *cells, f"{listed(counts) or 'neither'}, of {len(judged)}"])
            begins = ""
    tables = {"": [[*ANSWER_HEADS], *rows]}
    for name, own in by_dataset(begun).items():
        setups = dict.fromkeys(each.setup for each in own if each.setup)  # which the paper's tables may not share
        tables[f"**{name}**" + (f" ({'; '.join(setups)})" if setups else "") + "\n\n"] = _differences(own)
    texts = [f"{title}{markdown_table(heads, rows)}" for title, (heads, *rows) in tables.items()]
    about = "Each cell is the mean over all budgets, or over those that have been run. Means are over experiments with "
    about += "the clean protocol, counts over those that have all runs of a method."
    goal = f"Does another use of at most as many images gain a point or more over FedEAS? {said}"
    return "\n\n".join([goal, *texts, f"{LEGEND} {about}"])


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


CARRY_HEADS = (
    "instead of FedEAS",
    "experiments above it",
    "one more experiment",
    "smallest budgets",
    "largest budgets",
)
CARRY = (
    "p: how likely at least as many experiments would lie on one side of FedEAS by chance (sign test, two-sided). "
    "One more experiment: where the gain in a further experiment like these would lie with 95 % (prediction interval). "
    "Budgets: the mean over experiments at their smallest and at their largest budget. The last table leaves out all "
    "experiments on one dataset. In brackets: the 95 % interval of a mean, with experiments as units."
)


def robustness_markdown(experiments: Sequence[Findings]) -> str:
    """A table of what to expect elsewhere and at other budgets, and one of the means without each dataset."""
    compared = [name for name in USES if not name.endswith(STEPS) and gains_of(experiments, name)]
    if not compared:
        return NOTHING
    datasets = by_dataset([each for each in clean(experiments) if each.compared])
    rows = list[list[str]]()
    for name in compared:
        gains, mean = gains_of(experiments, name), mean_of_experiments(experiments, name)
        above = f"{sum(gain > 0 for gain in gains)} of {len(gains)} (p = {sign_test(gains):.2g})"
        further = mean.interval_of_another if mean is not None else None
        another = "" if further is None else " to ".join(fixed(end, 2) for end in further)
        rows.append([name, above, another, *(mean_cell(at_end(experiments, name, end)) for end in (0, -1))])
    elsewhere = markdown_table(CARRY_HEADS, rows)
    others = [[found for found in experiments if found.dataset != dataset] for dataset in datasets]
    rows = [[name, *(mean_cell(mean_of_experiments(each, name)) for each in others)] for name in compared]
    without = markdown_table([CARRY_HEADS[0], *(f"without {dataset}" for dataset in datasets)], rows)
    return "\n\n".join([elsewhere, without, CARRY])


def at_end(experiments: Sequence[Findings], method: str, end: int) -> Difference | None:
    """The mean difference at the smallest (`end` 0) or largest (-1) budget of each experiment of `gains_of`."""
    means = list[float]()
    for found in clean(experiments):
        if complete(found, method):
            table = planned_tables(found, method)[end]
            means += [each.difference.mean for each in comparisons_of(found, method) if each.table == table]
    return Difference.of(means)


def sign_test(values: Sequence[float]) -> float:
    """The two-sided p-value of the signs, if both were equally likely; zeros do not count."""
    above, below = (sum(sign * value > 0 for value in values) for sign in (1, -1))
    return min(1.0, 2 * float(bdtr(min(above, below), above + below, 0.5)))


def contrast_in(found: Findings, contrast: Contrast) -> tuple[Difference | None, dict[str, Difference]]:
    """The difference of two methods: its mean over budgets, once all have all seeds, and at budgets that have."""
    usual = [each for each in (*found.compared, *found.aside) if not each.is_control]
    levels: dict[tuple[str, str], dict[int, float]] = {}  # each a difference to FedEAS, whose own level is 0
    for each in usual:
        levels[each.table, each.method] = dict(each.by_seed)
        levels.setdefault((each.table, FEDEAS.title), {}).update(dict.fromkeys(each.by_seed, 0.0))
    budgets, single = list[dict[int, float]](), dict[str, Difference]()
    for table in dict.fromkeys(each.table for each in usual):
        own, other = (levels.get((table, title), {}) for title in contrast)
        apart = {seed: own[seed] - other[seed] for seed in own.keys() & other.keys()}
        budgets += [apart] if apart else []
        at_budget = mean_of([apart])
        if at_budget is not None and at_budget.seeds >= found.planned_seeds:
            single[table] = at_budget
    whole = mean_of(budgets) if len(budgets) == found.budgets else None
    return whole if whole is not None and whole.seeds >= found.planned_seeds else None, single


def contrasts_markdown(experiments: Sequence[Findings]) -> str:
    """What one choice adds over experiments, and below it the side questions, which were asked in single ones."""
    experiments, rows, sides = clean(experiments), list[list[str]](), list[list[str]]()
    for contrast in CONTRASTS:
        found = {each.title: of for each in experiments if (of := contrast_in(each, contrast)[0]) is not None}
        if ordered := sorted(found, key=lambda title: found[title].mean):
            mean = mean_cell(Difference.of([each.mean for each in found.values()]))
            ends = [f"{mean_cell(found[title])}, {title}" for title in (ordered[0], ordered[-1])]
            rows.append([", instead of ".join(contrast), str(len(found)), mean, *ends])
    for contrast, each in product(SIDE, experiments):
        whole, single = contrast_in(each, contrast)
        if cells := [f"{cell} at {table}" for table, of in single.items() if (cell := mean_cell(of))]:
            sides.append([", instead of ".join(contrast), each.title, mean_cell(whole), "; ".join(cells)])
    heads = ("method", "experiments", "mean over experiments (95 %)", "lowest", "highest")
    about = "Differences in points of accuracy under the clean protocol, each the mean over all budgets. In brackets "
    about += "is the 95 % interval: of the mean, with experiments as units; of one experiment, with seeds as units."
    side_heads = ("method", "experiment", "mean over budgets (95 %)", "at single budgets (95 %)")
    of_sides = "Differences in points of accuracy under the clean protocol. Intervals have seeds as units, and each is "
    of_sides += "taken alone. A budget is shown once all its seeds have been run, the mean once all budgets have been."
    tables = [markdown_table(heads, rows), about] if rows else []
    tables += [markdown_table(side_heads, sides), of_sides] if sides else []
    return "\n\n".join(tables or [NOTHING])


class Shown(NamedTuple):
    """A policy to recommend, and the evidence: it is shown to be higher than FedEAS somewhere, and lower nowhere."""

    policy: str = "fedeas"  # FedEAS itself needs no evidence
    datasets: tuple[str, ...] = ()  # those of the experiments in which it is higher
    higher: int = 0  # number of these experiments
    judged: int = 0  # number of experiments that have all runs of the policy
    gained: str = ""  # its mean over experiments, and at their smallest and largest budgets, with intervals, in words

    @property
    def text(self) -> str:
        """The policy, and where it was shown to be better."""
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
        """The advice, clause by clause."""
        told = [f"if a server makes the images, {self.server.text}", f"if clients make their own, {self.clients.text}"]
        return told + [f"with fedeas, {self.loss.text}"] * bool(self.loss.higher)


def advice_of(experiments: Sequence[Findings]) -> Advice:
    """What these experiments recommend: what is better than FedEAS on most datasets, then by the mean; else FedEAS."""
    best = list[Shown]()
    for policies in (POOLS, ALLOCATIONS):
        ranks = {(0, 0.0): Shown()}
        for title, policy in policies.items():
            shown = _case_for(experiments, policy, title)
            means = [whole.difference.mean for each in experiments if (whole := complete(each, title))]
            if shown.higher:
                ranks.setdefault((len(shown.datasets), mean(means)), shown)
        best.append(ranks[max(ranks)])
    return Advice(best[0], best[1], loss=_case_for(experiments, BALANCED_TITLE, BALANCED[0]))


def _case_for(experiments: Sequence[Findings], policy: str, method: str) -> Shown:
    """Where a policy's method is higher than FedEAS; FedEAS itself if it is lower, be it at one budget."""
    judged = [(each.dataset, whole.verdict) for each in experiments if (whole := complete(each, method))]
    higher = [dataset for dataset, verdict in judged if verdict is Verdict.HIGHER]
    if not higher or any(shows(each, method, Verdict.LOWER) for each in experiments):
        return Shown()
    means = {
        f"over {len(gains_of(experiments, method))} clean experiments": mean_of_experiments(experiments, method),
        "at the smallest budgets": at_end(experiments, method, 0),
        "at the largest budgets": at_end(experiments, method, -1),
    }
    gained = ", ".join(f"{cell} {where}" for where, mean in means.items() if (cell := mean_cell(mean)))
    return Shown(policy, tuple(dict.fromkeys(higher)), len(higher), len(judged), gained)


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
