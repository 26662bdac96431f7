"""From a config to a finished run directory: puts together data, plan, generator, model and engine."""

import copy
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from fedeas.algorithms.base import Arrays, Fleet
from fedeas.algorithms.local_sgd import Descent
from fedeas.config.run import RunConfig
from fedeas.config.sections import ModelConfig
from fedeas.core import VERSION
from fedeas.core.arrays import IntArray
from fedeas.core.devices import chosen_device, device_name, seconds_of, torch_precision, torch_threads
from fedeas.core.errors import InputError, log
from fedeas.core.files import PathLike, refuse_links
from fedeas.core.records import matching
from fedeas.core.weight_files import checkout_of
from fedeas.federation.checkpoint import Saver
from fedeas.federation.clients import Clients, LocalClients, OnStage, bytes_of
from fedeas.federation.engines.base import OnClient
from fedeas.federation.engines.processes import PLAIN, Backend, BackendFor, divided_cores
from fedeas.federation.metrics import gamma_hat
from fedeas.federation.parts import Parts, pinned, seen_by_generator, unknown_content
from fedeas.federation.rounds import set_up
from fedeas.federation.split import load_data, split_data
from fedeas.generators.pools import NotingGenerator
from fedeas.models.build import parameter_names
from fedeas.planning.counts import Allocation
from fedeas.runs.accuracy_curves import summarise
from fedeas.runs.store import Record, Run, RunStore, sound_runs, trained


class Forecast(NamedTuple):
    """Seconds of training, the rounds that are left, and the number of images that the plan asks for."""

    seconds: float
    rounds: int
    images: int
    is_bound: bool = False
    """Whether `seconds` is an upper bound; on a GPU it is, because clients train at the same time."""


Progress = Callable[[Record], None]
Pause = Callable[[Record], bool]
OnStart = Callable[[Forecast], None]
MakeClients = Callable[[Parts], Clients]


def execute(
    config: RunConfig,
    store: RunStore,
    on_round: Progress | None = None,
    bank: PathLike | None = None,
    make_clients: MakeClients | None = None,
    pause: Pause | None = None,
    on_start: OnStart | None = None,
    on_client: OnClient | None = None,
    backend_for: BackendFor | None = None,
    on_stage: OnStage | None = None,
) -> Run:
    """Run a config to its end, resuming an interrupted run; a finished run is returned at once.

    `on_round` gets the record of each round. If `pause` returns True after a round, the run stops there and can be
    resumed, here or on another machine.

    Synthetic images are kept in the folder `bank`, by default ``.bank`` beside the run directories; all runs share it.
    `make_clients` makes the clients, if they are not on this machine; otherwise `on_start` gets the time that the run
    will take, estimated from a few steps. Within a round, `on_client` gets the numbers of clients that are done and of
    all, in any thread. `on_stage` gets the record of each round in which the clients train their generator, and how
    many there are; if it returns True, the run stops there, too. `backend_for` returns what trains and tests on the
    run's device, by default plain torch.
    """
    if config.engine.name == "flower" and make_clients is None:
        raise InputError("engine flower needs its nodes; use `fedeas run`, or fedeas.flower.app.simulate")
    device = chosen_device(config.engine.device, "engine.device")
    with torch_threads(config.engine.threads), torch_precision(config.engine.precision, device):
        backend = backend_for(device) if backend_for else PLAIN
        with backend.waking():
            parts = Parts.of(config, device)
        run = store.at(parts.config)
        if run.finished:
            run = store.open(parts.config)
            run.check()
            return run
        unknown, seen = unknown_content(parts.config), seen_by_generator(parts.config, parts.data.dataset)
        if make_clients:
            clients = make_clients(parts)
        else:
            if bank is None:
                refuse_links(store.root / ".bank", store.root)
            clients = LocalClients(parts, bank or store.root / ".bank", store.root, backend)
        run = store.open(parts.config)  # only now, when no error in the config is left, is a folder made
        with run.locked():
            if run.finished:  # another process has just finished it
                return run
            for words in parts.data.notes:
                log.warning("%s", words)
            for words in unknown:
                log.warning("not known to the run: %s", words)
            run.write_json("env.json", {**environment(device), "unknown": list(unknown)})
            measured = _train(run, parts, clients, backend, on_round, pause, on_client, on_start, on_stage)
            if measured is None:
                return run
            config, rounds = run.config, run.rounds()
            spent = {name: sum(record["seconds"][name] for record in rounds) for name in rounds[-1]["seconds"]}
            run.write_json("summary.json", {
                "label": config.label,
                "seed": config.seed,
                "protocol": config.data.protocol,
                "policy": config.policy,
                "algorithm": config.algorithm,
                "fingerprint": config.fingerprint,
                "rounds": len(rounds),
                **summarise(rounds, config.rounds.threshold),
                **measured,
                **({"seen": seen} if seen.note else {}),
                "bytes": bytes_of(rounds, config.partition.clients),
                "seconds": {**spent, "total": sum(spent.values())},
            })  # fmt: skip
    return run


