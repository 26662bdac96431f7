"""The clients of a run: what a federation asks of them wherever they train, and the clients on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, Self

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
from fedeas.federation.split import held_out, refuse_own_data
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


@dataclass(frozen=True, eq=False)
class LocalClients:
    """Clients on this machine, with the plan for all of them."""

    parts: Parts
    allocation: Allocation
    worker: Worker
    bank: PathLike | None = None
    stage: GeneratorStage | None = None
    backend: Backend = PLAIN

    @classmethod
    def of(cls, parts: Parts, bank: PathLike | None = None, root: PathLike = "runs", backend: Backend = PLAIN) -> Self:
        """Compute the plan and, if it needs images, make the generator, with a bank in this folder.

        A generator that the clients train is made later; `root` is the folder of the runs that share it.
        """
        config, data = parts.config, parts.data
        refuse_own_data(config, "the clients are nodes with their own data")
        allocation = parse_policy(config.policy).allocate(data.counts)
        parse_generator(config.generator).check_plan(allocation.n)
        check_pool_size(config, data.counts, allocation.n)
        plan = allocation.n
        stage = GeneratorStage.of(parts, Path(root)) if allocation.total else None
        needed = allocation.total and stage is None
        generator = ready_generator(config, data.dataset, parts.device, bank, plan) if needed else None

        worker = Worker(
            parts.algorithm, parts.model, parts.load_client, plan, generator, config.train,
            config.seed, config.rounds.total, config.engine.precision,
        )  # fmt: skip
        return cls(parts, allocation, worker, bank, stage, backend)

    def start(self, run: Run, done: Sequence[Record], on_stage: OnStage | None = None) -> ReadyClients | None:
        """Record plan and generator, and make the engine."""
        counts, generator = self.parts.data.counts, self.worker.generator
        run.save_allocation(counts, self.allocation)
        if self.stage is not None:
            trained = self.stage.train(self.stage.local_engine, counts.sizes, on_stage)
            if trained is None:
                return None
            about = self.parts.config, self.parts.data.dataset, self.parts.device, self.bank, self.worker.allocation
            generator = ready_generator(*about, trained=trained)
        _keep_generator(run, self.parts.config.generator, generator)
        journal = None
        if isinstance(generator, BankedGenerator | KeptPool):
            journal = NotingGenerator(generator, run.noted_images(), run.note_images)
        worker = replace(self.worker, generator=journal or generator)
        if self.parts.device.type == "cuda":
            worker = replace(worker, upcoming=Schedule.of(self.parts.config, len(done)).upcoming())
        engine = self.make_engine(worker)
        budget = budget_record(counts, self.allocation)
        return ReadyClients(engine, counts.sizes, self.worker.allocation.sum(axis=1), budget, journal, self.stage)

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
    about = dataset.name, dataset.images, dataset.labels, dataset.classes
    folder = None if bank is None else Path(bank)
    context = GeneratorContext(
        *about, config.data.protocol, str(device), held_out(config, dataset), plan, trained, folder
    )
    generator = parse_generator(config.generator).ready(context)
    if bank is None or isinstance(generator, HeldOutImages):  # held-out images are on disk already
        return generator
    if isinstance(generator, SharedPool):  # its images are stored once, not once for each client
        return KeptPool(Bank(bank).of(generator.generator), generator.each)
    return Bank(bank).of(generator)


def _keep_generator(run: Run, spec: str, generator: Generator | None) -> None:
    """Record the generator; a run cannot resume with another one, which would make other images."""
    if generator is None:
        return
    before = run.generator()
    if before is not None and before.fingerprint != generator.fingerprint:
        raise InputError(
            f"{run.path}: started with another generator than {spec} is now; remove the folder to start again"
        )
    described = getattr(generator, "description", "") or spec
    about = {"spec": spec, "description": described, "fingerprint": generator.fingerprint}
    run.write_json("generator.json", about)


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
