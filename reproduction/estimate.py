"""Estimate the cost of runs before they start: images to generate, and minutes on the GPU that was measured."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from operator import mul
from typing import TYPE_CHECKING, Any

import numpy as np

from fedeas.config import RunConfig
from fedeas.core.arrays import IntArray
from fedeas.generators.kinds import HeldOut, Shared
from fedeas.generators.pools import distinct_in_pool
from fedeas.generators.registry import parse_generator
from reproduction.run_plans import allocation_of, counts_of

if TYPE_CHECKING:
    from fedeas.federation.forecast import Forecast

TIMED = "diffusion"  # the generator whose speed was measured


@dataclass(frozen=True)
class Estimate:
    """The cost of some runs.

    Attributes:
        images: number of different images in the bank that they need.
        minutes: None if the engine that will run was not measured.
        untimed: algorithms and generators that were not measured: they add no minutes.
    """

    runs: int
    images: int
    minutes: float | None
    untimed: frozenset[str] = frozenset()


def estimate(configs: Sequence[RunConfig]) -> Estimate:
    """The cost of these runs together, each on the engine of its config; each image is generated once."""
    images = {bank: int(table.sum()) for bank, table in _most_of_each_class(configs).items()}
    total, speeds = sum(images.values()), _speeds()
    if any(not _by_stem(config) for config in configs):
        return Estimate(len(configs), total, None)
    known = {config: _speed(config) for config in configs}
    seconds = len(configs) * speeds["start"] + sum(map(_at_server, configs))
    seconds += sum(_trained(each) / speed for each, speed in known.items() if speed)
    made = [(_name(generator), number) for (generator, _), number in images.items() if number]
    seconds += sum(number / speeds["generation"] for generator, number in made if generator == TIMED)
    untimed = {_name(each.algorithm) for each, speed in known.items() if speed is None}
    untimed |= {generator for generator, _ in made if generator != TIMED}
    return Estimate(len(configs), total, seconds / 60, frozenset(untimed))


def forecast_of_all(first: Forecast, configs: Sequence[RunConfig]) -> Forecast:
    """The forecast of these runs, from that of the first one: all steps take equally long.

    All seeds count as seed 0, whose partition is known: it would take long to draw one for each.
    """
    from fedeas.federation.forecast import steps_of_a_round

    plain = [config.model_copy(update={"seed": 0}) for config in configs]
    steps = [steps_of_a_round(config, _samples(config)) for config in plain]
    rounds = [config.rounds.total for config in plain]
    step = first.seconds / max(1, first.rounds) / steps[0]
    seconds = step * sum(map(mul, steps, rounds))
    return first._replace(seconds=seconds, rounds=sum(rounds), images=estimate(plain).images)


def seconds_to_make(images: int) -> float:
    """Seconds to generate so many images of CIFAR-10 with the diffusion model on the GPU that was measured."""
    return images / float(_speeds()["generation"])


def measured_on() -> str:
    """The GPU whose speeds are used."""
    return str(_speeds()["machine"])


def _most_of_each_class(configs: Iterable[RunConfig]) -> dict[tuple[str, str], IntArray]:
    """For each bank, the most images of each client and class that any run needs: runs share images."""
    most: dict[tuple[str, str], IntArray] = {}
    for config in configs:
        generator, plan = _made(config.generator, allocation_of(config).n)
        key = generator, config.data.dataset
        before = most.get(key, np.zeros_like(plan))
        wider = np.zeros((max(len(before), len(plan)), plan.shape[1]), dtype=np.int64)
        wider[: len(before)] = before
        wider[: len(plan)] = np.maximum(wider[: len(plan)], plan)
        most[key] = wider
    return most


def _made(generator: str, plan: IntArray) -> tuple[str, IntArray]:
    """The generator for a plan, and its images of each client and class; a shared pool needs one client's images."""
    source = parse_generator(generator)
    if isinstance(source, Shared):
        return source.of.spec, distinct_in_pool(plan, source.each)[None]
    return generator, np.zeros_like(plan) if isinstance(source, HeldOut) else plan


def _trained(config: RunConfig) -> float:
    """Expected number of images that the clients train on in all rounds, repetitions included."""
    if config.train.steps:
        return float(config.train.steps * config.train.batch_size * config.participants * config.rounds.total)
    return float(_samples(config).mean() * config.participants * config.train.epochs * config.rounds.total)


def _samples(config: RunConfig) -> IntArray:
    """Number of samples that each client trains on."""
    return counts_of(config).sizes + allocation_of(config).per_client


def _at_server(config: RunConfig) -> float:
    """Seconds of the server's own training in all rounds; only FedGen has one that matters."""
    return float(config.rounds.total * _speeds()["server"].get(_name(config.algorithm), 0.0))


def _by_stem(config: RunConfig) -> dict[str, dict[str, float]]:
    """Images a second by stem and algorithm on the run's engine, in its precision; empty if nothing was measured."""
    return dict(_speeds()["training"].get(config.engine.name, {}).get(config.engine.precision, {}))


def _speed(config: RunConfig) -> float | None:
    """Images a second of the run's algorithm, with its stem; None if it was not measured."""
    return _by_stem(config).get(config.model.stem, {}).get(_name(config.algorithm))


def _name(spec: str) -> str:
    return spec.partition("(")[0]


@cache
def _speeds() -> dict[str, Any]:
    """Images per second and seconds to start, as measured by benchmarks/gpu_rounds.py and gpu_generators.py.

    Training is given by engine, precision, stem and algorithm. Seconds a round of a server's training are those of a
    run that is kept.
    """
    return dict(json.loads(resources.files(__package__).joinpath("speeds.json").read_text("utf-8")))