def identified(config: RunConfig) -> RunConfig:
    """The config with the content of its parts pinned; it determines the run's directory."""
    return pinned(config, split_data(config, load_data(config)))


def _train(
    run: Run, parts: Parts, clients: Clients, backend: Backend, on_round: Progress | None, pause: Pause | None,
    on_client: OnClient | None, on_start: OnStart | None, on_stage: OnStage | None,
) -> Record | None:  # fmt: skip
    """Train and record each round; return what the summary says of plan and images, None if paused before the end."""
    config = parts.config
    save = Saver(run.checkpoint, config.fingerprint, config.rounds.total)
    run.keep_rounds(save.done)
    done = run.rounds()
    if on_start is not None and isinstance(clients, LocalClients):
        on_start(forecast(parts, clients.allocation, config.rounds.total - len(done)))

    def finish_stage_round(record: Record, of: int) -> bool:
        shown = on_stage is not None and on_stage(record, of)
        return bool(pause is not None and pause(record)) or bool(shown)

    ready = clients.start(run, done, finish_stage_round)
    if ready is None:
        return None
    tally = ImageTally(ready.generated, done, ready.journal)

    def finish_round(record: Record, state: Arrays) -> bool:
        record = {**record, **tally.count(record)}
        run.append_round(record)
        paused = pause is not None and pause(record)
        save(record["round"], state, ready.engine, at_once=paused)
        if on_round is not None:
            on_round(record)
        return paused

    ready.engine.count.tell = on_client
    with closing(ready.engine) as engine:
        if save.before is None:
            fleet = Fleet(ready.sizes, parts.data.dataset.num_classes, config.seed)
            server = set_up(parts.algorithm, engine, parts.algorithm.init(parts.model, fleet), len(ready.sizes))
        else:
            engine.restore({client: parts.on_device(arrays) for client, arrays in save.before.clients.items()})
            server = parts.on_device(save.before.server)
        measured = partial(gamma_hat, trainable=parameter_names(parts.model))
        probes = {"gamma_hat": measured} if config.rounds.gamma_hat else {}
        test = parts.data.test_images, parts.data.test_labels, parts.data.dataset.num_classes
        model = copy.deepcopy(parts.model)
        evaluate = backend.evaluation.of(model, *test, parts.normalise, config.engine.precision)
        backend.federate(parts.algorithm, engine, server, parts.schedule(len(done)), evaluate, probes, finish_round)
    rounds = run.rounds()
    if len(rounds) < config.rounds.total:
        return None
    cost = {"generator": ready.stage.cost()} if ready.stage else {}
    return {**ready.budget, **tally.total(rounds), **cost}


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, device and threads of this process, as in ``env.json``.

    `commit` is that of the checkout that the code runs from; without its git history, that in ``$FEDEAS_COMMIT``.
    """
    processor, checkout = platform.processor() or platform.machine(), checkout_of(Path(__file__).parents[1])
    commit = os.environ.get("FEDEAS_COMMIT") or None
    if checkout is not None and (checkout / ".git").exists():  # else git would find another project's folder around it
        with suppress(OSError, subprocess.SubprocessError):
            command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
            commit = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    return {
        "fedeas": VERSION,
        "commit": commit,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "device": str(device),
        "machine": device_name(device) if device.type == "cuda" else processor,
        "threads": torch.get_num_threads(),
    }


class ImageTally:
    """Which clients have trained so far, and how many synthetic images each further client adds.

    `generated` has each client's number of them, `done` the records of earlier rounds; `journal` notes which images
    were in the bank, and is None if images are not kept in one.
    """

    def __init__(self, generated: IntArray, done: Iterable[Record], journal: NotingGenerator | None = None) -> None:
        self.generated, self.journal = generated, journal
        self.seen = {client for record in done for client in trained(record)}
        if journal is not None:
            journal.skip(self.seen)

    def count(self, record: Record) -> Record:
        """The images of clients that trained for the first time in this round, as fields for its record."""
        newcomers = sorted(set(trained(record)) - self.seen)
        self.seen.update(newcomers)
        drawn = {} if self.journal is None else self.journal.drawn(newcomers)
        images = {"images": drawn} if any(drawn.values()) else {}
        return {"generated": int(self.generated[newcomers].sum()), **images}

    def total(self, rounds: Iterable[Record]) -> Record:
        """The same fields for all rounds together; `images` is None if images are not kept in a bank."""
        total = Counter(generated=0, found=0, made=0)
        for record in rounds:
            total.update(generated=record["generated"], **record.get("images", {}))
        generated = total.pop("generated")
        return {"generated": generated, "images": None if self.journal is None else dict(total)}


def for_this_machine(config: RunConfig, store: RunStore) -> RunConfig:
    """The config with the small CNN for ``model.name=auto`` without a GPU, where a ResNet-18 takes hours.

    A run with the ResNet-18 that is already in the store is resumed as it is, and so are settings that only a ResNet
    has.
    """
    model = config.model
    open_choice = model.name == "auto" and (model.stem, model.weights) == (ModelConfig().stem, "")
    if not open_choice or chosen_device(config.engine.device, "engine.device").type != "cpu":
        return config
    small, large = (config.model_copy(update={"model": model.named(name)}) for name in ("small-cnn", "resnet18"))
    folders = sorted(path.parent for path in matching(store.root, f"{large.label}-*/config.json"))
    begun = {run.config.unpinned.fingerprint for run in sound_runs(folders)}
    return config if large.unpinned.fingerprint in begun else small


def forecast(parts: Parts, allocation: Allocation, rounds: int) -> Forecast:
    """The time for this many rounds: the clients' steps, divided among the cores, at the pace of plain SGD.

    On a GPU, it is the time of one client after the other, an upper bound. The model of the run and all random streams
    stay as they are.
    """
    config, data, on_cpu = parts.config, parts.data, parts.device.type == "cpu"
    model, size = copy.deepcopy(parts.model), config.train.batch_size
    images = parts.normalise(torch.from_numpy(np.array(data.images[:size])).to(parts.device))
    labels = torch.from_numpy(np.array(data.labels[:size])).to(parts.device)
    optimiser = Descent(model, config.train, 0.0)

    def step() -> None:
        loss = functional.cross_entropy(model(images), labels)
        optimiser.expect(loss, corrected=False)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    processes, threads = divided_cores(config.engine, config.participants) if on_cpu else (1, torch.get_num_threads())
    with torch_threads(threads):
        of_a_step = seconds_of(step, parts.device) * size / len(labels)
    steps = steps_of_a_round(config, data.counts.sizes + allocation.per_client)
    return Forecast(rounds * steps * of_a_step / processes, rounds, allocation.total, is_bound=not on_cpu)


def steps_of_a_round(config: RunConfig, samples: IntArray) -> float:
    """Expected steps of all clients in a round, given each client's samples."""
    if config.train.steps:
        return float(config.participants * config.train.steps)
    steps = config.train.epochs * np.ceil(samples / config.train.batch_size)
    return config.participants * float(steps.mean())
