"""How our results stand to the paper's: the rules by which each line of the ledger is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from itertools import combinations
from statistics import mean
from typing import NamedTuple

from fedeas.runs import Difference, Measured, Verdict, paired_difference
from reproduction.tables import NOT_RUN
from reproduction.text import fixed, signed

LEVEL_POINTS = 3.0
"""Levels of accuracy agree within this many points: our initial weights, generator and test set differ."""

LEVEL_FACTOR = 2.0
"""Values of Gamma-hat agree within this factor."""

COUNT_POINTS = 1.0
"""Percentages that follow from label counts agree within this many points: the clean protocol has other clients."""

MOST_NAMED = 3  # pairs of methods named in a line; of more, only the number is given

BySeed = Mapping[int, float]


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
"""The rules in words, for readers of the ledger."""


def judge_levels(run: Mapping[str, BySeed], printed: Mapping[str, Decimal]) -> Finding:
    """Which methods are within `LEVEL_POINTS` of the paper's numbers."""
    apart = {name: mean(values.values()) - float(printed[name]) for name, values in run.items()}
    if not apart:
        return ABSENT
    far = {name: points for name, points in apart.items() if abs(points) > LEVEL_POINTS}
    said = f"{len(apart) - len(far)} of {len(apart)} within {LEVEL_POINTS:g} points"
    named = ", ".join(f"{name} {signed(points, 2)}" for name, points in far.items())
    said += f"; not within: {named}" if far else ""
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
    said = [chain(sorted(run, key=lambda name: mean(run[name].values()), reverse=True))]
    said.append(f"{len(same)} of {len(pairs)} pairs are shown to be in the paper's order")
    said += [f"the other way round: {_named(other)}"] if other else []
    said += [f"undecided: {_named(rest)}"] if (rest := [pair for pair in pairs if pair not in (*same, *other)]) else []
    standing = _share(len(same), len(same) + len(other)) if other or len(same) == len(pairs) else Standing.OPEN
    return Finding(standing, "; ".join(said))


def judge_size(ours: Difference | None, paper: Decimal) -> Finding:
    """Whether our interval contains the paper's number; open if it contains 0 as well."""
    if ours is None:
        return ABSENT
    inside, evidence = contains(ours, paper), difference_text(ours)
    if inside is None:
        return Finding(Standing.OPEN, evidence)
    if not inside:
        return Finding(Standing.DIFFERS, evidence)
    return Finding(Standing.OPEN if ours.verdict is Verdict.UNDECIDED else Standing.AGREES, evidence)


def contains(ours: Difference, paper: Decimal) -> bool | None:
    """Whether our interval contains the paper's number, which is rounded; None if there is no interval.

    >>> contains(Difference(2.0, 0.5, 4), Decimal("2.8")), contains(Difference(2.0, 0.5, 4), Decimal("2.9"))
    (True, False)
    """
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
    """Whether the first method reaches the threshold before the second, paired by seed; None for a seed that never did.

    If one never did, it is open: a mean over the other seeds would be biased.
    """
    shared = sorted(one.keys() & other.keys())
    first, second = (known({seed: each[seed] for seed in shared}) for each in (one, other))
    if len(first) < len(shared) or len(second) < len(shared):
        return Finding(Standing.OPEN, f"reached by {len(first)} of {len(shared)} seeds against {len(second)}")
    later = paired_difference(second, first)
    if later is None:
        return ABSENT
    rounds = mean(first.values()), mean(second.values())
    evidence = f"round {rounds[0]:.0f} against {rounds[1]:.0f}, a factor of {rounds[1] / rounds[0]:.2f}"
    return judge_direction(later, f"{evidence}; apart by {difference_text(later, 0)}")


def judge_factor(ours: Measured | None, paper: Decimal) -> Finding:
    """Whether our number is within `LEVEL_FACTOR` of the paper's."""
    if ours is None:
        return ABSENT
    times = ours.mean / float(paper)
    near = 1 / LEVEL_FACTOR <= times <= LEVEL_FACTOR
    evidence = f"{ours.text(3)} (n={ours.seeds}), {fixed(times, 0 if times > 10 else 2)} times the paper's"
    return Finding(Standing.AGREES if near else Standing.DIFFERS, evidence)


def judge_count(ours: float, paper: Decimal) -> Finding:
    """Whether a percentage that follows from label counts is within `COUNT_POINTS` of the paper's."""
    near = abs(ours - float(paper)) <= COUNT_POINTS
    return Finding(Standing.AGREES if near else Standing.DIFFERS, f"{fixed(ours, 1)}, from label counts")


def difference_text(ours: Difference, decimals: int = 2) -> str:
    """A difference with its interval and its number of seeds.

    >>> difference_text(Difference(2.0, 0.5, 4), 1)
    '2.0 (1.2 to 2.8, n=4)'
    """
    inside = ", ".join(filter(None, (ours.range_text(decimals), f"n={ours.seeds}")))
    return f"{fixed(ours.mean, decimals)} ({inside})"


def known(values: Mapping[int, float | None]) -> dict[int, float]:
    """The values of seeds that have one."""
    return {seed: value for seed, value in values.items() if value is not None}


def chain(names: Sequence[str]) -> str:
    """Names in descending order, as text."""
    return " > ".join(names)


def _share(agreeing: int, of: int) -> Standing:
    return Standing.AGREES if agreeing == of else Standing.PARTLY if agreeing else Standing.DIFFERS


def _named(pairs: Sequence[tuple[str, str]]) -> str:
    few = ", ".join(f"{high} over {low}" for high, low in pairs)
    return f"{len(pairs)} pairs" if len(pairs) > MOST_NAMED else few
