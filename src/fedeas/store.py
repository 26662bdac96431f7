"""Run directories: what a run was asked, what it did in each round, and what came out.

``runs/<label>-<fingerprint8>/`` holds ``config.json``, ``env.json``, ``generator.json``, ``allocation.npz``,
``rounds.jsonl`` (a line for each round, appended as it ends), ``checkpoint.safetensors`` and ``summary.json``, which is
written last: its presence means *done*.
"""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedeas.config import RunConfig
from fedeas.counts import Allocation, LabelCounts
from fedeas.courses import Course
from fedeas.errors import InputError, RunError
from fedeas.files import written_whole

Record = dict[str, Any]

ROUNDS, PACKED_ROUNDS = "rounds.jsonl", "rounds.jsonl.gz"


class UsedGenerator(NamedTuple):
    """Which generator a run had: its weights and settings in a hash, and in words."""

    fingerprint: str
    description: str


@dataclass(frozen=True)
class Run:
    """One run directory."""

    path: Path
    config: RunConfig

    @property
    def finished(self) -> bool:
        """Whether the run is done."""
        return (self.path / "summary.json").exists()

    @property
    def checkpoint(self) -> Path:
        """Where the tensors of the last finished round are."""
        return self.path / "checkpoint.safetensors"

    def summary(self) -> Record:
        """What came out; only of a finished run."""
        return _record(self.path / "summary.json")

    def environment(self) -> Record:
        """Versions, device and engine of the latest start."""
        path = self.path / "env.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def generator(self) -> UsedGenerator | None:
        """None for a run that generated nothing, or whose nodes did."""
        try:
            content = json.loads((self.path / "generator.json").read_text("utf-8"))
            return UsedGenerator(*(str(content[name]) for name in UsedGenerator._fields))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def rounds(self) -> list[Record]:
        """All complete lines of ``rounds.jsonl``, or of what `packed_rounds` made of it; a cut-off line is not one."""
        path, packed = self.path / ROUNDS, self.path / PACKED_ROUNDS
        if path.exists() or not packed.exists():
            return [_record(path, line) for line in (path.read_bytes() if path.exists() else b"").split(b"\n")[:-1]]
        try:
            lines = gzip.decompress(packed.read_bytes()).split(b"\n")[:-1]
        except (OSError, EOFError, zlib.error):
            raise InputError(f"{packed}: damaged; remove the directory and run it again") from None
        return [_record(packed, line) for line in lines]

    def packed_rounds(self) -> bytes:
        """The content of ``rounds.jsonl.gz``, a fifth as long; the same lines give the same bytes."""
        return gzip.compress((self.path / ROUNDS).read_bytes(), mtime=0)

    def course(self) -> Course:
        """Accuracy over the rounds that were evaluated."""
        return Course.of(self.rounds())

    def append_round(self, record: Record) -> None:
        """Add the line of a round."""
        with self._writing(), (self.path / ROUNDS).open("a") as file:
            file.write(json.dumps(record) + "\n")

    def keep_rounds(self, count: int) -> None:
        """Drop what was recorded beyond the checkpoint: those rounds will be done again."""
        kept = self.rounds()[:count]
        with self._writing(), written_whole(self.path / ROUNDS) as part:
            part.write_text("".join(json.dumps(record) + "\n" for record in kept))

    def save_allocation(self, counts: LabelCounts, allocation: Allocation) -> None:
        """Keep the counts and the plan beside the results."""
        with self._writing(), written_whole(self.path / "allocation.npz") as part:
            np.savez_compressed(part, counts=counts.n, allocation=allocation.n)

    @property
    def has_allocation(self) -> bool:
        """Whether counts and plan are here; not where the counts stayed with the clients."""
        return (self.path / "allocation.npz").exists()

    def allocation(self) -> tuple[LabelCounts, Allocation]:
        """The counts and the plan."""
        with np.load(self.path / "allocation.npz", allow_pickle=False) as file:
            return LabelCounts(file["counts"]), Allocation(file["allocation"], self.config.policy)

    def write_json(self, name: str, content: Record) -> None:
        """Write ``config.json``, ``env.json`` or ``summary.json``, whole or not at all."""
        with self._writing(), written_whole(self.path / name) as part:
            part.write_text(json.dumps(content, indent=1) + "\n")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out for as long as this one works on the run; the lock dies with the process."""
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(f"{self.path}: another process is working on this run; wait for it") from None
            yield

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, InputError) as error:
            raise RunError(f"{self.path}: cannot be written ({error}); rounds recorded so far are kept") from None


class RunStore:
    """A folder of run directories."""

    def __init__(self, root: str | os.PathLike[str] = "runs") -> None:
        self.root = Path(root)

    def at(self, config: RunConfig) -> Run:
        """The run of this config where it is or would be; nothing is created."""
        return Run(self.root / config.directory, config)

    def open(self, config: RunConfig) -> Run:
        """The run of this config: new, broken off or finished."""
        run = self.at(config)
        try:
            run.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{run.path}: cannot be created ({error.strerror})") from None
        if not (run.path / "config.json").exists():
            run.write_json("config.json", config.model_dump(mode="json"))
        elif read_run(run.path).config.fingerprint != config.fingerprint:
            raise InputError(f"{run.path}: holds another run; move it away")
        return run

    def all(self) -> list[Run]:
        """Every run below the folder, by name."""
        return [read_run(path.parent) for path in sorted(self.root.glob("*/config.json"))]

    def find(self, **where: object) -> list[Run]:
        """Runs whose config has these values; sections are joined to their keys by two underscores.

        ``store.find(algorithm="fedavg", partition__clients=20)``
        """
        return [run for run in self.all() if all(_matches(run.config, key, value) for key, value in where.items())]


def read_run(path: str | os.PathLike[str]) -> Run:
    """The run in this directory."""
    file = Path(path) / "config.json"
    try:
        return Run(Path(path), RunConfig.model_validate_json(file.read_text()))
    except FileNotFoundError:
        raise InputError(f"{path}: not a run directory, config.json is missing") from None
    except ValueError as error:
        raise InputError(f"{file}: not a config of this version ({str(error).splitlines()[0]})") from None


def _record(path: Path, line: bytes | None = None) -> Record:
    """What a file holds, or this line of it."""
    try:
        return dict(json.loads(path.read_bytes() if line is None else line))
    except (ValueError, TypeError) as error:
        raise InputError(f"{path}: damaged ({error}); remove the run's folder to have it done again") from None


def _matches(config: RunConfig, key: str, value: object) -> bool:
    found: Any = config
    for part in key.split("__"):
        found = getattr(found, part)
    return bool(found == value)
