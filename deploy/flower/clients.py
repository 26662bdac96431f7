"""Which node is which client: the operator's file ``clients.toml``, one line for each client.

The file is in the folder FLWR_HOME, as Flower's own settings are. ``fedeas flower run`` reads it: in that run, the
server takes each client's messages from its node alone.
"""

from __future__ import annotations

import fcntl
import os
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from deploy.flower.programs import flwr
from fedeas import InputError

PAUSE = 1.0
"""Seconds between two questions to the SuperLink."""


def home() -> Path:
    """Flower's own folder."""
    return Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr")


class Clients:
    """The clients of the SuperLink that the operator's Flower settings name."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.file = home / "clients.toml"

    def read(self) -> dict[int, int]:
        """The node of each client."""
        try:
            given = tomllib.loads(self.file.read_text()) if self.file.exists() else {}
            return {int(client): int(node) for client, node in given.items()}
        except ValueError as error:
            raise InputError(f"{self.file}: no list of clients ({error}); its lines are CLIENT = NODE") from None

    def register(self, public_key: Path, client: int | None = None) -> int:
        """Register a node's key as a client's, by default the first that is free; return the client's number."""
        with self._changed() as nodes:
            number = next(each for each in count() if each not in nodes) if client is None else client
            if number in nodes:
                raise InputError(f"{self.file}: client {number} has a key; withdraw it first with `unregister`")
            answer = flwr("supernode", "register", str(public_key), home=self.home)
            nodes[number] = int(answer["node-id"])
        return number

    def unregister(self, client: int) -> None:
        """Withdraw a client's key: its node is cut off, and the SuperLink never accepts that key again."""
        with self._changed() as nodes:
            if client not in nodes:
                listed = ", ".join(map(str, sorted(nodes))) or "none"
                raise InputError(f"{self.file}: there is no client {client}; it lists {listed}")
            flwr("supernode", "unregister", str(nodes.pop(client)), home=self.home)

    def states(self) -> dict[int, str]:
        """Each client's state at the SuperLink, such as online or offline."""
        listed = flwr("supernode", "list", home=self.home)["nodes"]
        known = {int(node["node-id"]): str(node["status"]) for node in listed}
        return {client: known.get(node, "not registered") for client, node in sorted(self.read().items())}

    def await_all(self, patience: float) -> dict[int, str]:
        """The states as soon as all clients are online, or after `patience` seconds."""
        end = time.monotonic() + patience
        while True:
            late = time.monotonic() > end
            try:
                states = self.states()
            except InputError:  # the SuperLink may be starting
                if late:
                    raise
                states = {}
            if late or set(states.values()) == {"online"}:
                return states
            time.sleep(PAUSE)

    @contextmanager
    def _changed(self) -> Iterator[dict[int, int]]:
        """Give the list to a ``with`` block and write it at its end; other commands that change it wait."""
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / ".clients.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            nodes = self.read()
            yield nodes
            written = self.file.with_suffix(".new")
            written.write_text("".join(f"{client} = {node}\n" for client, node in sorted(nodes.items())))
            written.replace(self.file)
