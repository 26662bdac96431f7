"""Accuracy over rounds, of one run and of a method's seeds together, and the measures in a run's summary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from statistics import mean, median
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


def summarise(records: Sequence[Mapping[str, Any]], threshold: float) -> dict[str, Any]:
    """A run's measures from its records: accuracy, work, the first round at the threshold, and the median Gamma-hat.

    Accuracy is the mean over the evaluations in the rounds that ``window`` names: the last tenth or, if none of these
    was evaluated, the last round that was. Steps and images are sums over all rounds. What is not known is None.
    """
    curve, window = AccuracyCurve.of(records), RoundRange.of(len(records))
    late = [value for number, value in zip(*curve, strict=True) if number >= window.first]
    if not late:
        window, late = RoundRange(curve.rounds[-1], curve.rounds[-1]), [curve.accuracy[-1]]
    work = {name: [record.get(name) for record in records] for name in ("steps", "samples")}
    hats = [record["gamma_hat"] for record in records if record.get("gamma_hat") is not None]
    return {
        "accuracy": mean(late),
        "window": list(window),
        "final": curve.accuracy[-1],
        "peak": max(curve.accuracy),
        **{name: None if None in each else sum(map(int, filter(None, each))) for name, each in work.items()},
        "rounds_to_threshold": next((r for r, value in zip(*curve, strict=True) if value >= threshold), None),
        "threshold": threshold,
        "gamma_hat": median(hats) if hats else None,
    }


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
