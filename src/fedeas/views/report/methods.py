"""Group runs by method: runs that differ only in their seed, with their results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fedeas.config.run import NO_GENERATION
from fedeas.core.errors import InputError
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.runs.accuracy_curves import AccuracyCurve
from fedeas.runs.comparison import BEST, SECOND, Measured, Seeds, ranks
from fedeas.runs.methods import Settings, defines_method, federation_of, grouped, named, settings_of
from fedeas.runs.store import Record, Run
from fedeas.views.figures import INK, Look, looks_of


@dataclass(frozen=True, eq=False)
class RunSnapshot:
    """The content of a run directory at one moment."""

    run: Run
    rounds: list[Record]
    summary: Record | None
    planned: tuple[LabelCounts, Allocation] | None
    """Counts and plan; None if the clients did not share their counts, or if this is a small copy of a run."""

    @property
    def finished(self) -> bool:
        """Whether there is a summary."""
        return self.summary is not None

    @property
    def progress(self) -> str:
        """The progress of the run as text."""
        done, wanted = len(self.rounds), self.run.config.rounds.total
        return f"finished, {done:,} rounds" if self.finished else f"unfinished, {done:,} of {wanted:,} rounds"

    @cached_property
    def settings(self) -> Settings:
        """What the config says of the method."""
        return settings_of(self.run.config)


@dataclass(frozen=True, eq=False)
class MethodRuns:
    """Runs that differ only in their seed."""

    name: str
    runs: tuple[RunSnapshot, ...]
    look: Look
    is_chosen: bool = False
    """Whether the user wants others to be compared with this method."""

    @cached_property
    def seeds(self) -> Seeds:
        """The finished runs."""
        return Seeds({each.run.config.seed: each.summary for each in self.runs if each.summary is not None})

    @property
    def finished(self) -> bool:
        """Whether there is any finished run."""
        return len(self.seeds) > 0

    @property
    def config(self) -> Any:
        """The config of the runs, which differ only in the seed."""
        return self.runs[0].run.config

    @property
    def total(self) -> int:
        """B; if each seed has its own partition, the mean over seeds."""
        if self.finished:
            return round(self.seeds.average("total") or 0)
        planned = self.runs[0].planned
        return planned[1].total if planned else 0

    def curves(self, finished: bool) -> list[AccuracyCurve]:
        """The accuracy curves of the runs that are finished, or of the others, as far as they were evaluated."""
        found = [AccuracyCurve.of(each.rounds) for each in self.runs if each.finished is finished]
        return [curve for curve in found if curve.rounds]

    @property
    def accuracy(self) -> Measured:
        """Accuracy in the window over the finished seeds, in percent."""
        return self.seeds.percent("accuracy")

    @property
    def federation(self) -> tuple[object, ...]:
        """The data and their split over clients; methods are comparable if these are equal."""
        return federation_of(self.config)

    @property
    def setting(self) -> str:
        """Equal for methods that differ only in their policy."""
        return str(self.config.model_copy(update={"policy": NO_GENERATION}).method)


def grouped_by_method(runs: Sequence[RunSnapshot], wanted: str | None = None) -> list[MethodRuns]:
    """Group runs by method, ordered by samples and then by falling accuracy, each with its own name and look.

    `wanted` is the name or label of the method that others are compared with.
    """
    known: dict[str, RunSnapshot] = {}
    for each in runs:  # under two labels, the report would rank a method against itself
        twin = known.setdefault(each.run.config.fingerprint, each)
        if twin is not each:
            raise InputError(f"{each.run.path}: the same config and seed as {twin.run.path}; give one of them")
    groups = grouped(runs, lambda each: each.run.config)
    methods = [MethodRuns(name, tuple(members), Look("")) for name, members in groups.items()]
    methods.sort(key=lambda method: (method.total, -method.accuracy.mean if method.finished else math.inf))
    looks = looks_of([method.config.policy.partition("(")[0] for method in methods])
    # For black the page has its own colour of text, which a dark screen inverts.
    looks = [look._replace(colour="var(--ink)") if look.colour == INK else look for look in looks]
    found = [replace(method, look=look) for method, look in zip(methods, looks, strict=True)]
    if wanted is None:
        return found
    labels = {each.name: {run.run.config.label for run in each.runs} for each in found if each.finished}
    name = named(wanted, labels)
    return [replace(each, is_chosen=each.name == name) for each in found]


def read_snapshot(run: Run) -> RunSnapshot:
    """Read a run directory; refuse one that is incomplete or has no round yet."""
    run.check()
    summary = run.summary() if run.finished else None
    has_none = not run.has_allocation and (run.is_kept or run.config.engine.name == "flower")
    snapshot = RunSnapshot(run, run.rounds(), summary, None if has_none else run.allocation())
    if not snapshot.rounds:
        raise InputError(f"{run.path}: no round is recorded yet; wait for the first or leave this run out")
    return snapshot


def baseline(method: MethodRuns, methods: Sequence[MethodRuns]) -> MethodRuns | None:
    """The finished method without generation that is otherwise the same."""
    without = (each for each in methods if each.finished and not each.total)
    return next((each for each in without if each.setting == method.setting), None)


def reference(method: MethodRuns, methods: Sequence[MethodRuns]) -> MethodRuns:
    """The finished method on the same federation that others are compared with; it does not depend on accuracy.

    It is the user's choice, or else FedEAS, or else the method with the fewest samples. If there are several, the one
    whose other settings are most like those of all methods is taken. Ties are broken by fewer samples, then by fewer
    parts of the user's own, then for FedAvg, then by name.
    """
    comparable = [each for each in methods if each.finished and each.federation == method.federation]
    chosen = [each for each in comparable if each.is_chosen]
    fedeas = [each for each in comparable if each.config.policy.partition("(")[0] == "fedeas"]
    fewest = min(each.total for each in comparable)
    candidates = chosen or fedeas or [each for each in comparable if each.total == fewest]
    return min(candidates, key=lambda each: (_unlikeness(each, comparable), *_precedence(each)))


def _unlikeness(method: MethodRuns, methods: Iterable[MethodRuns]) -> int:
    """In how many settings, besides the policy, the methods differ from this one, summed over all methods."""
    own = {key: value for key, value in method.runs[0].settings.items() if key != "policy" and defines_method(key)}
    return sum(each.runs[0].settings[key] != value for each in methods for key, value in own.items())


def _precedence(method: MethodRuns) -> tuple[object, ...]:
    own_parts = sum(str(value).startswith("python:") for value in method.runs[0].settings.values())
    return method.total, own_parts, method.config.algorithm != "fedavg", method.name


def matched(methods: Iterable[MethodRuns]) -> list[list[MethodRuns]]:
    """Finished methods that generate the same number of samples for the same federation."""
    groups: dict[tuple[object, ...], list[MethodRuns]] = {}
    for method in methods:
        if method.finished and method.total:
            groups.setdefault((*method.federation, method.total), []).append(method)
    return [group for group in groups.values() if len(group) > 1]


def marks_of(methods: Sequence[MethodRuns]) -> dict[str, str]:
    """Best and second by name at each matched budget, if paired differences show that they are."""
    found = [ranks({each.name: each.seeds.percents() for each in group}) for group in matched(methods)]
    return {name: {BEST: "best", SECOND: "second"}[rank] for each in found for name, rank in each.items()}
