"""The clients of a run: what a federation asks of them wherever they train, and the clients on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from fedeas.algorithms.base import Arrays, Fleet
from fedeas.config.run import OWN, RunConfig
from fedeas.core.arrays import IntArray, json_digest
from fedeas.core.devices import chosen_device, device_name, torch_precision, torch_threads
from fedeas.core.errors import InputError, log
from fedeas.core.files import PathLike
from fedeas.core.locks import locked
from fedeas.core.provenance import Seen, data_digest
from fedeas.core.records import is_there
from fedeas.core.weight_files import GENERATOR
from fedeas.data.dataset import Dataset
from fedeas.federation.checkpoint import Saver
from fedeas.federation.engines.base import Engine
from fedeas.federation.engines.processes import PLAIN, Backend, plain_engine
from fedeas.federation.gaussian_sums import GaussianSums
from fedeas.federation.generator_rounds import DiffusionRounds, network_in_training
from fedeas.federation.parts import Parts, seen_by_generator
from fedeas.federation.rounds import Schedule, federate
from fedeas.federation.split import refuse_own_data, set_aside
from fedeas.federation.worker import Worker
from fedeas.generators.bank import Bank, BankedGenerator
from fedeas.generators.base import Generator
from fedeas.generators.diffusion.updates import initial_network
from fedeas.generators.diffusion.weights import Weights, trained_weights
from fedeas.generators.kinds import (
    Diffusion,
    Federated,
    Gaussian,
    GeneratorContext,
    Shared,
    federated_in,
    parse_generator,
)
from fedeas.generators.pools import HeldOutImages, KeptPool, NotingGenerator, SharedPool, distinct_in_pool
from fedeas.planning import scores
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies import Pool, parse_policy
from fedeas.planning.policies.pool import images_each
from fedeas.runs.store import LOCK, Record, Run

VERSION = 1  # part of the identity: raise it when the same recipe gives other weights

FOLDER = ".generators"

OnStage = Callable[[Record, int], bool | None]
"""Called with the record of each round and the number of rounds; if it returns True, the stage stops there."""


class StageFolder(Run):
    """The folder of a `GeneratorStage`, whose files hold its name in place of a run's fingerprint."""

    @cached_property
    def fingerprint(self) -> str:
        """The name of the folder."""
        return self.path.name


