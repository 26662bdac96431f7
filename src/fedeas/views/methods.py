"""Group runs by method: runs that differ only in their seed, with their results as a whole, by class and by client."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas.config.run import NO_GENERATION
from fedeas.core.errors import InputError
from fedeas.data.names import KNOWN
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.runs.accuracy_curves import AccuracyCurve
from fedeas.runs.comparison import Measured, Seeds
from fedeas.runs.methods import Settings, defines_method, federation_of, grouped, named, settings_of
from fedeas.runs.store import Record, Run
from fedeas.views.figures import INK, PAGE, Look, Screen, looks_of

Accuracies = NDArray[np.float64]


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
        words = f"finished, {done:,} rounds" if self.finished else f"unfinished, {done:,} of {wanted:,} rounds"
        return f"{words}{self.run.unverified}"

    @cached_property
    def curve(self) -> AccuracyCurve:
        """Accuracy over the rounds so far."""
        return AccuracyCurve.of(self.rounds)

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

    @property
    def drawn(self) -> list[RunSnapshot]:
        """The runs that were evaluated, so that they have a curve."""
        return [each for each in self.runs if each.curve.rounds]

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


def grouped_by_method(
    runs: Iterable[RunSnapshot], wanted: str | None = None, screen: Screen = PAGE
) -> list[MethodRuns]:
    """Group runs by method, ordered by samples and then by falling accuracy, each with its own name and look.

    `wanted` is the name or label of the method that others are compared with.
    """
    groups = grouped(runs, lambda each: each.run.config)
    methods = [MethodRuns(name, tuple(members), Look("")) for name, members in groups.items()]
    methods.sort(key=lambda method: (method.total, -method.accuracy.mean if method.finished else math.inf))
    looks = looks_of([method.config.policy.partition("(")[0] for method in methods])
    # For black the page has its own colour of text, which a dark screen inverts.
    looks = [look._replace(colour=screen.ink) if look.colour == INK else look for look in looks]
    labels = {each.name: {run.run.config.label for run in each.runs} for each in methods if each.finished}
    name = None if wanted is None else named(wanted, labels)
    return [replace(each, look=look, is_chosen=each.name == name) for each, look in zip(methods, looks, strict=True)]


def read_snapshot(run: Run) -> RunSnapshot:
    """Read a run directory; refuse one that is incomplete or has no round yet."""
    run.check()
    summary = run.summary() if run.finished else None
    has_none = not run.has_allocation and (run.is_kept or run.config.engine.name == "flower")
    snapshot = RunSnapshot(run, run.rounds(), summary, None if has_none else run.allocation())
    if not snapshot.rounds:
        raise InputError(f"{run.path}: no round is recorded yet; wait for the first or leave this run out")
    return snapshot


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

    def precedence(candidate: MethodRuns) -> tuple[object, ...]:
        settings = candidate.runs[0].settings
        keys = [key for key in settings if key != "policy" and defines_method(key)]
        unlikeness = sum(each.runs[0].settings[key] != settings[key] for each in comparable for key in keys)
        own_parts = sum(str(value).startswith("python:") for value in settings.values())
        return unlikeness, candidate.total, own_parts, candidate.config.algorithm != "fedavg", candidate.name

    return min(chosen or fedeas or [each for each in comparable if each.total == fewest], key=precedence)


def matched(methods: Iterable[MethodRuns]) -> list[list[MethodRuns]]:
    """Finished methods that generate the same number of samples for the same federation."""
    groups: dict[tuple[object, ...], list[MethodRuns]] = {}
    for method in methods:
        if method.finished and method.total:
            groups.setdefault((*method.federation, method.total), []).append(method)
    return [group for group in groups.values() if len(group) > 1]


class Breakdown(NamedTuple):
    """Accuracies of a method's finished seeds, in percent: seeds x classes, and of each seed its clients, worst first.

    Runs record the accuracy of each class on the server's test set. A client's accuracy is the mean of these, weighted
    by the client's own mix of classes: what the global model reaches on test images in the proportions that the client
    holds. A class without test images is not a number; `clients` is empty if the label counts are not known.
    """

    method: MethodRuns
    names: tuple[str, ...]
    classes: Accuracies
    clients: list[Accuracies]

    @classmethod
    def of(cls, method: MethodRuns) -> Breakdown | None:
        """The accuracies of a method, over the rounds that its accuracy covers; None if no finished run has any."""
        tables: dict[RunSnapshot, Accuracies] = {}
        clients: list[Accuracies] = []
        for run in method.runs:
            first, last = run.summary["window"] if run.summary is not None else (1, 0)
            records = [record for record in run.rounds if first <= record["round"] <= last]
            tested = [record["class_accuracy"] for record in records if record.get("class_accuracy") is not None]
            if not tested:
                continue
            found = 100 * np.array(tested, dtype=float).mean(axis=0)
            if run.planned is not None:
                counts, _ = run.planned
                missing = max(counts.num_classes - len(found), 0)  # records may end with the last tested class
                found = np.pad(found, (0, missing), constant_values=np.nan)
                clients.append(client_accuracy(counts, found))
            tables[run] = found
        if not tables:
            return None
        classes = np.array([*tables.values()])
        return cls(method, tuple(class_names(tables, classes.shape[1])), classes, clients)

    @property
    def mean_classes(self) -> Accuracies:
        """Mean over seeds of the accuracy of each class."""
        return np.asarray(self.classes.mean(axis=0))

    @property
    def mean_clients(self) -> Accuracies:
        """Mean over seeds of the worst client, the second worst, and so on.

        Seeds with another number of clients than the first are left out.
        """
        alike = [each for each in self.clients if len(each) == len(self.clients[0])]
        return np.asarray(np.mean(alike, axis=0))

    @property
    def fairness(self) -> list[Measured | None]:
        """The worst tenth of the clients, all of them, and the best tenth: means over clients, and then over seeds."""
        tenths = [-(-len(each) // 10) for each in self.clients]
        parts = [(each[:tenth], each, each[-tenth:]) for each, tenth in zip(self.clients, tenths, strict=True)]
        return [Measured.of([float(each[which].mean()) for each in parts]) for which in range(3)]


def client_accuracy(counts: LabelCounts, classes: Accuracies) -> Accuracies:
    """Accuracy on each client's own mix of classes, worst first; clients without a tested class are left out.

    >>> client_accuracy(LabelCounts([[8, 2], [0, 5]]), np.array([0.5, 1.0])).tolist()
    [0.6, 1.0]
    """
    tested = np.where(np.isnan(classes), 0, counts.n)
    held = tested.sum(axis=1)
    right = tested @ np.nan_to_num(classes)
    return np.sort(right[held > 0] / held[held > 0])


def class_names(runs: Iterable[RunSnapshot], num_classes: int) -> list[str]:
    """Names of the classes: those of the label counts or of the dataset, if all runs agree on them, else numbers."""
    found: set[tuple[str, ...]] = set()
    for each in runs:
        dataset = each.run.config.data.dataset
        given = each.planned[0].classes if each.planned is not None else None
        found.add(tuple(given or (KNOWN[dataset].classes if dataset in KNOWN else ())))
    names = found.pop() if len(found) == 1 else ()
    return list(names) if len(names) == num_classes else [str(label) for label in range(num_classes)]
