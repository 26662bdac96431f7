"""Methods: runs that differ only in their seed. What they are called, how they differ, and which can be compared."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from fedeas.config.run import RunConfig
from fedeas.core.errors import InputError

# A path tells about the user's machine, not about the run.
NOT_SHOWN = ("seed", "label", "data.root")
DIGESTS = "content."  # the section of a config whose values are digests
DIGITS = 8  # of a digest in a name, as in the names of run directories

T = TypeVar("T")
Settings = dict[str, Any]
"""A config with keys such as ``train.lr``, without those that do not define a method."""


def settings_of(config: RunConfig) -> Settings:
    """The settings of a config."""
    return {key: value for key, value in config.flat.items() if key not in NOT_SHOWN}


def defines_method(key: str) -> bool:
    """Whether methods can differ in this setting; seeds of one method may use different engines.

    >>> defines_method("train.lr"), defines_method("engine.name"), defines_method("engine.precision")
    (True, False, True)
    """
    return not key.startswith("engine.") or key == "engine.precision"


def grouped(runs: Iterable[T], config_of: Callable[[T], RunConfig]) -> dict[str, list[T]]:
    """Group runs by method, under the method's name; no group has two runs of one seed.

    A label does not change a result, so that one config may have run under two labels. Each label is then a group of
    its own, and so is a copy of a run directory: a mean over seeds would count that seed twice.
    """
    methods: dict[str, list[T]] = {}
    for run in runs:
        methods.setdefault(config_of(run).method, []).append(run)
    groups: list[list[T]] = []
    for members in methods.values():
        are_copies = len({config_of(run).seed for run in members}) < len(members)
        seen: Counter[tuple[str, int]] = Counter()
        apart: dict[object, list[T]] = {}  # by label and the number of the copy
        for run in members:
            config = config_of(run)
            group = (config.label, seen[config.label, config.seed]) if are_copies else None
            apart.setdefault(group, []).append(run)
            seen[config.label, config.seed] += 1
        groups += apart.values()
    return dict(zip(names_of([[*map(config_of, group)] for group in groups]), groups, strict=True))


def names_of(methods: Sequence[Sequence[RunConfig]]) -> list[str]:
    """Names of methods, given the configs of their runs: no two are the same.

    A method's name is its label if no other has it, else policy and algorithm and, if needed, what differs.
    """
    specs = [f"{configs[0].policy} + {configs[0].algorithm}" for configs in methods]
    labels = [{config.label for config in configs} for configs in methods]
    names = [label.pop() if len(label) == 1 else spec for label, spec in zip(labels, specs, strict=True)]
    names = [spec if names.count(name) > 1 else name for name, spec in zip(names, specs, strict=True)]
    namesakes: dict[str, list[Sequence[RunConfig]]] = {}
    for name, configs in zip(names, methods, strict=True):
        namesakes.setdefault(name, []).append(configs)
    endings = {name: iter(_endings(same)) for name, same in namesakes.items()}
    return [name + next(endings[name]) for name in names]


def _endings(namesakes: Sequence[Sequence[RunConfig]]) -> list[str]:
    """What tells methods of one name apart, in their order; digests only if nothing else does.

    If one config ran several times, that is the label, and then the number of the copy.
    """
    if len(namesakes) == 1:
        return [""]
    settings = [[settings_of(config) for config in configs] for configs in namesakes]
    keys = [key for key in differing([*chain.from_iterable(settings)]) if defines_method(key)]
    for each in chain.from_iterable(settings):
        each |= {key: each[key][:DIGITS] for key in keys if key.startswith(DIGESTS)}
    for shown in ([key for key in keys if not key.startswith(DIGESTS)], keys):
        endings = [
            "".join(f", {key}={' and '.join(_distinct(each[key] for each in method))}" for key in shown)
            for method in settings
        ]
        if len({*endings}) == len(endings):
            return endings
    labels = [f", label={joined(config.label for config in configs)}" for configs in namesakes]
    full = [end + label * (endings.count(end) > 1) for end, label in zip(endings, labels, strict=True)]
    copies = [full[:place].count(end) + 1 for place, end in enumerate(full)]
    return [end + f", copy {copy}" * (copy > 1) for end, copy in zip(full, copies, strict=True)]


def named(wanted: str, labels: Mapping[str, Collection[str]]) -> str:
    """The name of the method that a user calls by its name or label, given the labels of each method."""
    found = [wanted] if wanted in labels else [name for name, own in labels.items() if wanted in own]
    if len(found) == 1:
        return found[0]
    problem = "several methods have this label" if found else "no finished run has this name or label"
    remedy = f"choose one of {', '.join(map(repr, found or labels))}" if labels else "wait for a run to finish"
    raise InputError(f"reference {wanted!r}: {problem}; {remedy}")


def federation_of(config: RunConfig) -> tuple[object, ...]:
    """The data and their split over clients; methods can be compared if these are equal."""
    data, content, partition = config.data, config.content, config.partition
    drawn = "" if partition.redraw else content.partition
    return content.data or data.dataset, data.protocol, data.held_out, partition, drawn


def differing(settings: Sequence[Settings]) -> list[str]:
    """Keys whose values are not the same in all settings."""
    return [key for key in settings[0] if any(each[key] != settings[0][key] for each in settings)]


def values_of(settings: Iterable[Settings], key: str) -> str:
    """The distinct values of a setting, as text."""
    return joined(each[key] for each in settings)


def joined(values: Iterable[object]) -> str:
    """The distinct values, as text.

    >>> joined(["cpu", None, "cpu", 3])
    'cpu, none, 3'
    """
    return ", ".join(_distinct(values))


def _distinct(values: Iterable[object]) -> list[str]:
    texts = (value if isinstance(value, str) and value else json.dumps(value) for value in values)
    return list(dict.fromkeys({"null": "none", '""': "none"}.get(text, text) for text in texts))
