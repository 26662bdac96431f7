"""What the experiment beyond the paper shows: each method against FedEAS, with all comparisons in mind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fedeas.paper.artefacts import artefacts
from fedeas.paper.beyond import BALANCED_TITLE, CEILING
from fedeas.paper.studies import FEDAVG, FEDEAS
from fedeas.paper.tables import Filled
from fedeas.paper.workbook import Workbook
from fedeas.planning.advice import Advice
from fedeas.runs.comparison import CONFIDENCE, Difference, Verdict, listed, signed

EQUAL_STEPS = "equal steps"
MINUS, STEPS = "minus FedEAS, points", "steps"
ALLOCATIONS = ("Uniform", "Greedy", "KL")
POOLS = ("Pool to the mean", "Pool to the largest class")
BALANCED = tuple(f"{title}, {BALANCED_TITLE}" for title in (FEDEAS.title, "KL"))


class Compared(NamedTuple):
    """A method's difference to FedEAS in one table, its verdict among all comparisons, and its relative work."""

    table: str
    method: str
    difference: Difference
    verdict: Verdict
    work: float

    @property
    def is_control(self) -> bool:
        """Whether all methods take equally many steps."""
        return self.table.endswith(EQUAL_STEPS)

    @property
    def budget(self) -> str:
        """The budget alone, as ``beta = 4``."""
        return self.table.partition(",")[0]


@dataclass(frozen=True)
class Findings:
    """All comparisons with FedEAS of one study."""

    tables: tuple[str, ...]
    compared: tuple[Compared, ...]

    @staticmethod
    def of(book: Workbook) -> Findings:
        """Read them from the tables; central training, which has all data, is not compared."""
        filled = book.tables(artefacts("beyond"))
        found = [
            (short_title(table), name, difference, work_of(table, name))
            for table in filled
            for name in table.rows
            if name != CEILING and (difference := difference_of(table, name)) is not None
        ]
        compared = tuple(
            Compared(table, name, difference, difference.verdict_among(len(found)), work)
            for table, name, difference, work in found
        )
        return Findings(tuple(dict.fromkeys(each.table for each in compared)), compared)

    def where(self, methods: Iterable[str], verdict: Verdict) -> list[Compared]:
        """The comparisons of these methods that end so."""
        return [each for each in self.compared if each.method in methods and each.verdict is verdict]

    @property
    def advice(self) -> Advice:
        """What a planner should recommend: whatever is higher than FedEAS somewhere and lower nowhere."""
        pools = [name for name in POOLS if self._is_better(name)]
        return Advice(
            server="pool" if pools else "fedeas",
            clients=next((name.lower() for name in ALLOCATIONS if self._is_better(name)), "fedeas"),
            balanced_softmax=any(map(self._is_better, BALANCED)),
        )

    def _is_better(self, method: str) -> bool:
        return bool(self.where([method], Verdict.HIGHER)) and not self.where([method], Verdict.LOWER)


def difference_of(table: Filled, name: str) -> Difference | None:
    """A method's difference to FedEAS, if it has an interval."""
    entry = table.rows[name][table.columns.index(MINUS)]
    found = None if entry is None else entry.ours
    return found if isinstance(found, Difference) and found.interval is not None else None


def work_of(table: Filled, name: str) -> float:
    """A method's training steps, relative to FedEAS's."""
    own, base = (table.rows[each][table.columns.index(STEPS)] for each in (name, FEDEAS.title))
    if own is None or base is None or own.ours is None or base.ours is None:
        return float("nan")
    return own.ours.mean / base.ours.mean


def short_title(table: Filled) -> str:
    """The part of a table's title that tells it from the others.

    >>> short_title(Filled("The images of FedEAS with beta = 4, 7 steps for each client, here", (), {}, ""))
    'beta = 4, equal steps'
    """
    beta = table.title.partition(" with ")[2].partition(",")[0]
    return f"{beta}, {EQUAL_STEPS}" if " steps " in table.title else beta


def findings_markdown(found: Findings) -> str:
    """A table of verdicts and what follows from them, in sentences."""
    if not found.compared:
        return "Nothing has been run yet."
    lines = ["| | " + " | ".join(found.tables) + " |", "|---|" + "---|" * len(found.tables)]
    for name in _methods(found.compared):
        cells = {each.table: _cell(each) for each in found.compared if each.method == name}
        lines.append(f"| {name} | " + " | ".join(cells.get(table, "") for table in found.tables) + " |")
    advice = f"Recommended: {'; '.join(found.advice.clauses)}."
    return "\n".join([*lines, "", *(f"- {line}" for line in (*conclusions(found), advice))])


def _cell(each: Compared) -> str:
    shown = "**{}**" if each.verdict is Verdict.HIGHER else "{}"
    return shown.format(f"{signed(each.difference.mean, 2)}, {each.verdict}")


def conclusions(found: Findings) -> list[str]:
    """What the comparisons show, clause by clause."""
    number, usual = len(found.compared), [each for each in found.compared if not each.is_control]
    level = 100 * (1 - (1 - CONFIDENCE) / number)
    return [
        f"{number} comparisons with FedEAS were made. Verdicts use {level:.2f} % intervals, so that all of them hold "
        "together with 95 % (Bonferroni).",
        _says(usual, "Pools", POOLS, _with_work),
        _says(usual, "Other allocations of as many images (Uniform, Greedy, KL)", ALLOCATIONS),
        _says(usual, "FedEAS and KL with balanced softmax", BALANCED),
        _says(usual, "FedAvg without images, also with balanced softmax or balanced sampling", _without_images(found)),
        _at_equal_steps(found),
    ]


def _says(
    compared: Sequence[Compared], what: str, methods: Sequence[str], more: Callable[[Compared], str] = lambda each: ""
) -> str:
    """The methods that are higher or lower than FedEAS, each with the budgets at which it is."""
    said = []
    for verdict in (Verdict.HIGHER, Verdict.LOWER):
        there = [each for each in compared if each.verdict is verdict]
        by_method = {name: [each for each in there if each.method == name] for name in methods}
        shown = [
            f"{name} at {listed([f'{each.table} ({signed(each.difference.mean, 2)}{more(each)})' for each in wins])}"
            for name, wins in by_method.items()
            if wins
        ]
        said += [f"{verdict} are {'; '.join(shown)}"] if shown else []
    return f"{what}: {'. '.join(said) or 'no difference to FedEAS is shown at any budget'}."


def _with_work(each: Compared) -> str:
    return f", {each.work:.1f} times the steps"


def _without_images(found: Findings) -> list[str]:
    return [name for name in _methods(found.compared) if name.startswith(FEDAVG.title)]


def _at_equal_steps(found: Findings) -> str:
    there = [each._replace(table=each.budget) for each in found.compared if each.is_control]
    with_images = [name for name in _methods(there) if name not in _without_images(found)]
    if not there:
        return "At equal steps nothing has been run."
    return _says(there, "With images, at equal steps for every client and round", with_images)


def _methods(compared: Iterable[Compared]) -> list[str]:
    return list(dict.fromkeys(each.method for each in compared))
