"""Run a federation from Python, as ``fedeas run`` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedeas.config.reading import checked_config, load_config
from fedeas.config.run import RunConfig
from fedeas.core.deadline import Deadline
from fedeas.core.errors import InputError
from fedeas.core.files import PathLike
from fedeas.planning.plan import Plan
from fedeas.planning.policies.base import policy_name
from fedeas.runs.store import Record, Run, RunStore

if TYPE_CHECKING:
    from fedeas.federation.forecast import Forecast


def run(
    config: RunConfig | Mapping[str, Any] | PathLike | None = None,
    /,
    *,
    plan: Plan | None = None,
    runs: PathLike = "runs",
    bank: PathLike | None = None,
    minutes: float | None = None,
    strict: bool = False,
    on_round: Callable[[Record], None] | None = None,
    on_start: Callable[[Forecast], None] | None = None,
    **settings: Any,
) -> Run:
    """Train a federation; a finished run is returned at once, an interrupted one resumes.

    Args:
        config: a TOML file, a dictionary with its content, a `RunConfig`, or nothing for the defaults.
        plan: take the policy of this plan, which must be for the clients of the run.
        runs: folder of run directories.
        bank: folder of synthetic images; ``.bank`` in `runs` by default.
        minutes: pause when the next round would end later; the same call resumes.
        strict: refuse a generator that was made from images of which there is no record.
        on_round: called with the record of each round.
        on_start: called before training with its estimated `seconds` and `rounds`, and with the number of `images`.
        settings: values that replace those of the config; a section is joined to its key by two underscores, as in
            ``fedeas.run("digits.toml", policy="full-balance", train__lr=0.05)``. ``train={"lr": 0.05}`` is the same:
            what a dictionary leaves out stays as it is.
    """
    from fedeas.fast import backend_for
    from fedeas.federation.parts import refuse_unknown_ancestors
    from fedeas.federation.run import execute, for_this_machine
    from fedeas.federation.split import split_of

    store, chosen = RunStore(runs), config_from(config)
    if plan is not None:
        if "policy" in settings:
            raise InputError("give plan or policy, not both; a plan has its own policy")
        settings["policy"] = policy_name(plan.policy)
    chosen = with_settings(chosen, settings)
    if plan is not None:  # for others than the run's clients, the policy would give other images than planned
        own = split_of(chosen, needs_indices=False).counts.n
        if not np.array_equal(own, plan.counts.n):
            planned, here = (f"{len(n):,} clients with {n.sum():,} samples" for n in (plan.counts.n, own))
            raise InputError(
                f"the plan is for other counts ({planned}) than the run's ({here}); plan for these, or give only its "
                f"policy: policy={settings['policy']!r}"
            )
    pause = None if minutes is None else Deadline(minutes)
    chosen = for_this_machine(chosen, store)
    if strict:
        refuse_unknown_ancestors(chosen)
    return execute(chosen, store, on_round, bank, pause=pause, on_start=on_start, backend_for=backend_for)


def with_settings(config: RunConfig, settings: Mapping[str, Any]) -> RunConfig:
    """The config with some values replaced; a dictionary replaces only the keys of its section that it has.

    >>> with_settings(RunConfig(), {"train__lr": 0.5, "seed": 3}).train.lr
    0.5
    """
    content = config.model_dump()
    for name, value in settings.items():
        *sections, key = name.split("__")
        place = content
        for section in sections:
            if not isinstance(place.get(section), dict):
                raise InputError(f"setting {name}: no section {section!r}; write it as in train__lr=0.05")
            place = place[section]
        before: Any = place.get(key)
        merges = isinstance(before, dict) and isinstance(value, Mapping)
        place[key] = {**before, **value} if merges else value
    return checked_config(content, "the settings") if settings else config


def config_from(config: RunConfig | Mapping[str, Any] | PathLike | None) -> RunConfig:
    """The config that a user gives: itself, its content, its file, or nothing for the defaults."""
    if isinstance(config, RunConfig):
        return config
    if isinstance(config, Mapping):
        return checked_config(config)
    return load_config(None if config is None else Path(config))
