"""How many bytes the server of a run sends to its clients and receives from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flwr.app import Message
from flwr.serverapp import Grid


class MeteredGrid:
    """The part of Flower's grid that a server uses; it counts the bytes of its messages, without Flower's framing."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.sent = self.received = 0

    def get_node_ids(self) -> Iterable[int]:
        """The nodes that are connected."""
        return self.grid.get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages."""
        kept = list(messages)
        self.sent += sum(map(size_of, kept))
        return self.grid.push_messages(kept)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterator[Message]:
        """Fetch replies."""
        for reply in self.grid.pull_messages(message_ids):
            self.received += size_of(reply)
            yield reply


def size_of(message: Message) -> int:
    """Bytes of a message's arrays, texts and other values."""
    if message.has_error():
        return len((message.error.reason or "").encode())
    content = message.content
    arrays = sum(len(array.data) for record in content.array_records.values() for array in record.values())
    values = (value for record in content.config_records.values() for value in record.values())
    return arrays + sum(len(value if isinstance(value, bytes) else str(value).encode()) for value in values)
