"""An engine whose clients are nodes of a Flower federation. Flower only transports the messages.

Clients are identified by their partition ids, which they send first: node ids are random. Each message names its task,
client, round and run, and a random number. A reply must repeat that text and come from that client. The server refuses
any other reply, such as a late one. A client is missing from a round if it does not reply in time, or if its reply is
refused.
"""

from __future__ import annotations

import math
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tokenize import TokenError
from typing import TypeVar

import torch
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from torch import Tensor

from fedeas.algorithms.base import MODEL, Arrays, Reply
from fedeas.config.sections import EngineConfig
from fedeas.core.errors import FedEASError, InputError, RunError, log
from fedeas.federation.engines.base import ClientCount, Engine, Task
from fedeas.flower.grid import MessageWindow
from fedeas.flower.wire import NOTHING, Header, Parcel, ReplyStore, dtype_name, header_of, packed, unpacked

POLL, LONGEST_POLL = 0.05, 0.5
"""Seconds between two checks for replies: a tenth of the wait so far, within these bounds."""

PATIENCE = 10.0
"""Seconds after which the server logs that it waits for clients, and sends unidentified nodes another message."""

IN_FLIGHT, MANY = 2**26, 1000  # bytes of replies that are fetched at once, and how many replies at most

INTRODUCTION = 120.0  # seconds that a node has to send its client id, for which it may have to load its data

LONGEST_QUOTE = 200  # characters of a client's text in the log

LARGEST = 1e200  # the largest metric of a client: sums over clients and weights stay finite

UNREADABLE = (LookupError, ValueError, TypeError, ArithmeticError, RuntimeError, TokenError)
"""The errors that reading a damaged reply raises; the last one comes from numpy."""

ANOTHER_APP = re.compile(r"this node runs [^'>]+")
"""How the reason of a node begins that runs another app or version; Flower's executor puts quotes around it."""

Answer = TypeVar("Answer")
Read = Callable[[int, Header, RecordDict], Answer]
"""Reads a reply, given the client (or node) that it is from, its header, and its content."""


