"""Run a federation from Python, as ``fedeas run`` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedeas.config import RunConfig, checked_config, load_config
from fedeas.core.files import PathLike
from fedeas.errors import InputError
from fedeas.planning.plan import Plan
from fedeas.runs.store import Record, Run, RunStore


def run(
    config: RunConfig | Mapping[str, Any] | PathLike | None = None,
    /,
    *,
    plan: Plan | None = None,
    runs: PathLike = "runs",
    bank: PathLike | None = None,
    on_round: Callable[[Record], None] | None = None,
    **settings: Any,
) -> Run:
    """Train a federation; a finished run is returned at once, an interrupted one resumes.

    Args:
        config: a TOML file, a dictionary with its content, a `RunConfig`, or nothing for the defaults.
        plan: take the policy of this plan.
        runs: folder of run directories.
        bank: folder of synthetic images; ``.bank`` in `runs` by default.
        on_round: called with the record of each round.
        settings: values that replace those of the config; a section is joined to its key by two underscores, as in
            ``fedeas.run("digits.toml", policy="full-balance", train__lr=0.05)``.
    """
    from fedeas.federation.model_choice import for_this_machine
    from fedeas.federation.run import execute

    policy = {} if plan is None else {"policy": plan.policy.spec}
    chosen = with_settings(_config(config), {**policy, **settings})
    store = RunStore(runs)
    return execute(for_this_machine(chosen, store), store, on_round, bank)


def with_settings(config: RunConfig, settings: Mapping[str, Any]) -> RunConfig:
    """The config with some values replaced.

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
        place[key] = value
    return checked_config(content, "the settings") if settings else config


def _config(config: RunConfig | Mapping[str, Any] | PathLike | None) -> RunConfig:
    if isinstance(config, RunConfig):
        return config
    if isinstance(config, Mapping):
        return checked_config(config)
    return load_config(None if config is None else Path(config))
