"""The clients of a run: what a federation asks of them wherever they train, and the clients on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch

from fedeas.config.run import RunConfig
from fedeas.core.arrays import IntArray
from fedeas.core.errors import InputError
from fedeas.core.files import PathLike
from fedeas.data.dataset import Dataset
from fedeas.federation.backend import PLAIN, Backend
from fedeas.federation.engines.base import Engine
from fedeas.federation.generator_stage import GeneratorStage, OnStage
from fedeas.federation.parts import Parts
from fedeas.federation.rounds import Schedule
from fedeas.federation.split import refuse_own_data, set_aside
from fedeas.federation.worker import Worker
from fedeas.generators.bank import Bank, BankedGenerator
from fedeas.generators.base import Generator
from fedeas.generators.kinds import Shared
from fedeas.generators.noting import NotingGenerator
from fedeas.generators.pools import HeldOutImages, KeptPool, SharedPool, distinct_in_pool
from fedeas.generators.registry import parse_generator
from fedeas.generators.settings import GeneratorContext
from fedeas.planning import scores
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies import Pool, parse_policy
from fedeas.planning.policies.pool import images_each
from fedeas.runs.store import Record, Run


@dataclass(frozen=True, eq=False)
class ReadyClients:
    """Clients that can train: what the server knows about them."""

    engine: Engine
    sizes: IntArray  # number N_k of real samples of each client
    generated: IntArray  # number of synthetic images of each client
    budget: Record  # the plan in numbers, for the run's summary
    journal: NotingGenerator | None = None  # notes which images were in the bank; None if images are not kept in one
    stage: GeneratorStage | None = None  # in which the clients have trained their generator


class Clients(Protocol):
    """The clients of a run, on this machine or elsewhere."""

    def start(self, run: Run, done: Sequence[Record], on_stage: OnStage | None = None) -> ReadyClients | None:
        """Record the plan in the run's directory, train the generator if clients do that, and make the clients ready.

        `done` has the rounds they have done. None if `on_stage` stopped the training of the generator.
        """


class LocalClients:
    """Clients on this machine, with the plan for all of them.

    `bank` is the folder of their image bank, and `root` that of the runs that share a generator trained by clients.
    """

    def __init__(
        self, parts: Parts, bank: PathLike | None = None, root: PathLike = "runs", backend: Backend = PLAIN
    ) -> None:
        self.parts, self.bank, self.backend = parts, bank, backend
        refuse_own_data(parts.config, "the clients are nodes with their own data")
        config, counts = parts.config, parts.data.counts
        self.allocation = parse_policy(config.policy).allocate(counts)
        plan = self.allocation.n
        parse_generator(config.generator).check_plan(plan)
        check_pool_size(config, counts, plan)
        self.stage = GeneratorStage.of(parts, Path(root)) if self.allocation.total else None
        self.worker = Worker(
            parts.algorithm, parts.model, parts.load_client, plan, None, config.train, config.seed, config.rounds.total,
            config.engine.precision,
        )  # fmt: skip
        if self.allocation.total and self.stage is None:
            self.worker.generator = self._generator()

    def _generator(self, trained: Path | None = None) -> Generator:
        parts = self.parts
        return ready_generator(parts.config, parts.data.dataset, parts.device, self.bank, self.allocation.n, trained)

    def start(self, run: Run, done: Sequence[Record], on_stage: OnStage | None = None) -> ReadyClients | None:
        """Record plan and generator, and make the engine."""
        counts, generator, config = self.parts.data.counts, self.worker.generator, self.parts.config
        run.save_allocation(counts, self.allocation)
        if self.stage is not None:
            trained = self.stage.train(self.stage.local_engine, counts.sizes, on_stage)
            if trained is None:
                return None
            generator = self._generator(trained)
        if generator is not None:
            before = run.generator()
            if before is not None and before.fingerprint != generator.fingerprint:  # it would make other images
                raise InputError(
                    f"{run.path}: started with another generator than {config.generator} is now; "
                    "remove the folder to start again"
                )
            described = getattr(generator, "description", "") or config.generator
            about = {"spec": config.generator, "description": described, "fingerprint": generator.fingerprint}
            run.write_json("generator.json", about)
        journal = None
        if isinstance(generator, BankedGenerator | KeptPool):
            journal = NotingGenerator(generator, run.noted_images(), run.note_images)
        worker = replace(self.worker, generator=journal or generator)
        if self.parts.device.type == "cuda":
            worker.upcoming = Schedule.of(config, len(done)).upcoming()
        budget, generated = budget_record(counts, self.allocation), self.allocation.per_client
        return ReadyClients(self.make_engine(worker), counts.sizes, generated, budget, journal, self.stage)

    def make_engine(self, worker: Worker) -> Engine:
        """The engine of the backend."""
        parts, config = self.parts, self.parts.config
        largest = int((parts.data.counts.sizes + self.allocation.per_client).max())
        return self.backend.engine(
            worker, parts.data.dataset.shape, parts.normalise, largest, config.engine, config.participants
        )


def budget_record(counts: LabelCounts, allocation: Allocation) -> Record:
    """The size of a plan and its effect on imbalance."""
    return {
        "total": allocation.total,
        "imbalance_removed": scores.imbalance_removed(counts, allocation),
        "synthetic_share": scores.synthetic_share(counts, allocation),
    }


def ready_generator(
    config: RunConfig, dataset: Dataset, device: torch.device, bank: PathLike | None, plan: IntArray | None = None,
    trained: Path | None = None,
) -> Generator:  # fmt: skip
    """Make the config's generator, with a bank if `bank` is given. It may use the official training part.

    `trained` is the file of the weights that the clients have trained.
    """
    held_out = None
    if config.data.held_out:
        _, aside = set_aside(dataset.labels, config.data.held_out)
        held_out = dataset.images[aside], dataset.labels[aside]
    context = GeneratorContext(
        dataset.name, dataset.images, dataset.labels, dataset.classes, config.data.protocol, str(device), held_out,
        plan, trained, None if bank is None else Path(bank),
    )  # fmt: skip
    generator = parse_generator(config.generator).ready(context)
    if bank is None or isinstance(generator, HeldOutImages):  # held-out images are on disk already
        return generator
    if isinstance(generator, SharedPool):  # its images are stored once, not once for each client
        return KeptPool(Bank(bank).of(generator.generator), generator.each)
    return Bank(bank).of(generator)


def check_pool_size(config: RunConfig, counts: LabelCounts, plan: IntArray) -> None:
    """Refuse a pool of fixed size of which clients take more different images than the policy may spend.

    Rows of the plan are all clients, with zeros for those that take nothing from the pool.
    """
    policy, generator = parse_policy(config.policy), parse_generator(config.generator)
    if not isinstance(policy, Pool) or not isinstance(generator, Shared) or not generator.each:
        return
    made, budget = int(distinct_in_pool(plan, generator.each).sum()), policy.images_asked(counts)
    if budget is not None and made > budget:
        fitting = images_each(plan, budget)
        remedy = f"set each={fitting}" if fitting else "leave each out"
        raise InputError(
            f"generator {generator.spec}: clients take {made:,} different images, "
            f"but the budget of policy pool is {budget:,}; {remedy}"
        )
