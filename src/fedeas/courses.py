"""Accuracy over rounds: of one run, and of a method's seeds together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from statistics import mean
from typing import Any, NamedTuple


class Course(NamedTuple):
    """Accuracy, as a share, of one run after each of these rounds."""

    rounds: Sequence[int]
    accuracy: Sequence[float]

    @classmethod
    def of(cls, records: Iterable[Mapping[str, Any]]) -> Course:
        """What these records of rounds tell; rounds that were not evaluated are left out."""
        tested = [record for record in records if record.get("accuracy") is not None]
        return cls([int(record["round"]) for record in tested], [float(record["accuracy"]) for record in tested])


class MeanCourse(NamedTuple):
    """A method's seeds in one: their mean and extremes at each round."""

    rounds: list[int]
    low: list[float]
    middle: list[float]
    high: list[float]
    seeds: int


def mean_course(courses: Iterable[Course]) -> MeanCourse:
    """Mean and extremes at the rounds that the most seeds have: where one is missing, the mean would jump."""
    found: dict[int, list[float]] = {}
    for number, accuracy in chain.from_iterable(zip(*course, strict=True) for course in courses):
        found.setdefault(number, []).append(accuracy)
    seeds = max(map(len, found.values()), default=0)
    rounds = sorted(number for number, values in found.items() if len(values) == seeds)
    low, middle, high = ([of(found[number]) for number in rounds] for of in (min, mean, max))
    return MeanCourse(rounds, low, middle, high, seeds)
