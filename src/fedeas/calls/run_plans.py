"""What a run will train on, from label counts alone: its clients, its plan and the images that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from fedeas.calls.running import config_from
from fedeas.config.run import UNSEEDED, RunConfig
from fedeas.config.sections import PartitionConfig
from fedeas.core.arrays import IntArray
from fedeas.core.files import PathLike
from fedeas.data.known import KNOWN
from fedeas.data.partition import PAPER_SEED
from fedeas.federation.split import Split, set_aside, split_as, split_of
from fedeas.generators.base import plan_addresses
from fedeas.generators.kinds import HeldOut, Shared
from fedeas.generators.pools import distinct_in_pool, taken_from_pool
from fedeas.generators.registry import parse_generator
from fedeas.generators.settings import GeneratorContext, GeneratorSettings
from fedeas.planning.counts import LabelCounts
from fedeas.planning.examples import EXAMPLES
from fedeas.planning.plan import Plan
from fedeas.planning.policies import parse_policy


@dataclass(frozen=True, eq=False, repr=False)
class RunPlan(Plan):
    """The plan of a run, with the images that its generator has to make.

    >>> planned = RunPlan.of({"policy": "uniform(budget=50)", "generator": "shared(of=gaussian)"})
    >>> planned.total, int(planned.made.sum())
    (50, 10)
    """

    source: GeneratorSettings | None = None
    """The settings of the run's generator."""
    held_out: int = 0
    """How many real images go to no client."""

    @classmethod
    def of(cls, config: RunConfig | Mapping[str, Any] | PathLike | None = None) -> RunPlan:
        """The plan of a run with this config, given as for `fedeas.run`; images of known datasets are not loaded."""
        chosen = config_from(config)
        policy, generator, data = parse_policy(chosen.policy), parse_generator(chosen.generator), chosen.data
        if data.dataset in KNOWN and chosen.partition.chosen(has_clients=False) not in UNSEEDED:
            counts = _known_counts(data.dataset, chosen.drawn_partition, data.held_out)
        else:
            counts = split_of(chosen, needs_indices=False).counts
        return cls(counts, policy.allocate(counts), policy, source=generator, held_out=data.held_out)

    @property
    def made_by(self) -> str:
        """The spec of the generator that makes the images; for a shared pool, of the one behind the pool."""
        source = self.source.of if isinstance(self.source, Shared) else self.source
        return source.spec if source else ""

    @property
    def made(self) -> IntArray:
        """Images to generate of each class, a row for each client, or one row for a shared pool; 0 for real images."""
        if isinstance(self.source, Shared):
            return distinct_in_pool(self.n, self.source.each)[None]
        return np.zeros_like(self.n) if isinstance(self.source, HeldOut) else self.n

    @cached_property
    def distinct(self) -> int:
        """How many different images the clients get."""
        pool = self.source if isinstance(self.source, Shared) else None
        if not isinstance(pool.of if pool else self.source, HeldOut):
            return int(self.made.sum())
        classes = self.n.shape[1]
        of_a_class = self.held_out // classes  # those that are asked for beyond their number repeat
        if pool is not None:
            return sum(np.unique(np.flatnonzero(one) % of_a_class).size for one in taken_from_pool(self.n, pool.each).T)
        assert self.source is not None
        # The generator gets the numbers of the held-out images in place of the images.
        numbers = np.arange(classes * of_a_class, dtype=np.uint32).view(np.uint8).reshape(-1, 1, 2, 2)
        aside = numbers, np.repeat(np.arange(classes), of_a_class)
        context = GeneratorContext("", *aside, tuple(map(str, range(classes))), held_out=aside, plan=self.n)
        generator = self.source.ready(context)
        taken = [generator.sample(*plan_addresses(client, row)).reshape(-1, 4) for client, row in enumerate(self.n)]
        return np.unique(np.concatenate(taken).view(np.uint32)).size


def partition(config: RunConfig | Mapping[str, Any] | PathLike | None = None, *, images: bool = True) -> Split:
    """Divide a dataset among clients, as ``fedeas partition`` and a run do.

    Args:
        config: as for `fedeas.run`.
        images: whether to load the dataset; class sizes of known datasets are enough to count samples.

    Returns:
        `partition` has the samples of each client (`indices`) and how they were drawn (`recipe`), `counts` the label
        counts, and `test_samples` the size of the server's test set.

    >>> partition({"partition": {"clients": 5}}, images=False).counts.num_clients
    5
    """
    return split_of(config_from(config), needs_indices=images)


@lru_cache(maxsize=64)  # drawing counts takes a while, and many runs have the same
def _known_counts(dataset: str, drawn: PartitionConfig, held_out: int) -> LabelCounts:
    for example in EXAMPLES:  # the slowest of them takes most of a minute to draw
        same_clients = (example.clients, float(example.alpha)) == (drawn.clients, drawn.alpha)
        if (drawn.scheme, drawn.seed, dataset) == ("paper", PAPER_SEED, example.dataset) and same_clients:
            return example.counts
    labels = KNOWN[dataset].labels(merged=drawn.scheme == "paper")
    return split_as(labels[set_aside(labels, held_out)[0]] if held_out else labels, drawn).counts
