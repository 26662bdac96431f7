"""The state of a run in one file, from which it can resume."""

import json
import time
from pathlib import Path
from typing import NamedTuple

from fedeas.algorithms.base import Arrays, as_group, members
from fedeas.core.errors import FedEASError, InputError, RunError
from fedeas.core.records import is_there
from fedeas.core.weight_files import described, read_tensors, write_tensors
from fedeas.federation.engines.base import Engine

SERVER, CLIENT = "server/", "client/"
SHARE = 0.02  # largest share of the time that saving may take


class Checkpoint(NamedTuple):
    """The state of a run after some rounds."""

    rounds: int
    server: Arrays
    clients: dict[int, Arrays]


def save_checkpoint(path: Path, fingerprint: str, rounds: int, server: Arrays, clients: dict[int, Arrays]) -> None:
    """Save the state after `rounds` rounds: the server's, and that of every client that has one."""
    tensors = as_group(server, SERVER)
    for client, arrays in clients.items():
        tensors |= as_group(arrays, f"{CLIENT}{client}/")
    tensors = {key: tensor.contiguous() for key, tensor in tensors.items()}
    try:
        write_tensors(path, tensors, {"fedeas": json.dumps({"fingerprint": fingerprint, "rounds": rounds})})
    except FedEASError as error:
        raise RunError(f"{error}; the checkpoint before it is kept") from None


class Saver:
    """Saves the state of a run after its rounds, but so rarely that it takes at most a fiftieth of the time.

    After a kill, rounds since the last save are done again, with the same result: the caller drops their records.
    `before` is the state from which the run resumes, if there is one, and `done` the number of rounds before it.
    """

    def __init__(self, path: Path, fingerprint: str, total: int) -> None:
        self.path, self.fingerprint, self.total = path, fingerprint, total
        self.last = self.cost = 0.0
        self.before = load_checkpoint(path, fingerprint) if is_there(path) else None
        self.done = self.before.rounds if self.before else 0

    def __call__(self, rounds: int, server: Arrays, engine: Engine, at_once: bool) -> None:
        """Save the state if it is time, if these are all rounds, or if `at_once`."""
        start = time.perf_counter()
        if rounds < self.total and not at_once and start - self.last < self.cost / SHARE:
            return
        save_checkpoint(self.path, self.fingerprint, rounds, server, engine.client_states())
        self.last = time.perf_counter()
        self.cost = self.last - start
        engine.on_checkpoint()


def load_checkpoint(path: Path, fingerprint: str, remedy: str = "remove it to start again") -> Checkpoint:
    """Read a checkpoint; one of another config is refused. `remedy` says what to do about one that cannot be read."""
    try:
        metadata, tensors = read_tensors(path)
    except InputError as error:
        raise InputError(f"{error}; {remedy}") from None
    about = described(metadata)
    if about.get("fingerprint") != fingerprint:
        raise InputError(f"{path}: the checkpoint belongs to another config; remove it, or use another folder")
    clients: dict[int, Arrays] = {}
    for key, tensor in members(tensors, CLIENT).items():
        client, _, name = key.partition("/")
        clients.setdefault(int(client), {})[name] = tensor
    return Checkpoint(int(about["rounds"]), members(tensors, SERVER), clients)
