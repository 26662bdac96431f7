"""Run a federation from Python, as ``fedeas run`` does, or in stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedeas.config import RunConfig, checked_config, load_config
from fedeas.core.errors import InputError
from fedeas.core.files import PathLike
from fedeas.planning.plan import Plan
from fedeas.planning.policies.base import policy_name
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
        plan: take the policy of this plan, which must be for the clients of the run.
        runs: folder of run directories.
        bank: folder of synthetic images; ``.bank`` in `runs` by default.
        on_round: called with the record of each round.
        settings: values that replace those of the config; a section is joined to its key by two underscores, as in
            ``fedeas.run("digits.toml", policy="full-balance", train__lr=0.05)``. ``train={"lr": 0.05}`` is the same:
            what a dictionary leaves out stays as it is.
    """
    from fedeas.fast import backend_for
    from fedeas.federation.run import execute

    store = RunStore(runs)
    return execute(_chosen(config, plan, store, settings), store, on_round, bank, backend_for=backend_for)


def run_in_stages(
    config: RunConfig | Mapping[str, Any] | PathLike | None = None,
    /,
    *,
    stages: int,
    feedback: bool = True,
    plan: Plan | None = None,
    runs: PathLike = "runs",
    bank: PathLike | None = None,
    on_round: Callable[[Record], None] | None = None,
    **settings: Any,
) -> list[Run]:
    """Train a federation in stages, each a run; finished ones are not trained again.

    The stages have equally many rounds. Each spends a part of the budget where the model of the stage before is weak,
    and starts from that model. The budget is the total of the config's policy. ``data.held_out`` must be set: recall
    is measured on these images.

    Args:
        config: as for `run`.
        stages: how many; ``rounds.total`` must be a multiple of it.
        feedback: whether recall counts; without it all stages spend the budget as Greedy, for comparison.
        plan: as for `run`.
        runs: folder of run directories.
        bank: folder of synthetic images; ``.bank`` in `runs` by default.
        on_round: called with the record of each round of each stage.
        settings: as for `run`.

    Returns:
        The runs of all stages; the last one has the final accuracy.
    """
    from fedeas.federation.stages import execute_in_stages

    store = RunStore(runs)
    chosen = _chosen(config, plan, store, settings)
    return execute_in_stages(chosen, store, stages, feedback=feedback, on_round=on_round, bank=bank)


def _chosen(
    config: RunConfig | Mapping[str, Any] | PathLike | None,
    plan: Plan | None,
    store: RunStore,
    settings: Mapping[str, Any],
) -> RunConfig:
    """The config with the policy of the plan, the settings, and a network for this machine."""
    from fedeas.federation.model_choice import for_this_machine

    if plan is not None and "policy" in settings:
        raise InputError("give plan or policy, not both; a plan has its own policy")
    policy = {} if plan is None else {"policy": policy_name(plan.policy)}
    chosen = with_settings(_config(config), {**policy, **settings})
    if plan is not None:
        _check_same_clients(plan, chosen)
    return for_this_machine(chosen, store)


def _check_same_clients(plan: Plan, config: RunConfig) -> None:
    """Refuse a plan for others than the run's clients: the policy would give these other images than planned."""
    from fedeas.federation.split import split_of

    own = split_of(config, needs_indices=False).counts.n
    if not np.array_equal(own, plan.counts.n):
        planned, here = (f"{len(n):,} clients with {n.sum():,} samples" for n in (plan.counts.n, own))
        raise InputError(
            f"the plan is for other counts ({planned}) than the run's ({here}); plan for these, or give only its "
            f"policy: policy={policy_name(plan.policy)!r}"
        )


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


def _config(config: RunConfig | Mapping[str, Any] | PathLike | None) -> RunConfig:
    if isinstance(config, RunConfig):
        return config
    if isinstance(config, Mapping):
        return checked_config(config)
    return load_config(None if config is None else Path(config))
