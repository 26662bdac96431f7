"""A grid without a network: it passes messages to the client app in this process and records them."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from pathlib import Path

from flwr.app import Context, Error, Message, Metadata, RecordDict
from flwr.clientapp import ClientApp

from fedeas.flower import engine
from fedeas.flower.app import client

NUMBERS = itertools.count(1)


def message_from_nowhere(content, dst_node_id, message_type, ttl):
    """A message made outside a run of Flower, which would know the run and the sender; it has its number from here."""
    name = f"message-{next(NUMBERS)}"
    return Message(content, metadata=Metadata(1, name, 1, dst_node_id, "", "", time.time(), ttl, message_type))


@dataclass
class StraightGrid:
    """Nodes with random-looking ids, one for each partition."""

    folder: Path
    clients: int
    seen: list[tuple[str, RecordDict, RecordDict]] = field(default_factory=list)
    """Action, message sent, reply."""
    off: set[int] = field(default_factory=set)
    """Clients whose nodes are not connected."""
    silent: set[int] = field(default_factory=set)
    """Clients that accept messages and never answer."""
    change: dict[int, object] = field(default_factory=dict)
    """By client, a function that changes its replies."""
    node_config: dict[str, object] = field(default_factory=dict)
    log: list[tuple[str, int]] = field(default_factory=list)
    replies: dict[str, Message] = field(default_factory=dict)
    app: ClientApp = client

    def __post_init__(self):
        engine.Message = message_from_nowhere

    def get_node_ids(self):
        return [self.node(client) for client in range(self.clients) if client not in self.off]

    @staticmethod
    def node(client):
        return 7_000_003 * (client + 5) % 1_000_033

    def push_messages(self, messages):
        return [self.delivered(message) for message in messages]

    def pull_messages(self, ids):
        return [self.replies.pop(number) for number in list(ids) if number in self.replies]

    def delivered(self, message):
        name = message.metadata.message_id
        who = next(each for each in range(self.clients) if self.node(each) == message.metadata.dst_node_id)
        action = message.metadata.message_type
        self.log.append((action, who))
        if who in self.silent and action == "train":
            return name
        config = {"partition-id": who, "num-partitions": self.clients, "state-dir": str(self.folder / f"node{who}")}
        context = Context(1, message.metadata.dst_node_id, {**config, **self.node_config}, RecordDict(), {})
        try:
            reply = self.app(message, context)
        except Exception as error:  # as Flower does
            reply = Message(Error(2, str(error)), reply_to=message)
        if who in self.change and action == "train":
            reply = Message(self.change[who](reply.content), reply_to=message)
        if not reply.has_error():
            self.seen.append((action, message.content, reply.content))
        self.replies[name] = reply
        return name