class GeneratorStage:
    """The stage before round 0 in which a run's clients train its generator, once for all runs on the same clients.

    Its folder holds ``rounds.jsonl``, a checkpoint from which it resumes, and at last ``generator.safetensors``.
    """

    def __init__(self, parts: Parts, settings: Federated, root: Path) -> None:
        data, config, clients = parts.data.dataset, parts.config, parts.config.partition.clients
        # The folder's name is a hash of all that determines the weights.
        of = settings.of if isinstance(settings.of, Gaussian) else Diffusion()  # fields of diffusion say how to draw
        recipe = replace(settings, start="", allow_seen=False, of=of)
        content = [config.content.data, config.content.partition, settings.content(config.data.dataset)]
        device = parts.device.type  # a GPU trains in bf16
        identity = json_digest([VERSION, recipe.spec, *content, config.data.protocol, config.data.dataset, device])
        self.parts, self.settings, self.folder = parts, settings, root / FOLDER / identity[:16]
        self.start: Weights | None = None
        self.algorithm: DiffusionRounds | GaussianSums
        if isinstance(settings.of, Gaussian):
            self.algorithm = GaussianSums(settings.of, data.shape, data.classes)
            self.network: nn.Module = nn.Identity()
            self.rounds, self.clients = 1, clients
            return
        if settings.clients > clients:
            raise InputError(
                f"federated(clients={settings.clients}): the run has {clients} clients; lower it to at most {clients}"
            )
        preset, self.start = settings.recipe(data.shape)
        self.algorithm = DiffusionRounds(settings, preset, data.num_classes, parts.config.engine.compile)
        network = initial_network(preset, data.shape, data.classes, settings.seed, self.start)
        self.network, self.rounds, self.clients = network.to(parts.device), settings.rounds, settings.clients

    @classmethod
    def of(cls, parts: Parts, root: Path) -> GeneratorStage | None:
        """The stage of a run whose results are in the folder `root`; None if the run needs none."""
        settings = federated_in(parts.config.generator)
        return None if settings is None else cls(parts, settings, root)

    def local_engine(self) -> Engine:
        """The engine in which clients on this machine train the generator."""
        parts, settings, data = self.parts, self.settings, self.parts.data
        nobody = np.zeros((data.partition.num_clients, data.dataset.num_classes), dtype=np.int64)
        worker = Worker(
            self.algorithm, self.network, parts.load_client, nobody, None, parts.config.train, settings.seed,
            self.rounds,
        )  # fmt: skip
        largest = int(data.counts.sizes.max())
        return plain_engine(worker, data.dataset.shape, parts.normalise, largest, parts.config.engine, self.clients)

    def train(self, make_engine: Callable[[], Engine], sizes: IntArray, on_round: OnStage | None = None) -> Path | None:
        """Train to the last round, from where an earlier attempt stopped; the weights' file, or None if it stopped.

        If another process trains the same generator, wait for it. `sizes` are the clients' N_k.
        """
        file, run, seed = self.folder / GENERATOR, StageFolder(self.folder, self.parts.config), self.settings.seed
        with locked(self.folder / LOCK):
            if is_there(file):
                return file
            log.info("the clients train their generator first, in %s", self.folder)
            save = Saver(run.checkpoint, self.folder.name, self.rounds)
            run.keep_rounds(save.done)
            every = self.parts.config.partition.clients
            schedule = Schedule(self.rounds, every, self.clients, seed, start=save.done)

            def finish_round(record: Record, state: Arrays) -> bool:
                run.append_round(record)
                stops = bool(on_round and on_round(record, self.rounds))
                save(record["round"], state, engine, at_once=stops)
                return stops

            with closing(make_engine()) as engine:
                fleet = Fleet(sizes, self.parts.data.dataset.num_classes, seed)
                first = save.before.server if save.before else self.algorithm.init(self.network, fleet)
                server = self.parts.on_device(first)
                server = federate(self.algorithm, engine, server, schedule, lambda _: {}, on_round=finish_round)
            network_in_training.cache_clear()
            if len(rounds := run.rounds()) < self.rounds:
                return None
            self._save(server, rounds, sizes, file)
            run.checkpoint.unlink(missing_ok=True)
        return file

    def _save(self, server: Arrays, rounds: Sequence[Record], sizes: IntArray, file: Path) -> None:
        """Write the result with its provenance."""
        config, data, settings, algorithm = self.parts.config, self.parts.data, self.settings, self.algorithm
        seen = {"protocol": "", "dataset": "", "data": ""}
        if config.partition.scheme != OWN:  # nobody knows which images nodes have of their own
            digest = data_digest(np.asarray(data.images), data.labels)
            seen = {"protocol": config.data.protocol, "dataset": config.data.dataset, "data": digest}
        if isinstance(algorithm, GaussianSums):
            algorithm.result(server).save(file, Seen.under(seen["protocol"], seen["dataset"], seen["data"]))
            return
        about = {
            **seen,
            "seed": settings.seed,
            "preset": settings.preset or "federated",
            "device": device_name(self.parts.device),
            "federated": {
                "recipe": replace(settings, start="").spec,
                "clients": len(sizes),
                "samples": int(np.sum(sizes)),
                "partition": config.content.partition,
                "bytes": bytes_of(rounds, len(sizes)),
            },
        }
        updates, shape = sum(record["steps"] for record in rounds), data.dataset.shape
        spent = updates, updates * settings.batch, seconds_in(rounds)
        weights = algorithm.result(server), algorithm.preset, shape, data.dataset.classes, self.start
        trained_weights(*weights, *spent, about).save(file)

    def cost(self) -> dict[str, Any]:
        """Rounds, seconds and bytes of the training, for a run's summary; bytes are a client's mean."""
        rounds, clients = StageFolder(self.folder, self.parts.config).rounds(), self.parts.config.partition.clients
        sent = bytes_of(rounds, clients)
        sent["down"] += (self.folder / GENERATOR).stat().st_size
        return {"rounds": len(rounds), "seconds": seconds_in(rounds), "bytes": sent}


def train_generator(config: RunConfig, root: Path, on_round: OnStage | None = None) -> Path | None:
    """Train a config's generator alone, on this machine, where its runs in the folder `root` will find it."""
    device = chosen_device(config.engine.device, "engine.device")
    refuse_own_data(config, "the clients' images are on their nodes")
    with torch_threads(config.engine.threads), torch_precision(config.engine.precision, device):
        parts = Parts.of(config, device)
        stage = GeneratorStage.of(parts, root)
        if stage is None:
            raise InputError(f"generator {config.generator}: clients do not train it; set generator=federated")
        seen_by_generator(config, parts.data.dataset)  # refuses a start that has seen the clients' images
        return stage.train(stage.local_engine, parts.data.counts.sizes, on_round)


def bytes_of(rounds: Sequence[Record], clients: int) -> dict[str, float]:
    """Bytes of all tensors that a client received and sent, mean over clients."""
    return {way: sum(record["bytes"][way] for record in rounds) / clients for way in ("down", "up")}


def seconds_in(rounds: Sequence[Record]) -> float:
    """Seconds of all kinds in these rounds."""
    return sum(sum(record["seconds"].values()) for record in rounds)


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
            worker.upcoming = self.parts.schedule(len(done)).upcoming()
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
