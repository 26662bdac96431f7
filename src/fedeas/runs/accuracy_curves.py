"""Accuracy over rounds, of one run and of a method's seeds together; and the definition of a run's accuracy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from statistics import mean
from typing import Any, NamedTuple


class RoundRange(NamedTuple):
    """The rounds, counted from 1, over which a run's accuracy is averaged.

    >>> str(RoundRange(181, 200)), str(RoundRange(3, 3))
    ('rounds 181-200', 'round 3')
    """

    first: int
    last: int

    def __str__(self) -> str:
        """The rounds in words."""
        return f"round {self.last}" if self.first == self.last else f"rounds {self.first}-{self.last}"

    @classmethod
    def of(cls, rounds: int) -> RoundRange:
        """The last tenth of `rounds` rounds, rounded up: the paper's last 20 of 200.

        >>> RoundRange.of(200), RoundRange.of(15)
        (RoundRange(first=181, last=200), RoundRange(first=14, last=15))
        """
        tenth = -(-rounds // 10)
        return cls(rounds - tenth + 1, rounds)


class AccuracyCurve(NamedTuple):
    """Accuracy of one run over its rounds, as a share."""

    rounds: Sequence[int]
    accuracy: Sequence[float]

    @classmethod
    def of(cls, records: Iterable[Mapping[str, Any]]) -> AccuracyCurve:
        """The accuracies in these records of rounds; rounds without an evaluation are left out."""
        tested = [record for record in records if record.get("accuracy") is not None]
        return cls([int(record["round"]) for record in tested], [float(record["accuracy"]) for record in tested])

    def within(self, rounds: RoundRange) -> list[float]:
        """The accuracies in these rounds."""
        return [value for number, value in zip(*self, strict=True) if rounds.first <= number <= rounds.last]

    def averaged_rounds(self, rounds: int) -> RoundRange:
        """The last tenth of `rounds` rounds or, if none of them was evaluated, the last round that was."""
        last_tenth = RoundRange.of(rounds)
        return last_tenth if self.within(last_tenth) else RoundRange(self.rounds[-1], self.rounds[-1])


def measure_accuracy(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A run's accuracy and work from its records: mean, final and peak accuracy; steps and images seen.

    Accuracy is the mean over the evaluations in the rounds that ``window`` names. Steps and images are sums over
    all rounds, None if a record lacks them.
    """
    curve = AccuracyCurve.of(records)
    averaged = curve.averaged_rounds(len(records))
    return {
        "accuracy": mean(curve.within(averaged)),
        "window": list(averaged),
        "final": curve.accuracy[-1],
        "peak": max(curve.accuracy),
        "steps": _total(records, "steps"),
        "samples": _total(records, "samples"),
    }


def _total(records: Iterable[Mapping[str, Any]], key: str) -> int | None:
    values = [record.get(key) for record in records]
    return None if None in values else sum(map(int, filter(None, values)))


class MeanCurve(NamedTuple):
    """Mean and extremes over a method's seeds at each round."""

    rounds: list[int]
    low: list[float]
    middle: list[float]
    high: list[float]
    seeds: int


def mean_curve(curves: Iterable[AccuracyCurve]) -> MeanCurve:
    """Mean and extremes at the rounds that most seeds have; rounds with fewer seeds would make the mean jump."""
    found: dict[int, list[float]] = {}
    for number, accuracy in chain.from_iterable(zip(*curve, strict=True) for curve in curves):
        found.setdefault(number, []).append(accuracy)
    seeds = max(map(len, found.values()), default=0)
    rounds = sorted(number for number, values in found.items() if len(values) == seeds)
    low, middle, high = ([of(found[number]) for number in rounds] for of in (min, mean, max))
    return MeanCurve(rounds, low, middle, high, seeds)
