"""Runs gathered by method: those that differ only in their seed, with what came of them."""

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
from fedeas.plotting.figures import Look, looks_of
from fedeas.runs.accuracy_curves import Course
from fedeas.runs.comparison import BEST, SECOND, Measured, Seeds, ranks
from fedeas.runs.store import Record, Run

# A path says more about whose machine it was than about the run.
NOT_SHOWN = ("seed", "label", "data.root")


@dataclass(frozen=True, eq=False)
class Recorded:
    """What a run directory holds at this moment."""

    run: Run
    rounds: list[Record]
    summary: Record | None
    planned: tuple[LabelCounts, Allocation] | None
    """Counts and plan, unless the counts stayed with the clients."""

    @property
    def finished(self) -> bool:
        """Whether there is a summary."""
        return self.summary is not None

    @property
    def progress(self) -> str:
        """How far it is, in words."""
        done, wanted = len(self.rounds), self.run.config.rounds.total
        return f"finished, {done:,} rounds" if self.finished else f"unfinished, {done:,} of {wanted:,} rounds"

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The config with sections joined to their keys by dots, without what sets no method apart."""
        flat = _flat(self.run.config.model_dump())
        return {key: value for key, value in flat.items() if key not in NOT_SHOWN}

    @property
    def course(self) -> Course:
        """Accuracy over the rounds that were evaluated."""
        return Course.of(self.rounds)


@dataclass(frozen=True, eq=False)
class Method:
    """Runs that differ only in their seed."""

    name: str
    runs: tuple[Recorded, ...]
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
        """The config, which all its runs share but for the seed."""
        return self.runs[0].run.config

    @property
    def total(self) -> int:
        """B; where each seed has a partition of its own, the mean over seeds."""
        if self.finished:
            return round(self.seeds.average("total") or 0)
        planned = self.runs[0].planned
        return planned[1].total if planned else 0

    @property
    def accuracy(self) -> Measured:
        """Accuracy in the window over the finished seeds, in percent."""
        return self.seeds.percent("accuracy")

    @property
    def federation(self) -> tuple[object, ...]:
        """Methods are comparable where this is the same: the data and who holds them."""
        data, content, partition = self.config.data, self.config.content, self.config.partition
        drawn = "" if partition.redraw else content.partition
        return content.data or data.dataset, data.protocol, data.held_out, partition, drawn

    @property
    def setting(self) -> str:
        """The same for methods that differ in nothing but what is generated."""
        return str(self.config.model_copy(update={"policy": NO_GENERATION}).method)


def methods_of(runs: Sequence[Recorded]) -> list[Method]:
    """Runs by method, in the order of samples and then of falling accuracy, each with a name and a look of its own."""
    groups: dict[str, dict[int, Recorded]] = {}
    for each in runs:
        config = each.run.config
        seeds = groups.setdefault(config.method, {})
        twin = seeds.setdefault(config.seed, each)
        if twin is not each:
            raise InputError(f"{each.run.path}: the same config and seed as {twin.run.path}; give one of them")
    methods = [Method("", tuple(seeds.values()), Look("")) for seeds in groups.values()]
    methods.sort(key=lambda method: (method.total, -method.accuracy.mean if method.finished else math.inf))
    looks = looks_of([method.config.policy.partition("(")[0] for method in methods])
    named = zip(methods, _names(methods), looks, strict=True)
    return [replace(method, name=name, look=look) for method, name, look in named]


def recorded(run: Run) -> Recorded:
    """What the run directory holds, refused if it is not whole or has no round yet."""
    run.check()
    summary = run.summary() if run.finished else None
    at_home = run.config.engine.name == "flower" and not run.has_allocation
    recorded = Recorded(run, run.rounds(), summary, None if at_home else run.allocation())
    if not recorded.rounds:
        raise InputError(f"{run.path}: no round is recorded yet; wait for the first or leave this run out")
    return recorded


def _names(methods: Sequence[Method]) -> list[str]:
    """Labels where they tell methods apart, else policy and algorithm, else these and whatever differs."""
    specs = [f"{method.config.policy} + {method.config.algorithm}" for method in methods]
    labels = [{each.run.config.label for each in method.runs} for method in methods]
    names = [label.pop() if len(label) == 1 else spec for label, spec in zip(labels, specs, strict=True)]
    names = [spec if names.count(name) > 1 else name for name, spec in zip(names, specs, strict=True)]
    return [name + _apart(method, methods, names) for name, method in zip(names, methods, strict=True)]


def _apart(method: Method, methods: Sequence[Method], names: Sequence[str]) -> str:
    """What sets the method apart from others of its name, if there are any."""
    mine = names[methods.index(method)]
    namesakes = [other for other, name in zip(methods, names, strict=True) if name == mine]
    keys = differing(namesakes) if len(namesakes) > 1 else []
    return "".join(f", {key}={values_of(method.runs, key)}" for key in keys)


def baseline(method: Method, methods: Sequence[Method]) -> Method | None:
    """The finished method without generation that is otherwise the same."""
    without = (each for each in methods if each.finished and not each.total)
    return next((each for each in without if each.setting == method.setting), None)


def reference(method: Method, methods: Sequence[Method]) -> Method:
    """The finished method with the same federation that others are compared with: FedEAS or, without it, the first."""
    comparable = [each for each in methods if each.finished and each.federation == method.federation]
    return next((each for each in comparable if each.config.policy.startswith("fedeas")), comparable[0])


def matched(methods: Iterable[Method]) -> list[list[Method]]:
    """Finished methods that generate the same number of samples for the same federation."""
    groups: dict[tuple[object, ...], list[Method]] = {}
    for method in methods:
        if method.finished and method.total:
            groups.setdefault((*method.federation, method.total), []).append(method)
    return [group for group in groups.values() if len(group) > 1]


def marks_of(methods: Sequence[Method]) -> dict[str, str]:
    """Best and second by name at each matched budget, where paired differences show them to be."""
    found = [ranks({each.name: each.seeds.percents() for each in group}) for group in matched(methods)]
    return {name: {BEST: "best", SECOND: "second"}[rank] for each in found for name, rank in each.items()}


def differing(methods: Sequence[Method]) -> list[str]:
    """Keys of the config whose values are not the same in all runs."""
    found = [each.settings for method in methods for each in method.runs]
    return [key for key in found[0] if any(each[key] != found[0][key] for each in found)]


def values_of(runs: Iterable[Recorded], key: str) -> str:
    """The different values of a setting, in words."""
    return joined(each.settings[key] for each in runs)


def _flat(section: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in section.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def joined(values: Iterable[object]) -> str:
    """The different ones of these values, in words."""
    texts = (value if isinstance(value, str) and value else json.dumps(value) for value in values)
    return ", ".join(dict.fromkeys({"null": "none", '""': "none"}.get(text, text) for text in texts))
