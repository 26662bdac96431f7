"""An engine whose clients are nodes of a Flower federation. Flower carries the messages; everything else is ours.

Clients are known by their partition ids, which they tell when they are first met: node ids are random. A client that
does not answer in time, or answers with something that cannot be averaged, is missing from its round.
"""

from __future__ import annotations

import json
import logging
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from torch import Tensor

from fedeas.algorithms.base import Arrays, Reply
from fedeas.config import EngineConfig
from fedeas.engines.base import Task
from fedeas.errors import RunError

HEADER, TENSORS, PACKED = "fedeas", "tensors", "packed"
ALIGNMENT = 16
"""Bytes; so that tensors can be read where they lie."""

POLL = 0.05
"""Seconds between two looks for replies."""

PATIENCE = 10.0
"""Seconds of waiting for clients after which it is said."""

log = logging.getLogger("fedeas")

Header = Mapping[str, Any]
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Parcel:
    """Named tensors in one piece, since each piece is a journey of its own; and what is in it."""

    index: str = "[]"
    record: ArrayRecord | None = None

    @staticmethod
    def of(arrays: Arrays) -> Parcel:
        """All tensors, one after the other, each beginning where a tensor of any type may begin."""
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in arrays.items()}
        index = json.dumps([[name, _dtype(tensor), list(tensor.shape)] for name, tensor in tensors.items()])
        data = b"".join(piece for tensor in tensors.values() for piece in _bytes(tensor))
        packed = Array("uint8", (len(data),), "fedeas.packed", data)
        return Parcel(index, ArrayRecord({PACKED: packed}) if data else None)


