"""Run a federation from Python, as ``fedeas run`` does; and what a run will train on, from label counts alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedeas.config.reading import checked_config, load_config, section_in
from fedeas.config.run import UNSEEDED, RunConfig
from fedeas.config.sections import PartitionConfig
from fedeas.core.arrays import IntArray
from fedeas.core.deadline import Deadline
from fedeas.core.errors import InputError
from fedeas.core.files import PathLike
from fedeas.data.names import KNOWN
from fedeas.data.partition import PAPER_SEED
from fedeas.federation.split import Split, set_aside, split_as, split_of
from fedeas.generators.base import plan_addresses
from fedeas.generators.kinds import GeneratorSettings, HeldOut, Shared, parse_generator
from fedeas.generators.pools import HeldOutImages, SharedPool, distinct_in_pool
from fedeas.planning.counts import LabelCounts
from fedeas.planning.examples import EXAMPLES
from fedeas.planning.plan import Plan
from fedeas.planning.policies import parse_policy
from fedeas.planning.policies.base import policy_name
from fedeas.runs.store import Record, Run, RunStore

if TYPE_CHECKING:
    from fedeas.federation.run import Forecast

AnyConfig = RunConfig | Mapping[str, Any] | PathLike | None
"""A config, its content, its file, or nothing for the defaults."""


def run(
    config: AnyConfig = None,
    /,
    *,
    plan: Plan | None = None,
    runs: PathLike = "runs",
    bank: PathLike | None = None,
    minutes: float | None = None,
    strict: bool = False,
    on_round: Callable[[Record], None] | None = None,
    on_start: Callable[[Forecast], None] | None = None,
    **settings: Any,
) -> Run:
    """Train a federation; a finished run is returned at once, an interrupted one resumes.

    Args:
        config: a TOML file, a dictionary with its content, a `RunConfig`, or nothing for the defaults.
        plan: take the policy of this plan, which must be for the clients of the run.
        runs: folder of run directories.
        bank: folder of synthetic images; ``.bank`` in `runs` by default.
        minutes: pause when the next round would end later; the same call resumes.
        strict: refuse a generator that was made from images of which there is no record.
        on_round: called with the record of each round.
        on_start: called before training with its estimated `seconds` and `rounds`, and with the number of `images`.
        settings: values that replace those of the config; a section is joined to its key by two underscores, as in
            ``fedeas.run("digits.toml", policy="full-balance", train__lr=0.05)``. ``train={"lr": 0.05}`` is the same:
            what a dictionary leaves out stays as it is.
    """
    from fedeas.federation.parts import refuse_unknown_ancestors
    from fedeas.federation.run import for_this_machine

    store, chosen = RunStore(runs), config_from(config)
    if plan is not None:
        if "policy" in settings:
            raise InputError("give plan or policy, not both; a plan has its own policy")
        settings["policy"] = policy_name(plan.policy)
    chosen = with_settings(chosen, settings)
    if plan is not None:  # for others than the run's clients, the policy would give other images than planned
        own = split_of(chosen, needs_indices=False).counts.n
        if not np.array_equal(own, plan.counts.n):
            planned, here = (f"{len(n):,} clients with {n.sum():,} samples" for n in (plan.counts.n, own))
            raise InputError(
                f"the plan is for other counts ({planned}) than the run's ({here}); plan for these, or give only its "
                f"policy: policy={settings['policy']!r}"
            )
    pause = None if minutes is None else Deadline(minutes)
    chosen = for_this_machine(chosen, store)
    if strict:
        refuse_unknown_ancestors(chosen)
    return run_here(chosen, store, on_round, bank, pause=pause, on_start=on_start)


def run_here(
    config: RunConfig,
    store: RunStore,
    on_round: Callable[[Record], None] | None = None,
    bank: PathLike | None = None,
    **more: Any,
) -> Run:
    """Train on this machine as fast as it can; arguments as for `fedeas.federation.run.execute`."""
    from fedeas.fast import backend_for
    from fedeas.federation.run import execute

    return execute(config, store, on_round, bank, backend_for=backend_for, **more)


def with_settings(config: RunConfig, settings: Mapping[str, Any]) -> RunConfig:
    """The config with some values replaced; a dictionary replaces only the keys of its section that it has.

    >>> with_settings(RunConfig(), {"train__lr": 0.5, "seed": 3}).train.lr
    0.5
    """
    content = config.model_dump()
    for name, value in settings.items():
        *sections, key = name.split("__")
        place = section_in(content, sections, f"setting {name}")
        before: Any = place.get(key)
        merges = isinstance(before, dict) and isinstance(value, Mapping)
        place[key] = {**before, **value} if merges else value
    return checked_config(content, "the settings") if settings else config


def config_from(config: AnyConfig) -> RunConfig:
    """The config that a user gives: itself, its content, its file, or nothing for the defaults."""
    if isinstance(config, RunConfig):
        return config
    if isinstance(config, Mapping):
        return checked_config(config)
    return load_config(None if config is None else Path(config))


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
    def of(cls, config: AnyConfig = None) -> RunPlan:
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
        source = pool.of if pool else self.source
        if not isinstance(source, HeldOut):
            return int(self.made.sum())
        classes = self.n.shape[1]
        labels = np.repeat(np.arange(classes), self.held_out // classes)
        numbers: Any = np.arange(labels.size).reshape(-1, 1, 1, 1)  # in place of the images
        images = HeldOutImages(numbers, labels, classes, self.n if source.disjoint and not pool else None)
        generator = SharedPool(images, pool.each) if pool else images
        taken = [generator.sample(*plan_addresses(client, row)) for client, row in enumerate(self.n)]
        return np.unique(np.concatenate(taken)).size


def partition(
    config: AnyConfig = None,
    *,
    images: bool = True,
    on_draw: Callable[[int], None] | None = None,
) -> Split:
    """Divide a dataset among clients, as ``fedeas partition`` and a run do.

    Args:
        config: as for `fedeas.run`.
        images: whether to load the dataset; class sizes of known datasets are enough to count samples.
        on_draw: called with the number of each draw of a Dirichlet split.

    Returns:
        `partition` has the samples of each client (`indices`) and how they were drawn (`recipe`), `counts` the label
        counts, and `test_samples` the size of the server's test set.

    >>> partition({"partition": {"clients": 5}}, images=False).counts.num_clients
    5
    """
    return split_of(config_from(config), needs_indices=images, on_draw=on_draw)


@lru_cache(maxsize=64)  # drawing counts takes a while, and many runs have the same
def _known_counts(dataset: str, drawn: PartitionConfig, held_out: int) -> LabelCounts:
    for example in EXAMPLES:  # the slowest of them takes most of a minute to draw
        same_clients = (example.clients, float(example.alpha)) == (drawn.clients, drawn.alpha)
        if (drawn.scheme, drawn.seed, dataset) == ("paper", PAPER_SEED, example.dataset) and same_clients:
            return example.counts
    labels = KNOWN[dataset].labels(merged=drawn.scheme == "paper")
    return split_as(labels[set_aside(labels, held_out)[0]] if held_out else labels, drawn).counts
