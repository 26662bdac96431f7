"""The two halves of FedEAS as a Flower app, and a simulation of them on one machine.

The server knows what its clients reveal, and no more.
"""

import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import Any, cast

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from torch import Tensor

from fedeas.algorithms.base import Arrays
from fedeas.config.reading import checked_config
from fedeas.config.run import OWN, RunConfig
from fedeas.core import VERSION
from fedeas.core.arrays import IntArray, cores
from fedeas.core.devices import torch_precision, torch_threads
from fedeas.core.errors import FedEASError, InputError, log
from fedeas.core.provenance import Answer
from fedeas.fast import backend_for
from fedeas.federation.clients import GeneratorStage, OnStage, ReadyClients, budget_record, check_pool_size
from fedeas.federation.engines.base import Task
from fedeas.federation.generator_rounds import DiffusionRounds
from fedeas.federation.parts import Parts
from fedeas.federation.run import Progress, execute, identified
from fedeas.flower.client import SIMULATED, Participant, in_simulation, refuse_foreign_code
from fedeas.flower.engine import FlowerEngine
from fedeas.flower.grid import MessageWindow, MetricsFile, WatchedGrid, set_at_the_end
from fedeas.flower.node_settings import STATE, NodeSettings, TellableError, read_node_config
from fedeas.flower.operator import print_log, told_in_one_line
from fedeas.flower.revealed_counts import Numbers, Share, shares
from fedeas.flower.wire import About, Header, Parcel, header_of, packed, unpacked
from fedeas.generators.kinds import parse_generator
from fedeas.planning.counts import LabelCounts
from fedeas.planning.policies import parse_policy
from fedeas.planning.policies.base import Needs
from fedeas.runs.store import Record, Run, RunStore, trained

DEFAULTS = '{"engine": {"name": "flower"}}'  # settings of a run that brings none

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # keeps Ray on loopback
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",  # by default, clients wait for whatever else the machine does
    "RAY_max_direct_call_object_size": str(2**20),  # larger messages go through Ray's store, which is slower up to here
    # Ray always asks which cloud it is in: this proxy makes the request fail.
    "http_proxy": "http://127.0.0.1:9",
    "no_proxy": "127.0.0.1,localhost",
}

IN_SIMULATION = 4
"""Messages for each processor that a simulation has under way at least.

Flower's simulation looks through all of them once for each client, again and again: with a message to each of hundreds
of clients, that takes most of a processor.
"""

server = ServerApp()
client = ClientApp()

Told = tuple[Header, Mapping[str, Tensor]]
_known: dict[tuple[int, NodeSettings], Participant] = {}  # of one run: a simulation's process gets many messages of it


def answering(handler: Callable[[Participant, Header, Arrays], Told]) -> Callable[[Message, Context], Message]:
    """Make a handler of Flower's messages from a function that returns header and tensors of the reply.

    A reply names its client, and repeats the text that identifies the message: the server accepts it for no other
    message. An error becomes a refusal. Its text may reveal something about the client's data. So it stays in the
    node's log, unless it is a `TellableError` or this is a simulation.
    """

    @wraps(handler)
    def reply_to(message: Message, context: Context) -> Message:
        run, kind = message.metadata.run_id, message.metadata.message_type
        about: dict[str, Any] = {"client": context.node_config.get("partition-id", "")}
        try:
            header = header_of(message.content)
            about["answers"] = header["asked"]
            own = _participant(header, context)
            engine, sent = own.config.engine, unpacked(message.content)[1]
            with torch_threads(engine.threads), torch_precision(engine.precision, own.device):
                told, arrays = handler(own, header, sent)
                content = packed({**told, **about}, Parcel.of(arrays))
        except Exception as error:
            if isinstance(error, FedEASError):
                log.error("run %d: refused %s: %s", run, kind, error)
            else:
                log.exception("run %d: %s failed", run, kind)
            tellable = isinstance(error, TellableError) or in_simulation()
            reason = str(error) if tellable else "it could not do its part; its node's log has the reason"
            content = packed({"refused": reason, **about})
        return Message(content, reply_to=message)

    return reply_to


@client.query("hello")
@answering
def hello(own: Participant, header: Header, _: Arrays) -> Told:
    """Introduce this client."""
    if header["anew"]:
        own.begin_anew()
        _known.clear()
    return own.introduce(), {}


@client.query("settle")
@answering
def settle(own: Participant, header: Header, _: Arrays) -> Told:
    """Store this client's row of the plan."""
    share = Share(**header["share"]) if "share" in header else None
    row = np.array(header["row"], dtype=np.int64) if "row" in header else None
    return {"total": own.settle(share, row)}, {}


