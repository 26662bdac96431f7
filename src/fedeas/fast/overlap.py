"""The loop of `federation.rounds` where a GPU has its next work before it ends the last."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedeas.algorithms.base import Arrays, Reply
from fedeas.algorithms.fedavg import FedAvg
from fedeas.fast.fusion import FusionEngine, awaited
from fedeas.federation.engines.base import Engine, Task
from fedeas.federation.metrics import Evaluation
from fedeas.federation.rounds import Clock, OnRound, Probes, Schedule, round_record, size_of
from fedeas.gpu import values_of

Read = Callable[[], list[float]]


def federate(
    algorithm: FedAvg,
    engine: Engine,
    server: Arrays,
    schedule: Schedule,
    evaluate: Evaluation,
    probes: Probes | None = None,
    on_round: OnRound | None = None,
) -> Arrays:
    """Do what `federation.rounds.federate` does, with the same result.

    A GPU tests the model while the host works on the probes. If the engine overlaps, the results of a round are read
    only when the training of the next clients has been launched.
    """
    overlapping = engine if isinstance(engine, FusionEngine) and engine.overlaps else None
    last, clock = None, Clock()
    for round in range(schedule.start, schedule.rounds):
        clients = schedule.clients(round)
        try:
            message = algorithm.broadcast(server, round)
            replies = engine.map(Task.TRAIN, message, clients, round)
        finally:
            if overlapping:
                overlapping.work_meanwhile()  # if clients fail, the round before is recorded nevertheless
        if last is not None and last.ends:
            break  # what the clients have just done is not used
        clock.lap("clients")
        before, server = server, algorithm.server_update(server, replies, round)
        clock.lap("aggregate")
        testing = values_of(evaluate.totals(server)) if schedule.evaluates(round) else None
        if not overlapping:  # else the clients still train, and this is part of their time
            clock.lap("evaluate")
        probing = {name: values_of(probe(before, replies)[None]) for name, probe in (probes or {}).items()}
        if not overlapping:
            clock.lap("probe")
        last = _Unread(round, clients, size_of(message), replies, server, evaluate, testing, probing, clock, on_round)
        if overlapping and round + 1 < schedule.rounds:
            overlapping.meanwhile = last
            continue
        last()
        if last.ends:
            break
        clock.last = time.perf_counter()  # what `on_round` did belongs to no round
    return server


@dataclass
class _Unread:
    """A round whose results are still to be read; a call reads them and tells `on_round`."""

    round: int
    clients: list[int]
    message: int
    replies: list[Reply]
    server: Arrays
    evaluate: Evaluation
    testing: Read | None
    probing: Mapping[str, Read]
    clock: Clock
    on_round: OnRound | None
    ends: bool = False
    """Whether `on_round` has ended the loop."""

    def __call__(self) -> None:
        replies = [awaited(reply) for reply in self.replies]
        self.clock.lap("clients")
        tested = {} if self.testing is None else self.evaluate.record(self.testing())
        self.clock.lap("evaluate")
        probed = {name: read()[0] for name, read in self.probing.items()}
        self.clock.lap("probe")
        laps, self.clock.laps = self.clock.laps, {}
        record = round_record(self.round, self.clients, self.message, replies, {**tested, **probed}, laps)
        self.ends = self.on_round is not None and bool(self.on_round(record, self.server))
