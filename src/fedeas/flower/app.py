"""The two halves of FedEAS as a Flower app, and a simulation of them on one machine."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from fedeas.config.run import RunConfig
from fedeas.core import VERSION
from fedeas.core.arrays import cores
from fedeas.core.devices import torch_precision, torch_threads
from fedeas.core.errors import FedEASError
from fedeas.core.log import log
from fedeas.fast import backend_for
from fedeas.federation.engines.base import Task
from fedeas.federation.run import Progress, execute, identified
from fedeas.flower.client import SIMULATED, Participant, in_simulation, refuse_foreign_code
from fedeas.flower.grid import MessageWindow, MetricsFile, WatchedGrid, set_at_the_end
from fedeas.flower.node_settings import STATE, NodeSettings, TellableError, read_node_config
from fedeas.flower.operator import print_log, told_in_one_line
from fedeas.flower.revealed_counts import Share
from fedeas.flower.server import FlowerClients
from fedeas.flower.wire import About, Header, Parcel, header_of, packed, unpacked
from fedeas.runs.store import Record, Run, RunStore, trained

DEFAULTS = '{"engine": {"name": "flower"}}'
"""Settings of a run that brings none."""

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

MOST_NAMED = 20
"""Clients that are named one by one when a run has finished."""

server = ServerApp()
client = ClientApp()

Answer = tuple[Header, Mapping[str, Tensor]]
Handler = Callable[[Participant, Header, Arrays], Answer]
_known: dict[tuple[int, NodeSettings], Participant] = {}  # of one run: a simulation's process gets many messages of it


def answering(handler: Handler) -> Callable[[Message, Context], Message]:
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
def hello(own: Participant, header: Header, _: Arrays) -> Answer:
    """Introduce this client."""
    if header["anew"]:
        own.begin_anew()
        _known.clear()
    return own.introduce(), {}


@client.query("settle")
@answering
def settle(own: Participant, header: Header, _: Arrays) -> Answer:
    """Store this client's row of the plan."""
    share = Share(**header["share"]) if "share" in header else None
    row = np.array(header["row"], dtype=np.int64) if "row" in header else None
    return {"total": own.settle(share, row)}, {}


@client.query("generator")
@answering
def generator(own: Participant, _: Header, arrays: Arrays) -> Answer:
    """Store the generator that the clients have trained."""
    own.take_generator(arrays["file"])
    return {}, {}


@client.query("setup")
@client.train()
@answering
def work(own: Participant, header: Header, broadcast: Arrays) -> Answer:
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
        _serve(grid, context)


def _serve(grid: Grid, context: Context) -> None:
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
    log.info("finished: %s; %s", run.path, describe_participation(run.rounds()))


def describe_participation(rounds: Sequence[Record]) -> str:
    """Say in how many of their rounds the clients took part.

    >>> describe_participation([{"clients": [0, 1], "missing": [1]}, {"clients": [0, 2]}])
    '2 of 3 clients took part in all their rounds; client 1 in 0 of 1'
    """
    asked = Counter(client for record in rounds for client in record["clients"])
    came = Counter(client for record in rounds for client in trained(record))
    absent = [client for client in sorted(asked) if came[client] < asked[client]]
    words = [f"{len(asked) - len(absent)} of {len(asked)} clients took part in all their rounds"]
    words += [f"client {client} in {came[client]} of {asked[client]}" for client in absent[:MOST_NAMED]]
    if len(absent) > MOST_NAMED:
        words.append(f"and {len(absent) - MOST_NAMED} more missed some")
    return "; ".join(words)


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
        return store.at(shared)
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
