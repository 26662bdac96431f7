"""Statistics over seeds: mean and deviation of a method, and paired differences of methods with their intervals.

Only this module decides whether one method is better than another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from statistics import mean, stdev
from typing import Any, Self

from fedeas.core.foreign_text import listed
from fedeas.core.provenance import Answer
from fedeas.runs.accuracy_curves import RoundRange

CONFIDENCE = 0.95
ROUNDING = 1e-9  # differences and spreads below this are rounding errors
BEST, SECOND = 1, 2


class Verdict(StrEnum):
    """The conclusion from a difference over seeds."""

    HIGHER = "higher"
    LOWER = "lower"
    UNDECIDED = "no difference shown"
    ONE_SEED = "one seed: no interval"
    NO_SPREAD = "the same for all seeds: no interval"
    UNFINISHED = "runs are missing"

    @property
    def is_given(self) -> bool:
        """Whether there were enough runs for a conclusion."""
        return self not in (Verdict.ONE_SEED, Verdict.UNFINISHED)


@dataclass(frozen=True)
class Measured:
    """A number over seeds: its mean and, for two seeds or more, its sample standard deviation."""

    mean: float
    spread: float | None
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Self | None:
        """Measure these values; None if there are none.

        >>> Measured.of([1.0, 3.0])
        Measured(mean=2.0, spread=1.4142135623730951, seeds=2)
        """
        if not values:
            return None
        return cls(mean(values), stdev(values) if len(values) > 1 else None, len(values))

    def text(self, decimals: int) -> str:
        """Format the mean and the deviation.

        >>> Measured(2.0, 1.4142, 2).text(1), Measured(2.0, None, 1).text(1)
        ('2.0 ± 1.4', '2.0')
        """
        return fixed(self.mean, decimals) + ("" if self.spread is None else f" ± {fixed(self.spread, decimals)}")


@dataclass(frozen=True)
class Difference(Measured):
    """A difference of two methods over the seeds that both have."""

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % Student-t interval of the mean; None for one seed, and if all seeds differ by the same amount.

        Accuracies are multiples of one test image, so a few seeds may well differ equally: that says nothing about how
        far others would. Methods that do not differ at all have the interval from 0 to 0.
        """
        return self.interval_among(1)

    def interval_among(self, comparisons: int) -> tuple[float, float] | None:
        """The interval if this is one of several comparisons: with 95 % all of them hold together (Bonferroni).

        >>> [round(end, 2) for end in Difference(2.0, 0.5, 4).interval_among(10)]
        [0.14, 3.86]
        """
        if self.spread is None:
            return None
        if self.spread < ROUNDING:
            return (0.0, 0.0) if abs(self.mean) < ROUNDING else None
        from scipy.special import stdtrit

        quantile = 1 - (1 - CONFIDENCE) / (2 * comparisons)
        half = float(stdtrit(self.seeds - 1, quantile)) * self.spread / math.sqrt(self.seeds)
        return self.mean - half, self.mean + half

    @property
    def interval_of_another(self) -> tuple[float, float] | None:
        """Where one more value would lie, with 95 % (prediction interval); None where `interval` is.

        >>> [round(end, 2) for end in Difference(2.0, 0.5, 4).interval_of_another]
        [0.22, 3.78]
        """
        if self.interval is None:
            return None
        half = (self.interval[1] - self.mean) * math.sqrt(self.seeds + 1)
        return self.mean - half, self.mean + half

    @property
    def verdict(self) -> Verdict:
        """Higher or lower only if the interval does not contain 0."""
        return self.verdict_among(1)

    def verdict_among(self, comparisons: int) -> Verdict:
        """The same as one of several comparisons."""
        interval = self.interval_among(comparisons)
        if interval is None:
            return Verdict.ONE_SEED if self.spread is None else Verdict.NO_SPREAD
        low, high = interval
        return Verdict.HIGHER if low > 0 else Verdict.LOWER if high < 0 else Verdict.UNDECIDED

    def range_text(self, decimals: int) -> str:
        """Format the ends of the interval; empty if there is none.

        >>> Difference(2.0, 0.5, 4).range_text(1), Difference(2.0, None, 1).range_text(1)
        ('1.2 to 2.8', '')
        """
        return "" if self.interval is None else " to ".join(fixed(end, decimals) for end in self.interval)


