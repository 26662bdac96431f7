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
from fedeas.config import PartitionConfig, RunConfig
from fedeas.counts import LabelCounts
from fedeas.data import partition as schemes
from fedeas.data.known import known_dataset
from fedeas.paper.published import published
from fedeas.policies import parse_policy


@dataclass(frozen=True)
class Estimate:
    """Runs, the different images that they draw from the bank, and minutes; None where nothing was measured."""

    runs: int
    images: int
    minutes: float | None


def estimate(configs: Sequence[RunConfig]) -> Estimate:
    """What these runs take together, each image generated once."""
    images = sum(int(table.sum()) for table in _most_of_each_class(configs).values())
    if any(config.engine.precision != "bf16" for config in configs):  # not the protocol that was timed
        return Estimate(len(configs), images, None)
    speeds = _speeds()
    seconds = sum(speeds["start"] + _trained(config) / _speed(config.algorithm) for config in configs)
    return Estimate(len(configs), images, (seconds + images / speeds["generation"]) / 60)


def measured_on() -> str:
    """The GPU whose speeds are used."""
    return str(_speeds()["machine"])


def _most_of_each_class(configs: Iterable[RunConfig]) -> dict[tuple[str, str], IntArray]:
    """For each bank, how many images of each client and class any of the runs asks for: all draw on the same ones."""
    most: dict[tuple[str, str], IntArray] = {}
    for config in configs:
        key, plan = (config.generator, config.data.dataset), _plan(config)
        before = most.get(key, np.zeros_like(plan))
        wider = np.zeros((max(len(before), len(plan)), plan.shape[1]), dtype=np.int64)
        wider[: len(before)] = before
        wider[: len(plan)] = np.maximum(wider[: len(plan)], plan)
        most[key] = wider
    return most


def _plan(config: RunConfig) -> IntArray:
    return parse_policy(config.policy).allocate(_counts(config.data.dataset, config.partition)).n


def _trained(config: RunConfig) -> float:
    """Images that the clients train on in all rounds, those chosen more than once counted as often, on average."""
    counts = _counts(config.data.dataset, config.partition)
    samples = counts.total + int(_plan(config).sum())
    return samples * config.participants / counts.num_clients * config.train.epochs * config.rounds.total


@cache
def _counts(dataset: str, partition: PartitionConfig) -> LabelCounts:
    """Label counts without the data: they depend on the sizes of the classes alone."""
    if partition.scheme == "paper":
        here = dataset, partition.clients, partition.alpha
        for known in published().settings:
            if here == (known.dataset, known.clients, float(known.alpha)):
                return known.counts()
        return schemes.paper_replay(dataset, partition.clients, partition.alpha, partition.seed).counts
    labels, this = known_dataset(dataset).labels(merged=False), partition
    return schemes.dirichlet(labels, this.clients, this.alpha, seed=this.seed, min_size=this.min_size).counts


def _speed(algorithm: str) -> float:
    return float(_speeds()["training"][algorithm.partition("(")[0]])


@cache
def _speeds() -> dict[str, Any]:
    """Images a second and seconds to start, as benchmarks/gpu_rounds.py and gpu_generators.py found them."""
    return dict(json.loads(resources.files(__package__).joinpath("speeds.json").read_text("utf-8")))