def _bytes(tensor: Tensor) -> tuple[memoryview, bytes]:
    """A tensor's bytes, and as many as let the next one begin where it may."""
    content = memoryview(tensor.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
    return content, bytes(_room(len(content)) - len(content))


def packed(header: Header, parcel: Parcel | None = None) -> RecordDict:
    """A header and a parcel as the content of a message."""
    parcel = parcel or Parcel()
    content = RecordDict({HEADER: ConfigRecord({"json": json.dumps(dict(header)), "index": parcel.index})})
    if parcel.record is not None:
        content[TENSORS] = parcel.record
    return content


def header_of(content: RecordDict) -> dict[str, Any]:
    """The header alone."""
    header: dict[str, Any] = json.loads(str(content.config_records[HEADER]["json"]))
    return header


def unpacked(content: RecordDict) -> tuple[dict[str, Any], Arrays]:
    """What was packed, with every name, shape and type as it was. The tensors are to be read, not written."""
    index = json.loads(str(content.config_records[HEADER]["index"]))
    data = content.array_records[TENSORS][PACKED].data if TENSORS in content.array_records else b""
    arrays, start = {}, 0
    for name, kind, shape in index:
        dtype = getattr(torch, kind)
        size = math.prod(shape) * dtype.itemsize
        arrays[name] = _read(data, dtype, start, math.prod(shape)).reshape(shape)
        start += _room(size)
    return header_of(content), arrays


def _read(data: bytes, dtype: torch.dtype, start: int, count: int) -> Tensor:
    with warnings.catch_warnings():  # of torch, which has no tensors that cannot be written
        warnings.simplefilter("ignore", UserWarning)
        return torch.frombuffer(data, dtype=dtype, count=count, offset=start) if count else torch.empty(0, dtype=dtype)


def _room(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


@dataclass
class FlowerEngine:
    """Sends each task to the nodes of its clients.

    Args:
        grid: Flower's way to the nodes.
        num_clients: partitions of the federation.
        settings: how long to wait, and how many must answer.
        header: what every message tells.
        device: where the server's tensors are.
    """

    grid: Grid
    num_clients: int
    settings: EngineConfig
    header: Header
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    nodes: dict[int, int] = field(default_factory=dict)
    """Node ids by client."""
    accepted: dict[int, int] = field(default_factory=dict)
    """The last round of each client whose reply was accepted: the state it is to go on from."""
    kept: dict[int, int] = field(default_factory=dict)
    """The same at the last checkpoint, to which the server may have to go back."""
    introductions: dict[int, dict[str, Any]] = field(default_factory=dict)
    """What clients said of themselves."""

    def meet(self, anew: bool) -> None:
        """Wait until all clients have been met; `anew`, they forget what earlier runs left."""
        start = said = time.monotonic()
        while missing := sorted(set(range(self.num_clients)) - set(self.nodes)):
            self._meet_newcomers(anew)
            now = time.monotonic()
            if now - start > self.settings.timeout:
                raise RunError(f"clients {missing} did not come within {self.settings.timeout:g} s; start their nodes")
            if now - said > PATIENCE:
                said = now
                log.info("waiting for %d of %d clients: %s ...", len(missing), self.num_clients, missing[:5])
            time.sleep(POLL)

    def ask(self, action: str, headers: Mapping[int, Header], arrays: Arrays | None = None) -> dict[int, Header]:
        """Send clients a message each; the headers of the answers that came. Why others did not is logged."""
        return self._asked(action, headers, arrays, header_of)

    def map(self, task: Task, broadcast: Arrays, clients: Sequence[int], round: int) -> list[Reply]:
        """The replies that came and can be used, in the order of client ids."""
        self._meet_newcomers(anew=False)
        headers = {client: self._of_client(client, round) for client in sorted(clients)}
        if task is Task.SETUP:
            answers = self._asked("query.setup", headers, broadcast, self._reply)
            self._check_enough(len(answers), len(clients), 1.0, "the set-up")
        else:
            answers = self._asked("train", headers, broadcast, lambda content: _usable(self._reply(content), broadcast))
        replies = [reply for client in sorted(answers) if (reply := answers[client]) is not None]
        if task is Task.TRAIN:
            self._check_enough(len(replies), len(clients), self.settings.min_share, f"round {round}")
            self.accepted.update({reply.client: round for reply in replies})
        return replies

    def client_states(self) -> dict[int, Arrays]:
        """None: clients keep their own. Asked at a checkpoint, so that from now on older ones may go."""
        self.kept = dict(self.accepted)
        return {}

    def restore(self, states: dict[int, Arrays]) -> None:
        """Nothing to give back."""

    def _asked(
        self, action: str, headers: Mapping[int, Header], arrays: Arrays | None, read: Callable[[RecordDict], Answer]
    ) -> dict[int, Answer]:
        online = set(self.grid.get_node_ids())
        away = [client for client in headers if self.nodes[client] not in online]
        for client in away:
            log.warning("client %d: its node is not there", client)
        sent = {client: header for client, header in headers.items() if client not in away}
        parcel = Parcel.of(arrays or {})
        messages = {client: self._message(action, self.nodes[client], each, parcel) for client, each in sent.items()}
        return self._exchanged(messages, read)

    def _reply(self, content: RecordDict) -> Reply | None:
        header, arrays = unpacked(content)
        if "nothing" in header:
            return None
        tensors = {name: tensor.to(self.device) for name, tensor in arrays.items()}
        return Reply(int(header["client"]), int(header["weight"]), tensors, header["metrics"])

    def _of_client(self, client: int, round: int) -> Header:
        return {"round": round, "last": self.accepted.get(client, -1), "keep": self.kept.get(client, -1)}

    def _check_enough(self, came: int, asked: int, share: float, when: str) -> None:
        if came < max(1, math.ceil(share * asked)):
            raise RunError(f"{when}: {came} of {asked} clients answered, and {share:.0%} must; the log says why not")

    def _meet_newcomers(self, anew: bool) -> None:
        """Ask nodes that are not known yet who they are; a client may come back as another node."""
        strangers = sorted(set(self.grid.get_node_ids()) - set(self.nodes.values()))
        if not strangers:
            return
        messages = {node: self._message("query.hello", node, {"anew": anew}, Parcel()) for node in strangers}
        for node, who in self._exchanged(messages, header_of).items():
            self.nodes[int(who["client"])] = node
            self.introductions[int(who["client"])] = who

    def _message(self, action: str, node: int, header: Header, parcel: Parcel) -> Message:
        content = packed({**self.header, **header}, parcel)
        return Message(content, dst_node_id=node, message_type=action, ttl=self.settings.timeout + 60)

    def _exchanged(self, messages: Mapping[int, Message], read: Callable[[RecordDict], Answer]) -> dict[int, Answer]:
        """What came back by key, each read when it comes, while others are still at work."""
        waiting = dict(zip(self.grid.push_messages(list(messages.values())), messages, strict=True))
        found: dict[int, Answer] = {}
        end = time.monotonic() + self.settings.timeout
        while waiting and time.monotonic() < end:
            for reply in self.grid.pull_messages(list(waiting)):
                key = waiting.pop(reply.metadata.reply_to_message_id)
                if (content := self._content(key, reply)) is not None:
                    found[key] = read(content)
            time.sleep(POLL if waiting else 0)
        for key in waiting.values():
            log.warning("client %d: no answer within %g s", key, self.settings.timeout)
        return found

    def _content(self, key: int, reply: Message) -> RecordDict | None:
        if reply.has_error():
            log.warning("client %d: %s", key, reply.error.reason)
            return None
        refusal = reply.content.config_records.get("refused")
        if refusal is not None:
            raise RunError(str(refusal["reason"]))
        return reply.content


def reply_record(reply: Reply | None) -> RecordDict:
    """A client's reply on the wire; one with nothing to say is an empty one."""
    if reply is None:
        return packed({"nothing": True})
    header = {"client": reply.client, "weight": reply.weight, "metrics": reply.metrics}
    return packed(header, Parcel.of(reply.arrays))


def _usable(reply: Reply | None, broadcast: Arrays) -> Reply | None:
    """A reply with every tensor of the broadcast that is to be averaged, in its shape, and with finite numbers."""
    if reply is None:
        return None
    wrong = _wrong(reply, broadcast)
    if wrong:
        log.warning("client %d: its reply is refused: %s", reply.client, wrong)
    return None if wrong else reply


def _wrong(reply: Reply, broadcast: Arrays) -> str:
    if reply.weight < 1:
        return f"a weight of {reply.weight}"
    for name in (name for name in broadcast if name.startswith("model/") and name not in reply.arrays):
        return f"{name} is missing"
    for name, tensor in reply.arrays.items():
        expected = broadcast.get(name)
        if expected is not None and (expected.shape, expected.dtype) != (tensor.shape, tensor.dtype):
            return f"{name} is {_kind(tensor)}, not {_kind(expected)}"
        if tensor.is_floating_point() and not _finite(tensor):
            return f"{name} has numbers that are not finite"
    return ""


def _finite(tensor: Tensor) -> bool:
    """In one pass and without a copy: the least and the greatest tell, and both are NaN if any number is."""
    return not tensor.numel() or all(bool(torch.isfinite(end)) for end in torch.aminmax(tensor))


def _kind(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {_dtype(tensor)}"


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
