"""From a config to a finished run directory: puts together data, plan, generator, model and engine."""

from __future__ import annotations

import copy
import logging
import os
import platform
import subprocess
from collections.abc import Callable
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from fedeas import __version__
from fedeas.algorithms import Reply, parse_algorithm
from fedeas.algorithms.base import Algorithm, Arrays, Fleet
from fedeas.config import RunConfig
from fedeas.data.client import ClientData, Normaliser
from fedeas.data.sources import Dataset, load_dataset
from fedeas.errors import InputError
from fedeas.federation.checkpoint import Saver, load_checkpoint
from fedeas.federation.engines.base import Engine
from fedeas.federation.engines.gpu import gpu_engine
from fedeas.federation.engines.local import LocalEngine
from fedeas.federation.engines.processes import cpu_engine
from fedeas.federation.identity import pinned, unknown_content
from fedeas.federation.metrics import Evaluation, gamma_hat, summarise
from fedeas.federation.rounds import Schedule, federate, set_up
from fedeas.federation.split import held_out, split_data
from fedeas.federation.worker import Worker
from fedeas.generators.bank import Bank, BankedGenerator
from fedeas.generators.base import Generator
from fedeas.generators.journal import Journal
from fedeas.generators.pools import HeldOutImages, KeptPool, SharedPool
from fedeas.generators.registry import GeneratorContext, parse_generator
from fedeas.gpu.devices import chosen_device, set_precision
from fedeas.models.build import build_model, fuse_norms, parameter_names, suited_to
from fedeas.planning import scores
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies import parse_policy
from fedeas.runs.store import Record, Run, RunStore

log = logging.getLogger("fedeas")

Progress = Callable[[Record], None]
Pause = Callable[[Record], bool]
MakeFederation = Callable[[RunConfig, str | os.PathLike[str]], "Federation"]


def execute(
    config: RunConfig,
    store: RunStore,
    progress: Progress | None = None,
    bank: str | os.PathLike[str] | None = None,
    federation: MakeFederation | None = None,
    pause: Pause | None = None,
) -> Run:
    """Run a config to its end, resuming an interrupted run; a finished run is returned at once.

    If `pause` returns True after a round, the run stops there and can be resumed, here or on another machine.

    Synthetic images are kept in the folder `bank`, by default ``.bank`` beside the run directories; all runs share it.
    `federation` makes the federation to run, if it is not one on this machine.
    """
    if config.engine.name == "flower" and federation is None:
        raise InputError("engine flower needs its nodes; use `fedeas run`, or fedeas.flower.app.simulate")
    if config.engine.threads is not None:
        torch.set_num_threads(config.engine.threads)
    parts = (federation or Federation)(config, bank or store.root / ".bank")
    if store.at(parts.config).finished:
        return store.at(parts.config)
    parts.prepare()  # finds all errors in the config before a folder is made
    run = store.open(parts.config)
    with run.locked():
        if not run.finished:  # another process may just have finished it
            parts.run(run, progress, pause)
    return run


def identified(config: RunConfig) -> RunConfig:
    """The config with the content of its parts pinned; it determines the run's directory."""
    return pinned(config, split_data(config, load_dataset(config.data.dataset, config.data.root)))