@dataclass
class FlowerEngine(Engine):
    """Sends each task to the nodes of its clients, which store their own states."""

    grid: Grid
    num_clients: int
    settings: EngineConfig  # how long to wait, and how many clients must answer
    header: Header  # sent with every message
    run: str = ""  # the run's fingerprint
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))  # where the server's tensors are
    nodes: dict[int, int] = field(default_factory=dict)  # node ids by client
    accepted: dict[int, int] = field(default_factory=dict)
    """The last round in which each client's reply was accepted: the client continues from its state then."""
    kept: dict[int, int] = field(default_factory=dict)
    """The same at the last checkpoint, to which the server may have to return."""
    introductions: dict[int, Header] = field(default_factory=dict)  # how clients introduced themselves
    failures: dict[int, str] = field(default_factory=dict)
    """Why clients, or unidentified nodes, did not answer the last time."""
    refusal: str = ""  # the last reason why a client refused a request
    asked_at: dict[int, float] = field(default_factory=dict)  # when the server last requested the client ids of nodes
    scratch: Path | None = None  # folder for replies that exceed the memory set aside for them
    members: Mapping[int, int] = field(default_factory=dict)
    """Which node is which client, by the keys that the operator lists; without a list, nodes are believed."""
    window: MessageWindow | None = None  # the limit on messages under way; None for no limit
    count: ClientCount = field(default_factory=ClientCount)

    def meet(self, anew: bool) -> None:
        """Wait until all clients have introduced themselves; with `anew`, they remove the files of earlier runs."""
        start = said = time.monotonic()
        while missing := self._unmet():
            now = time.monotonic()  # read before asking the nodes
            left = max(min(PATIENCE, self.settings.timeout), start + self.settings.timeout - now)
            self._meet_newcomers(anew, again_after=PATIENCE, timeout=left)
            missing = self._unmet()
            if self.refusal:
                raise NotReadyError(self.refusal + (f" (clients that are not ready: {missing})" if missing else ""))
            if not missing:
                return
            if now - start > self.settings.timeout:
                awaited = f"clients {missing} did not come within {self.settings.timeout:g} s; start their nodes, "
                raise NotReadyError(f"{awaited}or start them again if they run but do not answer{self._reason()}")
            if time.monotonic() - said > PATIENCE:
                said = time.monotonic()
                log.info("waiting for %d of %d clients: %s ...", len(missing), self.num_clients, missing[:5])
            _pause(start)

    def settle(self, plans: Sequence[Header]) -> list[int]:
        """Send each client its part of the plan; return how many images each of them generates.

        A refusal, or an answer that cannot be read, ends the run.
        """
        answers = self._ask("settle", dict(enumerate(plans)), lambda _, header, __: checked_count(header["total"]))
        return [answers[client] for client in range(len(plans))]

    def for_generator(self, recipe: Header) -> FlowerEngine:
        """The engine for the rounds in which clients train their generator; `recipe` has what the config lacks."""
        header = {**self.header, "generator": recipe}
        return replace(self, header=header, count=ClientCount(), accepted={}, kept={})

    def give_generator(self, file: Path, clients: Sequence[int]) -> None:
        """Send the trained generator to these clients; each must have it before it trains."""
        content = Parcel.of({"file": torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.uint8)})
        self._ask("generator", {client: {} for client in clients}, lambda client, _, __: client, content)

    def map(self, task: Task, broadcast: Arrays, clients: Sequence[int], round: int) -> list[Reply]:
        """Send the task to these clients; return the usable replies in the order of client ids."""
        self._meet_newcomers(anew=False, again_after=math.inf, timeout=self.settings.timeout)
        asked = {"round": round, "task": task}
        headers = {
            client: {**asked, "last": self.accepted.get(client, -1), "keep": self.kept.get(client, -1)}
            for client in sorted(clients)
        }
        self.count.start(len(clients))
        parcel = Parcel.of(broadcast)
        if task is Task.SETUP:
            answers = self._ask("setup", headers, self._reply, parcel)
            return [reply for client in sorted(answers) if (reply := answers[client]) is not None]
        store = ReplyStore(self.scratch, self.device)

        def usable(client: int, header: Header, content: RecordDict) -> Reply:
            """Read a reply and check that it can be averaged: the size, tensors and metrics, all finite."""
            reply, size = self._reply(client, header, content), self.introductions[client]["size"]
            if reply is None:
                raise UnusableError("it is empty")
            if reply.weight != size:
                raise UnusableError(f"a weight of {reply.weight} where {size} samples were announced")
            check_tensors(reply.arrays, broadcast)
            check_metrics(reply.metrics)
            kept = store.keep(reply.arrays)
            self.count.add()
            return replace(reply, arrays=kept)

        trained = self._ask("train", headers, usable, parcel, f"round {round + 1}", self.settings.min_share)
        self.accepted.update(dict.fromkeys(trained, round))
        return [trained[client] for client in sorted(trained)]

    def on_checkpoint(self) -> None:
        """Let clients remove the states that are older than this checkpoint."""
        self.kept = dict(self.accepted)

    def _ask(
        self,
        kind: str,
        headers: Mapping[int, Header],
        read: Read[Answer],
        parcel: Parcel = NOTHING,
        when: str = "",
        share: float = 1.0,
    ) -> dict[int, Answer]:
        """Send each connected client its message; read the replies with `read`, which this share of them must send."""
        self.failures, online = {}, set(self.grid.get_node_ids())
        for client in headers:
            if self.nodes[client] not in online:
                self._fail(client, "its node is not connected")
        connected = {client: header for client, header in headers.items() if client not in self.failures}
        action = kind if kind == "train" else f"query.{kind}"
        found = self._exchange(action, connected, parcel, read, self.settings.timeout)
        if len(found) < min(len(headers), max(1, math.ceil(share * len(headers)))):
            answered = f"{len(found)} of {len(headers)} clients answered, and {share:.0%} must"
            error = NotReadyError if kind == "settle" else RunError
            raise error(f"{when or kind}: {answered}{self._reason()}")
        return found

    def _reply(self, client: int, header: Header, content: RecordDict) -> Reply | None:
        if "nothing" in header:
            return None
        tensors = {name: tensor.to(self.device) for name, tensor in unpacked(content)[1].items()}
        return Reply(client, int(header["weight"]), tensors, header["metrics"])

    def _reason(self) -> str:
        """The first reason why a client did not answer."""
        return next((f" ({reason})" for reason in self.failures.values()), "")

    def _fail(self, key: int, reason: str, claimed: str = "") -> None:
        self.failures[key] = f"{self._name(key, claimed)}: {reason}"
        log.warning("%s", self.failures[key])

    def _name(self, key: int, claimed: str = "") -> str:
        """The name of a client, or of a node: the client that its key is listed for, or the one it claims to be."""
        if key < self.num_clients:
            return f"client {key}"
        client = next((str(client) for client, node in self.members.items() if node == key), claimed)
        return f"client {client} (node {key})" if client else f"node {key}"

    def _unmet(self) -> list[int]:
        """Clients that have not introduced themselves."""
        return sorted(set(range(self.num_clients)) - set(self.nodes))

    def _meet_newcomers(self, anew: bool, again_after: float, timeout: float) -> None:
        """Ask newly connected nodes for their client ids; a client may return as another node."""
        now = time.monotonic()
        strangers = sorted(set(self.grid.get_node_ids()) - set(self.nodes.values()))
        for node in strangers if self.members else ():
            if node not in self.members.values() and node not in self.asked_at:
                self.asked_at[node] = math.inf  # it is never asked
                log.error("node %d: its key is not listed as a client's; it takes no part", node)
        strangers = [node for node in strangers if node not in self.asked_at or now - self.asked_at[node] > again_after]
        self.asked_at.update(dict.fromkeys(strangers, now))
        headers = {node: {"anew": anew} for node in strangers}
        self._exchange("query.hello", headers, NOTHING, self._note_client, min(timeout, INTRODUCTION))

    def _note_client(self, node: int, who: Header, content: RecordDict) -> None:
        client = int(who["client"])
        if not 0 <= client < self.num_clients:
            raise UnusableError(f"it says that it is client {client} of {self.num_clients}")
        if self.members.get(client, node) != node:
            log.error("node %d claims to be client %d, which has another key; it is refused", node, client)
            raise RefusedError(f"it claims to be client {client}, which has another key; correct its partition-id")
        if self.nodes.get(client, node) in set(self.grid.get_node_ids()) - {node}:
            self.asked_at.pop(node, None)  # to be asked again: a killed node counts as connected for a while
            raise RefusedError(
                f"it says that it is client {client}, and so does node {self.nodes[client]}; give each its own "
                "partition-id"
            )
        for number in (who["size"], who.get("total", 0), who.get("filled", 0), *who.get("counts", ())):
            checked_count(number)
        self.nodes[client], self.introductions[client] = node, who

    def _exchange(
        self, action: str, headers: Mapping[int, Header], parcel: Parcel, read: Read[Answer], timeout: float
    ) -> dict[int, Answer]:
        """Send a message to each key, a client or a node; read the replies with `read`, and return the results by key.

        Each message has a text of its own, which its reply repeats. A message is made when it is sent, because it
        expires a fixed time after it was made. Replies are fetched a few at once and read when they come, because all
        of them together may not fit into memory. The timeout starts again with each message that is sent.
        """
        waiting, unsent = dict[str, tuple[int, str]](), list(headers)
        found, at_once = dict[int, Answer](), max(1, min(MANY, IN_FLIGHT // parcel.size))
        since, late = time.monotonic(), False
        while (waiting or unsent) and not late:
            free = len(unsent) if self.window is None else max(0, self.window.size - len(waiting))
            questions, messages = [], []
            for key in unsent[:free]:
                header = headers[key]
                when = f" in round {header['round'] + 1}" if "round" in header else ""
                asked = f"{action} of {self._name(key)}{when} of run {self.run[:16]}, message {secrets.token_hex(8)}"
                content, node = packed({**self.header, **header, "asked": asked}, parcel), self.nodes.get(key, key)
                messages.append(Message(content, dst_node_id=node, message_type=action, ttl=self.settings.timeout + 60))
                questions.append((key, asked))
            if messages:
                waiting |= zip(self.grid.push_messages(messages), questions, strict=True)
                unsent, since = unsent[free:], time.monotonic()
            late = time.monotonic() > since + timeout  # read before the last check, so that no reply in time is lost
            numbers = list(waiting)
            for start in range(0, len(numbers), at_once):
                for reply in self.grid.pull_messages(numbers[start : start + at_once]):
                    if (number := reply.metadata.reply_to_message_id) in waiting:
                        found |= self._read_reply(*waiting.pop(number), reply, read)
                    else:
                        log.warning("refused a reply to message %r: it is repeated, or came too late", number)
            if self.window is not None:
                self.window.note_replies(len(numbers) - len(waiting))
            if waiting and not late:
                _pause(since)
        for key in [*(key for key, _ in waiting.values()), *unsent]:
            self._fail(key, f"no answer within {timeout:g} s")
        return found

    def _read_reply(self, key: int, asked: str, reply: Message, read: Read[Answer]) -> dict[int, Answer]:
        """Check and read a reply; return the result by key, or log why the reply is refused or cannot be used."""
        claimed = ""
        try:
            if reply.has_error():
                reason = reply.error.reason or ""
                another_app = ANOTHER_APP.search(reason)
                raise UnusableError(reason) if another_app is None else RefusedError(another_app[0])
            header = header_of(reply.content)
            if "answers" not in header:
                raise RefusedError("its reply names no message; install the server's version of fedeas on its node")
            if header["answers"] != asked:
                answered = str(header["answers"])[:LONGEST_QUOTE]
                raise UnusableError(f"its reply is to {answered!r}, not to {asked!r}")
            if "refused" in header:
                claimed = str(header.get("client", ""))
                raise RefusedError(str(header["refused"]))
            if key < self.num_clients and header.get("client") != key:
                raise UnusableError(f"it says that it is client {header.get('client')}")
            return {key: read(key, header, reply.content)}
        except UnusableError as error:
            self._fail(key, str(error), claimed)
            if isinstance(error, RefusedError):
                self.refusal = self.failures[key]
        except (FedEASError, torch.OutOfMemoryError):  # the server's own trouble, such as a full disk
            raise
        except UNREADABLE as error:
            self._fail(key, f"cannot be read ({error!r})")
        return {}


class NotReadyError(RunError):
    """Clients refused the run, or did not come; it has not begun."""

    exit_code = InputError.exit_code


class UnusableError(Exception):
    """A reply that cannot be used; the message says why."""


class RefusedError(UnusableError):
    """A client refused, or is refused; the message says what its owner, or the run's owner, must change."""


def check_tensors(arrays: Mapping[str, Tensor], broadcast: Arrays) -> None:
    """Refuse missing model tensors, other shapes or types than were sent, and numbers that are not finite."""
    for name in broadcast:
        if name.startswith(MODEL) and name not in arrays:
            raise UnusableError(f"{name} is missing")
    for name, tensor in arrays.items():
        expected = broadcast.get(name, tensor)
        if (expected.shape, expected.dtype) != (tensor.shape, tensor.dtype):
            found, sent = (f"{tuple(each.shape)} {dtype_name(each)}" for each in (tensor, expected))
            raise UnusableError(f"{name} is {found}, not {sent}")
        if tensor.is_floating_point() and tensor.numel() and not all(map(torch.isfinite, torch.aminmax(tensor))):
            raise UnusableError(f"{name} has numbers that are not finite")


def check_metrics(metrics: object) -> None:
    """Refuse metrics that are not finite numbers by name: a round adds them up."""
    if not isinstance(metrics, dict):
        raise UnusableError("its metrics are not numbers by name")
    for name, value in metrics.items():
        if not isinstance(value, int | float) or not abs(value) <= LARGEST:  # also true of NaN
            raise UnusableError(f"its metric {name!r} is not a finite number")


def checked_count(value: object) -> int:
    """A count that a client sent; ValueError if it is not a whole number from 0 on."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value


def _pause(since: float) -> None:
    """Wait before the next check; after a long wait a longer pause leaves the cores to processes that compute."""
    time.sleep(min(max(POLL, (time.monotonic() - since) / 10), LONGEST_POLL))
