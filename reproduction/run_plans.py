"""Label counts and allocations of runs, computed from the sizes of the classes without loading images."""

from __future__ import annotations

from functools import cache

import numpy as np

from fedeas.config import PartitionConfig, RunConfig
from fedeas.data.known import known_dataset
from fedeas.data.partition import PAPER_SEED
from fedeas.data.sources import load_dataset
from fedeas.federation.split import set_aside, split_as
from fedeas.generators.base import plan_addresses
from fedeas.generators.kinds import HeldOut, Shared
from fedeas.generators.pools import distinct_in_pool, taken_from_pool
from fedeas.generators.registry import parse_generator
from fedeas.generators.settings import GeneratorContext, GeneratorSettings
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies import parse_policy
from reproduction.published import published


def counts_of(config: RunConfig) -> LabelCounts:
    """Label counts of a run's clients, without loading images."""
    return _counts(config.data.dataset, config.drawn_partition, config.data.held_out)


def allocation_of(config: RunConfig) -> Allocation:
    """The run's allocation, computed from label counts without loading images."""
    return _plan(config.policy, config.data.dataset, config.drawn_partition, config.data.held_out)


def distinct_images(config: RunConfig) -> int:
    """How many different images the run's plan places."""
    source, plan, held_out = parse_generator(config.generator), allocation_of(config), config.data.held_out
    pool = source if isinstance(source, Shared) else None
    if isinstance(pool.of if pool else source, HeldOut):  # those that are asked for beyond their number repeat
        of_a_class = held_out // plan.n.shape[1]
        return _held_out_in_pool(plan, pool, of_a_class) if pool else _held_out_by_client(plan, source, of_a_class)
    return int(distinct_in_pool(plan.n, pool.each).sum()) if pool else plan.total


def _held_out_in_pool(plan: Allocation, pool: Shared, of_a_class: int) -> int:
    taken = taken_from_pool(plan.n, pool.each)
    return sum(np.unique(np.flatnonzero(column) % of_a_class).size for column in taken.T)


@cache
def _held_out_by_client(plan: Allocation, source: GeneratorSettings, of_a_class: int) -> int:
    """How many of the held-out images a plan uses: the generator gets their numbers in place of the images."""
    classes = plan.n.shape[1]
    numbers = np.arange(classes * of_a_class, dtype=np.uint32).view(np.uint8).reshape(-1, 1, 2, 2)
    aside = numbers, np.repeat(np.arange(classes), of_a_class)
    names = tuple(map(str, range(classes)))
    generator = source.ready(GeneratorContext("", *aside, names, held_out=aside, plan=plan.n))
    taken = [generator.sample(*plan_addresses(client, row)).reshape(-1, 4) for client, row in enumerate(plan.n)]
    return np.unique(np.concatenate(taken).view(np.uint32)).size


@cache
def _plan(policy: str, dataset: str, partition: PartitionConfig, held_out: int) -> Allocation:
    return parse_policy(policy).allocate(_counts(dataset, partition, held_out))


@cache
def _counts(dataset: str, partition: PartitionConfig, held_out: int) -> LabelCounts:
    if partition.scheme != "paper":
        # The official training part; digits have none and are split when they are loaded.
        labels = load_dataset(dataset).labels if dataset == "digits" else known_dataset(dataset).labels(merged=False)
        return split_as(labels[set_aside(labels, held_out)[0]] if held_out else labels, partition).counts
    here = dataset, partition.clients, partition.alpha, partition.seed
    for known in published().settings:
        if here == (known.dataset, known.clients, float(known.alpha), PAPER_SEED):
            return known.counts()  # the slowest partition takes most of a minute to draw
    return split_as(known_dataset(dataset).labels(merged=True), partition).counts