class Federation:
    """The parts of one run, built from its config; `config` is that config with the content of all parts pinned."""

    def __init__(self, config: RunConfig, bank: str | os.PathLike[str] | None = None) -> None:
        self.bank = bank
        self.device = chosen_device(config.engine.device, "engine.device")
        set_precision(config.engine.precision, self.device)
        self.algorithm: Algorithm = parse_algorithm(config.algorithm)
        self.data = split_data(config, load_dataset(config.data.dataset, config.data.root))
        self.config = pinned(config, self.data)
        dataset = self.data.dataset
        self.model: nn.Module = new_model(self.config, dataset.shape, dataset.num_classes).to(self.device)
        self.normalise = Normaliser.of(dataset.channel_mean, dataset.channel_std, self.device)
        self.generator: Generator | None = None
        self.unknown: tuple[str, ...] = ()
        self.journal: Journal | None = None

    @cached_property
    def counts(self) -> LabelCounts:
        """Label counts of all clients."""
        return self.data.counts

    @cached_property
    def allocation(self) -> Allocation:
        """The plan for all clients."""
        return parse_policy(self.config.policy).allocate(self.counts)

    def prepare(self) -> None:
        """Check which images the parts have seen, compute the plan and, if it needs images, make the generator."""
        self.unknown = unknown_content(self.config)
        if self.allocation.total:
            self.generator = ready_generator(self.config, self.data.dataset, self.device, self.bank)
        self._worker(self.generator)  # checks that model and training fit together

    def run(self, run: Run, progress: Progress | None = None, pause: Pause | None = None) -> None:
        """Train, record each round, and finish the run directory, unless paused before the last round."""
        for words in self.data.notes:
            log.warning("%s", words)
        for words in self.unknown:
            log.warning("not known to the run: %s", words)
        run.write_json("env.json", {**environment(self.device), "unknown": list(self.unknown)})
        with closing(self._engine(run)) as engine:
            self._train(run, engine, progress, pause)
        if len(run.rounds()) == self.config.rounds.total:
            run.write_json("summary.json", self._summary(run))

    def _train(self, run: Run, engine: Engine, progress: Progress | None, pause: Pause | None) -> None:
        """Run the remaining rounds; record each and save a checkpoint from time to time."""
        keep = Saver(run.checkpoint, self.config.fingerprint, self.config.rounds.total)
        start, server = self._starting_point(run, engine)
        seen = {client for record in run.rounds() for client in trained(record)}
        if self.journal is not None:
            self.journal.skip(seen)

        def on_round(record: Record, state: Arrays) -> bool:
            newcomers = set(trained(record)) - seen
            seen.update(newcomers)
            record = {**record, "generated": self._generated(newcomers), **self._drawn(newcomers)}
            run.append_round(record)
            paused = pause is not None and pause(record)
            keep(record["round"], state, engine.client_states, at_once=paused)
            if progress is not None:
                progress(record)
            return paused

        federate(self.algorithm, engine, server, self._schedule(start), self._evaluation(), self._probes(), on_round)

    def _starting_point(self, run: Run, engine: Engine) -> tuple[int, Arrays]:
        if run.checkpoint.exists():
            start, server, clients = load_checkpoint(run.checkpoint, self.config.fingerprint)
            engine.restore({client: self._on_device(arrays) for client, arrays in clients.items()})
            run.keep_rounds(start)
            return start, self._on_device(server)
        run.keep_rounds(0)
        fleet = self._fleet()
        return 0, set_up(self.algorithm, engine, self.algorithm.init(self.model, fleet), len(fleet.sizes))

    def _fleet(self) -> Fleet:
        return Fleet(self.counts.sizes, self.counts.num_classes, self.config.seed)

    def _generated(self, newcomers: set[int]) -> int:
        """Number of synthetic images of these clients."""
        return int(self.allocation.per_client[sorted(newcomers)].sum())

    def _drawn(self, newcomers: set[int]) -> Record:
        """Images of these clients that were in the bank, and that had to be made."""
        drawn = {} if self.journal is None else self.journal.drawn(newcomers)
        return {"images": drawn} if any(drawn.values()) else {}

    def _images(self, rounds: list[Record]) -> Record | None:
        """The same for all rounds together; None if images are not kept in a bank."""
        if self.journal is None:
            return None
        drawn = [record.get("images", {}) for record in rounds]
        return {name: sum(each.get(name, 0) for each in drawn) for name in ("found", "made")}

    def _on_device(self, arrays: Arrays) -> Arrays:
        return {key: tensor.to(self.device) for key, tensor in arrays.items()}

    def _engine(self, run: Run) -> Engine:
        """The engine of the config, or one that suits the device; the reference on devices other than CPU and CUDA."""
        run.save_allocation(self.counts, self.allocation)
        _keep_generator(run, self.config.generator, self.generator)
        if isinstance(self.generator, BankedGenerator | KeptPool):
            self.journal = Journal(self.generator, run.noted_images(), run.note_images)
        chosen, worker = self.config.engine, self._worker(self.journal or self.generator)
        if self.device.type == "cpu":
            return cpu_engine(worker, chosen, self.config.participants)
        if self.device.type != "cuda" or chosen.name == "local":
            return LocalEngine(worker)
        largest = int((self.counts.sizes + self.allocation.per_client).max())
        return gpu_engine(worker, self.data.dataset.shape, self.normalise, largest, chosen, self.config.participants)

    def _worker(self, generator: Generator | None) -> Worker:
        return Worker(
            self.algorithm, self.model, self._client, self.allocation.n, generator, self.config.train,
            self.config.seed, self.config.rounds.total, self.config.engine.precision,
        )  # fmt: skip

    def _client(self, client: int) -> ClientData:
        mine = self.data.partition.indices[client]
        return ClientData.of(self.data.images[mine], self.data.labels[mine], self.normalise)

    def _schedule(self, start: int) -> Schedule:
        rounds = self.config.rounds
        clients, seed = self.config.partition.clients, self.config.seed
        return Schedule(rounds.total, clients, self.config.participants, seed, rounds.eval_every, start)

    def _evaluation(self) -> Evaluation:
        images = torch.from_numpy(np.array(self.data.test_images)).to(self.device)
        labels = torch.from_numpy(np.array(self.data.test_labels)).to(self.device)
        model = copy.deepcopy(self.model)
        if self.device.type == "cuda":
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            fuse_norms(model)
        return Evaluation(model, images, labels, self.normalise, self.config.engine.precision)

    def _probes(self) -> tuple[Callable[[Arrays, list[Reply]], dict[str, float]], ...]:
        if not self.config.rounds.gamma_hat:
            return ()
        trainable = parameter_names(self.model)
        return (lambda before, replies: {"gamma_hat": gamma_hat(before, replies, trainable)},)

    def _budget(self) -> Record:
        """The size of the plan and its effect on imbalance."""
        return {
            "total": self.allocation.total,
            "imbalance_removed": scores.removed(self.counts, self.allocation),
            "synthetic_share": scores.synthetic_share(self.counts, self.allocation),
        }

    def _summary(self, run: Run) -> Record:
        rounds = run.rounds()
        names = rounds[-1]["seconds"]
        seconds = {name: sum(record["seconds"][name] for record in rounds) for name in names}
        return {
            "label": self.config.label,
            "seed": self.config.seed,
            "protocol": self.config.data.protocol,
            "policy": self.config.policy,
            "algorithm": self.config.algorithm,
            "fingerprint": self.config.fingerprint,
            "rounds": len(rounds),
            **summarise(rounds, self.config.rounds.threshold),
            **self._budget(),
            "generated": sum(record["generated"] for record in rounds),
            "images": self._images(rounds),
            "seconds": {**seconds, "total": sum(seconds.values())},
        }