def paired_difference(one: Mapping[int, float], other: Mapping[int, float]) -> Difference | None:
    """The first method minus the second, given their values by seed, over the seeds that both have.

    >>> found = paired_difference({0: 5.0, 1: 6.0, 2: 9.0}, {0: 4.0, 1: 4.0})
    >>> found.mean, found.seeds, found.verdict.value
    (1.5, 2, 'no difference shown')
    """
    return Difference.of([one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())])


@dataclass(frozen=True)
class Seeds:
    """The summaries of a method's finished runs, by seed."""

    summaries: Mapping[int, Mapping[str, Any]]

    def __len__(self) -> int:
        """How many seeds there are."""
        return len(self.summaries)

    @property
    def window(self) -> RoundRange:
        """The rounds that accuracy covers: runs of one method have the same number of rounds."""
        return RoundRange(*next(iter(self.summaries.values()))["window"])

    def percents(self, key: str = "accuracy") -> dict[int, float]:
        """A share of the summaries in percent, by seed."""
        return {seed: 100 * each[key] for seed, each in self.summaries.items()}

    def percent(self, key: str) -> Measured:
        """The mean over seeds of the same."""
        measured = Measured.of(list(self.percents(key).values()))
        assert measured is not None
        return measured

    def average(self, *keys: str) -> float | None:
        """The mean of a number in the summaries, at these keys, over the seeds that have it; None if none has."""
        found: list[Any] = list(self.summaries.values())
        for key in keys:
            found = [each[key] for each in found]
        known = [float(each) for each in found if each is not None]
        return mean(known) if known else None

    @property
    def seen(self) -> str:
        """A note if their generator was made from images that they test on, or may have been; else empty."""
        return Answer.worst(each.get("seen", Answer.CLEAN) for each in self.summaries.values()).note

    def minus(self, other: Seeds) -> Difference | None:
        """The paired difference of accuracy, in points."""
        return paired_difference(self.percents(), other.percents())


def ranks(methods: Mapping[str, Mapping[int, float]]) -> dict[str, int]:
    """The best and the second best method, given their values by seed.

    A method has a rank only if the interval of its difference to every method with a lower mean shows it to be higher.
    """
    known = {name: values for name, values in methods.items() if values}
    order = sorted(known, key=lambda name: mean(known[name].values()), reverse=True)
    found: dict[str, int] = {}
    for rank, name in zip((BEST, SECOND), order, strict=False):
        above = [paired_difference(known[name], known[other]) for other in order[rank:]]
        if not above or not all(each is not None and each.verdict is Verdict.HIGHER for each in above):
            break
        found[name] = rank
    return found


IT = "It"


def conclusion(
    reference: str,
    differences: Mapping[str, Difference],
    above: str = "is higher than",
    below: str = "is lower than",
    *,
    most: int | None = None,
) -> str:
    """Sentences on what the differences of other methods to this one show; each names at most `most` of them.

    If the sentence before has named the reference, give `IT`.

    >>> shown = {"uniform": Difference(-3.0, 0.5, 5), "greedy": Difference(0.1, 0.5, 5)}
    >>> conclusion("fedeas", shown)
    'fedeas is higher than uniform. No difference is shown between fedeas and greedy.'
    """
    inside = IT.lower() if reference == IT else reference
    starts = {
        Verdict.LOWER: f"{reference} {above}",
        Verdict.HIGHER: f"{reference} {below}",
        Verdict.UNDECIDED: f"No difference is shown between {inside} and",
        Verdict.ONE_SEED: f"One seed cannot tell {inside} from",
        Verdict.NO_SPREAD: f"Seeds that all differ by the same amount cannot tell {inside} from",
    }
    sentences = []
    for verdict, start in starts.items():
        names = [name for name, each in differences.items() if each.verdict is verdict]
        shown = names[:most]
        others = [f"{len(names) - len(shown):,} more"] if len(shown) < len(names) else []
        sentences += [f"{start} {listed([*shown, *others])}."] if names else []
    return " ".join(sentences)


def fixed(value: float, decimals: int) -> str:
    """Format a number with `decimals` decimals and a typographic minus sign.

    >>> fixed(-1234.5, 1), fixed(-0.001, 1)
    ('−1,234.5', '0.0')
    """
    return f"{value:z,.{decimals}f}".replace("-", "−")