@client.query("generator")
@answering
def generator(own: Participant, _: Header, arrays: Arrays) -> Told:
    """Store the generator that the clients have trained."""
    own.take_generator(arrays["file"])
    return {}, {}


@client.query("setup")
@client.train()
@answering
def work(own: Participant, header: Header, broadcast: Arrays) -> Told:
    """Do the client's part of a round, or of the algorithm's exchange before the first one."""
    if "generator" in header:
        reply = own.train_generator(header["round"], broadcast, header["generator"])
    else:
        reply = own.work(Task(header["task"]), header["round"], broadcast, header["last"], header["keep"])
    if reply is None:
        return {"nothing": True}, {}
    return {"weight": reply.weight, "metrics": reply.metrics}, reply.arrays


def _participant(header: Header, context: Context) -> Participant:
    number, node = read_node_config(context.node_config)
    try:
        config = RunConfig.model_validate(header["config"])
    except ValueError as error:
        log.error("the run's config cannot be used: %s", error)
        raise TellableError(f"the run's config is not one for fedeas {VERSION}; install the server's version") from None
    run = config.fingerprint
    if any(own.fingerprint != run for own in _known.values()):
        _known.clear()
    if (number, node) not in _known:
        about = About(**{name: tuple(value) for name, value in header["about"].items()})
        _known[number, node] = Participant(config, number, about, node)
    return _known[number, node]


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Run the config that the run was started with; resume an interrupted run."""
    print_log()
    with told_in_one_line():
        serve(grid, context)


def serve(grid: Grid, context: Context) -> None:
    """Run the config to its end on the nodes of a grid, or show that it was finished before."""
    given = {name: str(value) for name, value in context.run_config.items()}
    config = checked_config(json.loads(given.get("settings") or DEFAULTS), "the run's settings")
    members = {int(client): int(node) for client, node in json.loads(given.get("members") or "{}").items()}
    watched, total = WatchedGrid(grid), config.rounds.total
    metrics, worked = MetricsFile.of(config.label, total, watched), threading.Event()

    def progress(record: Record) -> None:
        worked.set()
        accuracy = f", accuracy {record['accuracy']:.1%}" if "accuracy" in record else ""
        missing = f", missing {record['missing']}" if "missing" in record else ""
        log.info("round %d of %d%s%s", record["round"], total, accuracy, missing)
        if metrics is not None:
            metrics.write(record)

    run = run_on(cast(Grid, watched), config, RunStore(given.get("runs") or "runs"), progress, members)
    if not worked.is_set():
        log.warning("%s: was finished before, only shown; remove this folder to train again", run.path)
    log.info("finished: %s", run.path)


def run_on(
    grid: Grid,
    config: RunConfig,
    store: RunStore,
    on_round: Progress | None = None,
    members: Mapping[int, int] | None = None,
    window: MessageWindow | None = None,
) -> Run:
    """Run a config to its end on the nodes of a grid; `members` tells which node is which client.

    `window` limits the messages under way; None for no limit.
    """
    refuse_foreign_code(config)
    return execute(
        config, store, on_round, make_clients=lambda parts: FlowerClients(parts, grid, members or {}, window),
        backend_for=backend_for,
    )  # fmt: skip


def simulate(config: RunConfig, store: RunStore, on_round: Progress | None = None) -> Run:
    """Run a config in Flower's simulation: clients are processes on this machine that exchange messages."""
    from flwr.simulation import run_simulation

    threads = {"threads": config.engine.threads or 1}  # for each client; one client runs on each processor
    shared = identified(config.model_copy(update={"engine": config.engine.model_copy(update=threads)}))
    if store.at(shared).finished:
        run = store.open(shared)
        run.check()
        return run
    here, failed, stopped = ServerApp(), list[FedEASError](), threading.Event()

    @here.main()
    def inside(grid: Grid, context: Context) -> None:
        try:
            watched = cast(Grid, WatchedGrid(grid, stopped))
            run_on(watched, shared, store, on_round, window=MessageWindow(IN_SIMULATION * cores()))
        except FedEASError as error:
            failed.append(error)

    with set_at_the_end(stopped), simulated_machine(store.root / ".clients") as resources:
        run_simulation(here, client, num_supernodes=shared.partition.clients, backend_config=resources)
    if failed:
        raise failed[0]
    return store.at(shared)


