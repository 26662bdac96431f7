"""Group runs by method: runs that differ only in their seed, with their results."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fedeas.config import NO_GENERATION
from fedeas.errors import InputError
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.plotting.figures import INK, Look, looks_of
from fedeas.runs.accuracy_curves import AccuracyCurve
from fedeas.runs.comparison import BEST, SECOND, Measured, Seeds, ranks
from fedeas.runs.store import Record, Run

# A path tells about the user's machine, not about the run.
NOT_SHOWN = ("seed", "label", "data.root")


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
    def settings(self) -> dict[str, Any]:
        """The config with keys such as ``train.lr``, without keys that do not define a method."""
        return {key: value for key, value in self.run.config.flat.items() if key not in NOT_SHOWN}


@dataclass(frozen=True, eq=False)
class MethodRuns:
    """Runs that differ only in their seed."""

    name: str
    runs: tuple[RunSnapshot, ...]
    look: Look

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
        data, content, partition = self.config.data, self.config.content, self.config.partition
        drawn = "" if partition.redraw else content.partition
        return content.data or data.dataset, data.protocol, data.held_out, partition, drawn

    @property
    def setting(self) -> str:
        """Equal for methods that differ only in their policy."""
        return str(self.config.model_copy(update={"policy": NO_GENERATION}).method)


def methods_of(runs: Sequence[RunSnapshot]) -> list[MethodRuns]:
    """Group runs by method, ordered by samples and then by falling accuracy, each with its own name and look."""
    groups: dict[str, dict[int, RunSnapshot]] = {}
    for each in runs:
        config = each.run.config
        seeds = groups.setdefault(config.method, {})
        twin = seeds.setdefault(config.seed, each)
        if twin is not each:
            raise InputError(f"{each.run.path}: the same config and seed as {twin.run.path}; give one of them")
    methods = [MethodRuns("", tuple(seeds.values()), Look("")) for seeds in groups.values()]
    methods.sort(key=lambda method: (method.total, -method.accuracy.mean if method.finished else math.inf))
    looks = map(_on_page, looks_of([method.config.policy.partition("(")[0] for method in methods]))
    named = zip(methods, _names(methods), looks, strict=True)
    return [replace(method, name=name, look=look) for method, name, look in named]


def _on_page(look: Look) -> Look:
    """The same look with the page's own colour of text, which a dark screen inverts, for black."""
    return look._replace(colour="var(--ink)") if look.colour == INK else look


def read_snapshot(run: Run) -> RunSnapshot:
    """Read a run directory; refuse one that is incomplete or has no round yet."""
    run.check()
    summary = run.summary() if run.finished else None
    has_none = not run.has_allocation and (run.is_kept or run.config.engine.name == "flower")
    snapshot = RunSnapshot(run, run.rounds(), summary, None if has_none else run.allocation())
    if not snapshot.rounds:
        raise InputError(f"{run.path}: no round is recorded yet; wait for the first or leave this run out")
    return snapshot


def _names(methods: Sequence[MethodRuns]) -> list[str]:
    """Names of methods: their labels if these differ, else policy and algorithm, and if needed the differing keys."""
    specs = [f"{method.config.policy} + {method.config.algorithm}" for method in methods]
    labels = [{each.run.config.label for each in method.runs} for method in methods]
    names = [label.pop() if len(label) == 1 else spec for label, spec in zip(labels, specs, strict=True)]
    names = [spec if names.count(name) > 1 else name for name, spec in zip(names, specs, strict=True)]
    return [name + _apart(method, methods, names) for name, method in zip(names, methods, strict=True)]


def _apart(method: MethodRuns, methods: Sequence[MethodRuns], names: Sequence[str]) -> str:
    """The keys in which the method differs from others with the same name."""
    mine = names[methods.index(method)]
    namesakes = [other for other, name in zip(methods, names, strict=True) if name == mine]
    keys = differing(namesakes) if len(namesakes) > 1 else []
    return "".join(f", {key}={values_of(method.runs, key)}" for key in keys)


def baseline(method: MethodRuns, methods: Sequence[MethodRuns]) -> MethodRuns | None:
    """The finished method without generation that is otherwise the same."""
    without = (each for each in methods if each.finished and not each.total)
    return next((each for each in without if each.setting == method.setting), None)


def reference(method: MethodRuns, methods: Sequence[MethodRuns]) -> MethodRuns:
    """The finished method on the same federation that others are compared with: FedEAS, or else the first."""
    comparable = [each for each in methods if each.finished and each.federation == method.federation]
    return next((each for each in comparable if each.config.policy.startswith("fedeas")), comparable[0])


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


def differing(methods: Sequence[MethodRuns]) -> list[str]:
    """Keys of the config whose values are not the same in all runs."""
    found = [each.settings for method in methods for each in method.runs]
    return [key for key in found[0] if any(each[key] != found[0][key] for each in found)]


def values_of(runs: Iterable[RunSnapshot], key: str) -> str:
    """The distinct values of a setting, as text."""
    return joined(each.settings[key] for each in runs)


def joined(values: Iterable[object]) -> str:
    """The distinct values, as text."""
    texts = (value if isinstance(value, str) and value else json.dumps(value) for value in values)
    return ", ".join(dict.fromkeys({"null": "none", '""': "none"}.get(text, text) for text in texts))
