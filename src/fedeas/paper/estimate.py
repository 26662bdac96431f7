"""What runs will take, before any of them starts: images to generate, and minutes on the GPU that was measured."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from fedeas.arrays import IntArray
from fedeas.config import RunConfig
from fedeas.generators.registry import HeldOut, Shared, parse_generator
from fedeas.paper.plans import counts_of, plan_of

TIMED = "diffusion"  # the generator whose speed was measured


@dataclass(frozen=True)
class Estimate:
    """Runs, the different images that they draw from the bank, and minutes; None where nothing was measured."""

    runs: int
    images: int
    minutes: float | None


def estimate(configs: Sequence[RunConfig]) -> Estimate:
    """What these runs take together, each image generated once; what was not timed takes no minutes."""
    images = {bank: int(table.sum()) for bank, table in _most_of_each_class(configs).items()}
    if any(config.engine.precision != "bf16" for config in configs):  # not the protocol that was timed
        return Estimate(len(configs), sum(images.values()), None)
    speeds = _speeds()
    seconds = sum(speeds["start"] + _training_seconds(config) for config in configs)
    seconds += sum(
        number / speeds["generation"] for (generator, _), number in images.items() if _name(generator) == TIMED
    )
    return Estimate(len(configs), sum(images.values()), seconds / 60)


def measured_on() -> str:
    """The GPU whose speeds are used."""
    return str(_speeds()["machine"])


def _most_of_each_class(configs: Iterable[RunConfig]) -> dict[tuple[str, str], IntArray]:
    """For each bank, how many images of each client and class any of the runs asks for: all draw on the same ones."""
    most: dict[tuple[str, str], IntArray] = {}
    for config in configs:
        generator, plan = _made(config.generator, plan_of(config).n)
        key = generator, config.data.dataset
        before = most.get(key, np.zeros_like(plan))
        wider = np.zeros((max(len(before), len(plan)), plan.shape[1]), dtype=np.int64)
        wider[: len(before)] = before
        wider[: len(plan)] = np.maximum(wider[: len(plan)], plan)
        most[key] = wider
    return most


def _made(generator: str, plan: IntArray) -> tuple[str, IntArray]:
    """Which generator makes images for a plan, and how many of each client and class: a pool makes one client's."""
    source = parse_generator(generator)
    if isinstance(source, Shared):
        return source.of.spec, plan.max(axis=0, keepdims=True)
    return generator, np.zeros_like(plan) if isinstance(source, HeldOut) else plan


def _trained(config: RunConfig) -> float:
    """Images that the clients train on in all rounds, those chosen more than once counted as often, on average."""
    counts = counts_of(config)
    samples = counts.total + plan_of(config).total
    if config.train.steps:
        return float(config.train.steps * config.train.batch_size * config.participants * config.rounds.total)
    return samples * config.participants / counts.num_clients * config.train.epochs * config.rounds.total


def _training_seconds(config: RunConfig) -> float:
    """Nothing for algorithms whose speed was not measured."""
    speed = _speeds()["training"].get(_name(config.algorithm))
    return _trained(config) / speed if speed else 0.0


def _name(spec: str) -> str:
    return spec.partition("(")[0]


@cache
def _speeds() -> dict[str, Any]:
    """Images a second and seconds to start, as benchmarks/gpu_rounds.py and gpu_generators.py found them."""
    return dict(json.loads(resources.files(__package__).joinpath("speeds.json").read_text("utf-8")))