@contextmanager
def simulated_machine(folder: Path) -> Iterator[dict[str, Any]]:
    """Give Ray's settings, within an environment with the clients' state folder and without telemetry."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    before = dict(os.environ)
    os.environ.update({**QUIET, SIMULATED: "1", STATE: str(folder.resolve())})
    try:
        yield {
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {
                "num_cpus": cores(),
                "include_dashboard": False,
                "logging_level": "ERROR",
                "log_to_driver": False,
            },
        }
    finally:
        os.environ.clear()
        os.environ.update(before)


class FlowerClients:
    """The nodes of Flower's grid as clients; rounds, algorithms and records are the same as on one machine.

    `members` tells which node is which client. `window` limits the messages under way; None for no limit.
    """

    def __init__(self, parts: Parts, grid: Grid, members: Mapping[int, int], window: MessageWindow | None) -> None:
        self.parts, self.grid, self.members, self.window = parts, grid, members, window
        clients = parts.config.partition.clients
        if members and (unbound := set(range(clients)) - set(members)):
            missing = f"the run has {clients} clients, and no node is registered for client {min(unbound)}"
            raise InputError(f"{missing}; add one with `python -m deploy.flower register`, or lower partition.clients")
        self.policy = parse_policy(parts.config.policy)

    def start(self, run: Run, done: Sequence[Record], on_stage: OnStage | None = None) -> ReadyClients | None:
        """Wait for the clients, send each its part of the plan, and let them train their generator if they do that."""
        config = self.parts.config
        # What nodes have of their own is unknown, so that another run cannot know that it is the same.
        stage = GeneratorStage.of(self.parts, run.path if config.partition.scheme == OWN else run.path.parent)
        about = asdict(About.of(self.parts.data.dataset))
        header = {"config": config.model_dump(mode="json"), "about": about}
        last = {client: record["round"] - 1 for record in done for client in trained(record)}
        engine = FlowerEngine(
            self.grid, config.partition.clients, config.engine, header, config.fingerprint, self.parts.device,
            accepted=last, kept=dict(last), members=self.members, scratch=run.path, window=self.window,
        )  # fmt: skip
        engine.meet(anew=not run.checkpoint.exists())
        told = [engine.introductions[client] for client in range(engine.num_clients)]
        own = {}
        for part in ("data", "generator"):
            own[part] = [client for client, each in enumerate(told) if each.get(f"own_{part}")]
            if own[part]:
                log.warning("not known to the run: the own %s of clients %s", part, own[part])
        private = {client: each["privacy"] for client, each in enumerate(told) if "privacy" in each}
        if private:
            log.info("clients that clip their updates and add noise: %s", private)
        sizes = np.array([each["size"] for each in told])
        if self.policy.needs is Needs.COUNTS:
            generated, budget = self._settle_by_counts(engine, run, own["generator"])
        else:
            plans: list[Header] = [{} for _ in told]
            if self.policy.needs is Needs.NUMBERS:
                revealed = [Numbers(each["total"], each["filled"]) for each in told]
                plans = [{"share": asdict(share)} for share in shares(self.policy, revealed)]
            generated = np.array(engine.settle(plans))
            total, real = int(generated.sum()), int(sizes.sum())
            # Without the clients' counts, the imbalance that the budget removes is unknown.
            budget = {"total": total, "imbalance_removed": None, "synthetic_share": total / (total + real)}
        if own["generator"]:
            budget["seen"] = Answer.UNKNOWN  # of what these were made from
        if stage is None or not generated.any():
            return ReadyClients(engine, sizes, generated, budget)
        recipe = asdict(stage.algorithm.preset) if isinstance(stage.algorithm, DiffusionRounds) else {}
        weights = stage.train(lambda: engine.for_generator(recipe), sizes, on_stage)
        if weights is None:
            return None
        engine.give_generator(weights, sorted(set(np.flatnonzero(generated).tolist()) - set(own["generator"])))
        return ReadyClients(engine, sizes, generated, budget, stage=stage)

    def _settle_by_counts(self, engine: FlowerEngine, run: Run, own: list[int]) -> tuple[IntArray, Record]:
        """Compute the plan from the label counts of all clients, and send each its row.

        `own` are the clients with their own generator. Return how many images each client generates, and the budget for
        the run's summary.
        """
        classes = self.parts.data.dataset.classes
        rows = [engine.introductions[client]["counts"] for client in range(engine.num_clients)]
        for client, row in enumerate(rows):
            if len(row) != len(classes):
                known = f"counts of {len(row)} classes, not {len(classes)}"
                raise InputError(f"client {client} sent {known}; correct its data")
        counts = LabelCounts(rows, classes=classes)
        allocation = self.policy.allocate(counts)
        from_runs_generator = allocation.n.copy()
        from_runs_generator[own] = 0
        parse_generator(self.parts.config.generator).check_plan(from_runs_generator)
        check_pool_size(self.parts.config, counts, from_runs_generator)
        run.save_allocation(counts, allocation)
        generated = np.array(engine.settle([{"row": row.tolist()} for row in allocation.n]))
        return generated, budget_record(counts, allocation)
