"""Label counts and allocations of runs, computed from the sizes of the classes without loading images."""

from __future__ import annotations

from functools import cache

from fedeas.config import PartitionConfig, RunConfig
from fedeas.data.known import known_dataset
from fedeas.data.partition import PAPER_SEED
from fedeas.data.sources import load_dataset
from fedeas.federation.split import set_aside, split_as
from fedeas.paper.published import published
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies import parse_policy


def counts_of(config: RunConfig) -> LabelCounts:
    """Label counts of a run's clients, without loading images."""
    return _counts(config.data.dataset, config.drawn_partition, config.data.held_out)


def allocation_of(config: RunConfig) -> Allocation:
    """The run's allocation, computed from label counts without loading images."""
    return _plan(config.policy, config.data.dataset, config.drawn_partition, config.data.held_out)


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
