"""The round loop: choose clients, broadcast, collect, aggregate, evaluate, record."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from torch import Tensor

from fedeas.algorithms.base import Arrays, Reply
from fedeas.algorithms.fedavg import FedAvg
from fedeas.core.arrays import stream
from fedeas.core.records import Record
from fedeas.federation.engines.base import Engine, Task

Evaluate = Callable[[Arrays], Record]
Probe = Callable[[Arrays, Sequence[Reply]], Tensor]
Probes = Mapping[str, Probe]
OnRound = Callable[[Record, Arrays], bool | None]


@dataclass(frozen=True)
class Schedule:
    """Which clients train in which round, and when the model is tested.

    The clients of a round depend on (seed, round) alone, so that every policy and every engine trains the same ones.
    """

    rounds: int
    num_clients: int
    participants: int
    seed: int
    eval_every: int = 1
    start: int = 0

    def clients(self, round: int) -> list[int]:
        """The ids of a round's clients, in order.

        >>> Schedule(rounds=5, num_clients=6, participants=3, seed=0).clients(round=2)
        [0, 2, 3]
        """
        rng = stream("clients", self.seed, round)
        return sorted(rng.choice(self.num_clients, self.participants, replace=False).tolist())

    def upcoming(self) -> Iterator[int]:
        """The clients of all rounds, one round after the other.

        >>> list(Schedule(rounds=2, num_clients=6, participants=3, seed=0).upcoming())
        [2, 3, 4, 0, 4, 5]
        """
        return chain.from_iterable(map(self.clients, range(self.start, self.rounds)))

    def evaluates(self, round: int) -> bool:
        """Whether the model is tested after this round; after the last one it always is."""
        return (round + 1) % self.eval_every == 0 or round + 1 == self.rounds


def set_up(algorithm: FedAvg, engine: Engine, server: Arrays, num_clients: int) -> Arrays:
    """Do the exchange before the first round, if the algorithm needs one."""
    if not algorithm.needs_setup:
        return server
    return algorithm.setup_server(server, engine.map(Task.SETUP, server, range(num_clients), -1))


def federate(
    algorithm: FedAvg,
    engine: Engine,
    server: Arrays,
    schedule: Schedule,
    evaluate: Evaluate,
    probes: Probes | None = None,
    on_round: OnRound | None = None,
) -> Arrays:
    """Run the rounds from `schedule.start` on and return the server's last state: Algorithm 1 of the paper.

    `evaluate` tests the server's state; `probes` measure the clients' replies, by name. `on_round` gets each round's
    record and the state after it; if it returns True, the loop ends. Rounds are numbered from 0 in the code and from 1
    in records.
    """
    for round in range(schedule.start, schedule.rounds):
        clock = Clock()
        clients = schedule.clients(round)
        message = algorithm.broadcast(server, round)
        replies = engine.map(Task.TRAIN, message, clients, round)
        clock.lap("clients")
        before, server = server, algorithm.server_update(server, replies, round)
        clock.lap("aggregate")
        tested = evaluate(server) if schedule.evaluates(round) else {}
        clock.lap("evaluate")
        probed = {name: float(probe(before, replies)) for name, probe in (probes or {}).items()}
        clock.lap("probe")
        record = round_record(round, clients, size_of(message), replies, {**tested, **probed}, clock.laps)
        if on_round is not None and on_round(record, server):
            break
    return server


def round_record(
    number: int, clients: list[int], message: int, replies: Sequence[Reply], measures: Record, laps: Mapping[str, float]
) -> Record:
    """The record of a round: its clients, the measures, the clients' metrics, bytes of tensors, and seconds by kind.

    `message` is the size of the broadcast; all chosen clients receive it.

    `engine` is the time not spent on clients' work. If clients work at the same time, their seconds are scaled so that
    all parts add up to the round's. Private clients tell their largest epsilon, but no loss.
    """
    told = [{name: float(value) for name, value in reply.metrics.items()} for reply in replies]
    record: Record = {"round": number + 1, "clients": clients}
    if missing := sorted(set(clients) - {reply.client for reply in replies}):
        record["missing"] = missing
    record |= measures
    losses = [(own["loss"], reply.weight) for own, reply in zip(told, replies, strict=True) if "loss" in own]
    if losses:
        record["train_loss"] = sum(loss * weight for loss, weight in losses) / sum(weight for _, weight in losses)
    if epsilons := [own["epsilon"] for own in told if "epsilon" in own]:
        record["epsilon"] = max(epsilons)
    for name in ("steps", "samples"):
        record[name] = int(sum(own.get(name, 0.0) for own in told))
    record["bytes"] = {"down": message * len(clients), "up": sum(size_of(reply.arrays) for reply in replies)}
    seconds = {name: sum(own.get(f"{name}_seconds", 0.0) for own in told) for name in ("generate", "prepare", "train")}
    whole, busy = laps["clients"], sum(seconds.values())
    if busy > whole:
        seconds = {name: value * whole / busy for name, value in seconds.items()}
    seconds["engine"] = whole - sum(seconds.values())
    seconds |= {name: value for name, value in laps.items() if name != "clients"}
    return {**record, "seconds": {name: round(value, 6) for name, value in seconds.items()}}


def size_of(arrays: Mapping[str, Tensor]) -> int:
    """Bytes of these tensors."""
    return sum(tensor.numel() * tensor.itemsize for tensor in arrays.values())


class Clock:
    """Laps of wall-clock time by name, one after the other."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self.last = time.perf_counter()

    def lap(self, name: str) -> None:
        """End a lap; a name may have several."""
        now = time.perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + now - self.last
        self.last = now
