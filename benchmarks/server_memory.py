"""How much memory does the server of a Flower run need, and does it grow with the number of clients?

A grid without a network answers for all clients of one round: each reply is a model of its own, made when the server
fetches it. The server averages them as in a run. Each number of clients is measured in a process of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from flwr.app import Message, Metadata, RecordDict
from measure import in_fresh_process, save

from fedeas.algorithms import parse_algorithm
from fedeas.algorithms.base import Arrays
from fedeas.config import EngineConfig
from fedeas.federation.engines.base import Task
from fedeas.flower import engine
from fedeas.flower.wire import Parcel, header_of, packed

SIZE = 10
"""Samples of each client."""


class ReplyingGrid:
    """All clients' nodes, each with the node id 1000 + client; replies are made when they are fetched."""

    def __init__(self, clients: int, like: Arrays) -> None:
        self.clients, self.like = clients, like
        self.waiting: dict[str, Message] = {}

    def get_node_ids(self) -> list[int]:
        return [1000 + client for client in range(self.clients)]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        self.waiting |= {message.metadata.message_id: message for message in messages}
        return list(self.waiting)

    def pull_messages(self, numbers: Sequence[str]) -> list[Message]:
        return [self._answer(self.waiting.pop(number)) for number in numbers]

    def _answer(self, message: Message) -> Message:
        client = message.metadata.dst_node_id - 1000
        own = {name: tensor + client for name, tensor in self.like.items()}
        asked = header_of(message.content)["asked"]
        header = {"client": client, "weight": SIZE, "metrics": {"loss": 0.0}, "answers": asked}
        return Message(packed(header, Parcel.of(own)), reply_to=message)


def message_from_nowhere(content: RecordDict, dst_node_id: int, message_type: str, ttl: float) -> Message:
    """A message made outside a run of Flower, with the id of its node as its own."""
    return Message(  # type: ignore[call-overload]
        content, metadata=Metadata(1, str(dst_node_id), 1, dst_node_id, "", "", time.time(), ttl, message_type)
    )


def one_round(clients: int, megabytes: float, scratch: Path | None = None) -> Arrays:
    """The server's state after one round of FedAvg with models of so many megabytes."""
    engine.Message = message_from_nowhere  # type: ignore[assignment, misc]
    numbers = int(megabytes * 1e6) // 4 // 50
    server = {f"model/layer{index}": torch.zeros(numbers) for index in range(50)}
    nodes = engine.FlowerEngine(
        ReplyingGrid(clients, server),  # type: ignore[arg-type]
        clients, EngineConfig(name="flower"), {}, scratch=scratch,
        nodes={client: 1000 + client for client in range(clients)},
        introductions={client: {"size": SIZE} for client in range(clients)},
    )  # fmt: skip
    algorithm = parse_algorithm("fedavg")
    replies = nodes.map(Task.TRAIN, algorithm.broadcast(server, 0), range(clients), 0)
    return algorithm.server_update(server, replies, 0)


SCRIPT = """
import json, sys, time
from measure import peak_resident_bytes
from server_memory import one_round
start = time.perf_counter()
mean = one_round(int(sys.argv[1]), float(sys.argv[2]))
expected = (int(sys.argv[1]) - 1) / 2
assert all(abs(float(tensor[0]) - expected) < 1e-3 * max(expected, 1) for tensor in mean.values())
print(json.dumps({"bytes": peak_resident_bytes(), "seconds": time.perf_counter() - start}))
"""


def main(numbers: Sequence[int] = (1, 50, 500), megabytes: float = 44.7) -> None:
    """Measure rounds with replies of a ResNet-18's size."""
    rows: list[dict[str, object]] = []
    for clients in numbers:
        found = in_fresh_process(SCRIPT, clients, megabytes)
        rows.append({"replies": clients, "peak memory (MB)": round(found["bytes"] / 1e6),
                     "seconds": round(found["seconds"], 1)})  # fmt: skip
    save("server-memory", f"Memory of a Flower server that averages replies of {megabytes} MB", rows)


if __name__ == "__main__":
    main()
