"""Estimate the cost of runs before they start: images to generate, and minutes on the GPU that was measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas.config import RunConfig
from reproduction.studies import plan_of

TIMED = "diffusion"  # the generator whose speed was measured


@dataclass(frozen=True)
class Estimate:
    """The cost of some runs."""

    runs: int
    images: int  # different ones in the bank that they need
    minutes: float | None  # None if the engine that will run was not measured
    untimed: frozenset[str] = frozenset()  # algorithms and generators that were not measured: they add no minutes


def estimate(configs: Sequence[RunConfig]) -> Estimate:
    """The cost of these runs together, each on the engine of its config; each image is generated once."""
    images = _images(configs)
    total = sum(images.values())
    known, seconds = dict[RunConfig, float | None](), len(configs) * speeds()["start"]
    for config in configs:
        of_engine = speeds()["training"].get(config.engine.name, {}).get(config.engine.precision, {})
        if not of_engine:
            return Estimate(len(configs), total, None)
        known[config] = of_engine.get(config.model.stem, {}).get(_name(config.algorithm))
        seconds += config.rounds.total * speeds()["server"].get(_name(config.algorithm), 0.0)  # its own training
    seconds += sum(_trained(each) / speed for each, speed in known.items() if speed)
    made = [(_name(generator), number) for (generator, _), number in images.items() if number]
    seconds += sum(number / speeds()["generation"] for generator, number in made if generator == TIMED)
    untimed = {_name(each.algorithm) for each, speed in known.items() if speed is None}
    untimed |= {generator for generator, _ in made if generator != TIMED}
    return Estimate(len(configs), total, seconds / 60, frozenset(untimed))


def seconds_of_all(first_step: float, configs: Sequence[RunConfig]) -> float:
    """Seconds of training of these runs, from those of one step of the first run: all steps take equally long.

    All seeds count as seed 0, whose partition is known: it would take long to draw one for each.
    """
    plain = [config.model_copy(update={"seed": 0}) for config in configs]
    return first_step * sum(steps_of_a_round(config) * config.rounds.total for config in plain)


def steps_of_a_round(config: RunConfig) -> float:
    """Expected steps of all clients in a round."""
    if config.train.steps:
        return float(config.participants * config.train.steps)
    steps = config.train.epochs * np.ceil(_samples(config) / config.train.batch_size)
    return config.participants * float(steps.mean())


def _images(configs: Sequence[RunConfig]) -> dict[tuple[str, str], int]:
    """For each bank, the images that some run needs: runs share them, so each client and class counts once."""
    most: dict[tuple[str, str], NDArray[np.int64]] = {}
    for config in configs:
        key, made = (plan_of(config).made_by, config.data.dataset), plan_of(config).made
        before = most.get(key, np.zeros_like(made))
        wider = np.zeros((max(len(before), len(made)), made.shape[1]), dtype=np.int64)
        wider[: len(before)] = before
        wider[: len(made)] = np.maximum(wider[: len(made)], made)
        most[key] = wider
    return {bank: int(table.sum()) for bank, table in most.items()}


def _trained(config: RunConfig) -> float:
    """Expected number of images that the clients train on in all rounds, repetitions included."""
    if config.train.steps:
        return float(config.train.steps * config.train.batch_size * config.participants * config.rounds.total)
    return float(_samples(config).mean() * config.participants * config.train.epochs * config.rounds.total)


def _samples(config: RunConfig) -> NDArray[np.int64]:
    """Number of samples that each client trains on."""
    plan = plan_of(config)
    return plan.counts.sizes + plan.per_client


def _name(spec: str) -> str:
    return spec.partition("(")[0]


@cache
def speeds() -> dict[str, Any]:
    """Images per second and seconds to start, as measured by benchmarks/gpu_rounds.py and gpu_generators.py.

    Training is given by engine, precision, stem and algorithm. Seconds a round of a server's training are those of a
    run that is kept.
    """
    return dict(json.loads(resources.files(__package__).joinpath("speeds.json").read_text("utf-8")))