def new_model(config: RunConfig, shape: tuple[int, int, int], num_classes: int) -> nn.Module:
    """The config's model with its initial weights, on the CPU."""
    chosen = config.model
    return build_model(
        suited_to(shape) if chosen.name == "auto" else chosen.name,
        shape,
        num_classes,
        seed=config.seed,
        stem=chosen.stem,
        norm=None if chosen.norm == "auto" else chosen.norm,
        weights=chosen.weights,
        projection=chosen.projection,
    )


def ready_generator(
    config: RunConfig, dataset: Dataset, device: torch.device, bank: str | os.PathLike[str] | None
) -> Generator:
    """Make the config's generator, with a bank if `bank` is given. It may use the official training part."""
    about = dataset.name, dataset.images, dataset.labels, dataset.classes
    context = GeneratorContext(*about, config.data.protocol, str(device), held_out(config, dataset))
    generator = parse_generator(config.generator).ready(context)
    if bank is None or isinstance(generator, HeldOutImages):  # held-out images are on disk already
        return generator
    if isinstance(generator, SharedPool):  # its images are stored once, not once for each client
        return KeptPool(Bank(bank).of(generator.generator))
    return Bank(bank).of(generator)


def trained(record: Record) -> list[int]:
    """The clients that took part in a round and replied."""
    return sorted(set(record["clients"]) - set(record.get("missing", ())))


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


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, device and threads of this process."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {
        "fedeas": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "device": str(device),
        "machine": name,
        "threads": torch.get_num_threads(),
    }


def _commit() -> str | None:
    """The commit of the code, if it runs from a checkout."""
    try:
        command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
