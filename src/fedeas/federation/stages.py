"""A run in stages: each spends a part of the budget where the model of the stage before is weak.

Recall is measured on the images of ``data.held_out``, which no client has, in the clean protocol alone. Every stage is
a run of its own, which starts from the model of the stage before and keeps its images.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from fedeas.config import RunConfig, checked_config
from fedeas.core.errors import InputError
from fedeas.core.files import PathLike
from fedeas.core.limits import whole
from fedeas.core.spec import MAX_LENGTH, MAX_NESTING
from fedeas.core.tensor_files import write_tensors
from fedeas.federation.pretraining import evaluate, last_model, seen_in_run
from fedeas.federation.run import Progress, execute
from fedeas.federation.split import held_out, load_data, split_data
from fedeas.planning.counts import LabelCounts
from fedeas.planning.policies import Feedback, Policy, Pool, parse_policy
from fedeas.planning.policies.base import spread_evenly
from fedeas.planning.policies.feedback import NOTHING, as_text
from fedeas.planning.policies.targets import Target
from fedeas.planning.request import target_of
from fedeas.runs.store import Run, RunStore

SEEDS_APART = 10_000
"""Between the seeds of two stages, so that each has its own clients and batches."""


def execute_in_stages(
    config: RunConfig,
    store: RunStore,
    stages: int,
    *,
    feedback: bool = True,
    on_round: Progress | None = None,
    bank: PathLike | None = None,
) -> list[Run]:
    """Run a config in stages of equally many rounds and return their runs; the last one has the final accuracy.

    The budget is the total of the config's policy, and the target is its target if it has one. Without `feedback` all
    stages spend the budget as Greedy, for comparison. `on_round` and `bank` are those of `execute`.
    """
    _check(config, stages)
    policy, counts = parse_policy(config.policy), split_data(config, load_data(config)).counts
    total = _budget(policy, counts, stages)
    plan: Policy = NOTHING
    runs: list[Run] = []
    for stage, budget in enumerate(spread_evenly(total, stages).tolist()):
        recall = as_text(recall_on_held_out(runs[-1])) if runs and feedback else ""
        plan = Feedback(budget, recall, plan, target_of(policy))
        runs.append(execute(_stage(config, stage, stages, plan, runs), store, on_round, bank))
    return runs


def most_stages(budget: int, classes: int, target: Target = "uniform") -> int:
    """How many stages the policy of the last one can name: it has the recalls of all of them."""
    longest = Feedback(budget, as_text([0.000123] * classes), target=target).spec
    return min(MAX_NESTING, MAX_LENGTH // len(f"{longest}, after="))


def recall_on_held_out(run: Run) -> list[float | None]:
    """The share of each class's held-out images that the final model of a run recognises."""
    config = run.config
    dataset = load_data(config)
    aside = held_out(config, dataset)
    assert aside is not None
    tested = evaluate(config, dataset, aside, last_model(run), torch.device("cpu"))
    recall: list[float | None] = tested["class_accuracy"]
    return recall


def _check(config: RunConfig, stages: int) -> None:
    if not (some := whole(1)).holds(stages):
        raise InputError(f"stages must be {some.words}, not {stages!r}")
    if not config.data.held_out:
        raise InputError(
            "feedback needs images that no client has; set data.held_out, such as 100, in the clean protocol"
        )
    if isinstance(parse_policy(config.policy), Pool):
        raise InputError(
            "policy pool has a budget of distinct images, and stages spend one of placed images; choose another policy"
        )
    if config.rounds.total % stages:
        raise InputError(f"rounds.total={config.rounds.total} is no multiple of {stages} stages; choose another number")


def _budget(policy: Policy, counts: LabelCounts, stages: int) -> int:
    """The number of images that all stages place together; refuse none, and stages that the last one cannot name."""
    total = policy.allocate(counts).total
    if not total:
        raise InputError(f"policy {policy} generates no images for these clients; choose one that does")
    most = most_stages(total, counts.num_classes, target_of(policy))
    if stages > most:
        raise InputError(f"{stages} stages with {counts.num_classes} classes are too many; choose at most {most}")
    return total


def _stage(config: RunConfig, stage: int, stages: int, plan: Policy, before: list[Run]) -> RunConfig:
    content: dict[str, Any] = config.model_dump()
    content["label"] = f"{config.label}-stage-{stage + 1}"
    content |= {"policy": plan.spec, "seed": config.seed + SEEDS_APART * stage}
    content["rounds"]["total"] = config.rounds.total // int(stages)
    if before:
        content["model"]["weights"] = str(_keep_model(before[-1]))
    return checked_config(content, f"stage {stage + 1}")


def _keep_model(run: Run) -> Path:
    """The final model of a run as a file beside its records, with the images that it has seen."""
    path, config = run.path / "model.safetensors", run.config
    if not path.exists():
        seen = seen_in_run(config, split_data(config, load_data(config)))
        write_tensors(path, last_model(run), {"fedeas": json.dumps({"seen": seen.record, "run": config.fingerprint})})
    return path
