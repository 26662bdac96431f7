"""Run directories: config, records of rounds, checkpoint and summary of a run.

``runs/<label>-<fingerprint8>/`` holds ``config.json``, ``env.json``, ``generator.json``, ``allocation.npz``,
``rounds.jsonl`` (a line for each round, appended as it ends), ``images.jsonl`` (how many images were in the bank when
clients first asked), ``checkpoint.safetensors`` and ``summary.json``, which is written last: its presence means *done*.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import BaseModel, Field, ValidationError, field_validator

from fedeas.config.run import RunConfig, recorded_config
from fedeas.config.sections import ContentConfig
from fedeas.core.errors import FedEASError, InputError, RunError
from fedeas.core.files import PathLike, append_line, make_folder, written_whole
from fedeas.core.foreign_text import for_html
from fedeas.core.locks import locked
from fedeas.core.log import log
from fedeas.core.provenance import Answer
from fedeas.core.records import (
    Journal,
    damaged,
    line_of,
    parsed,
    read_arrays,
    read_bytes,
    read_lines,
    read_optional_array,
    read_record,
    unreadable,
    write_arrays,
    write_record,
)
from fedeas.core.records import Record as Record
from fedeas.core.weight_files import METADATA, model_weights, read_header, weights_digest
from fedeas.generators.kinds import content_digest
from fedeas.planning.counts import Allocation, LabelCounts, import_pandas

ROUNDS = "rounds.jsonl"
PACKED_RUNS = ".parquet"
"""Ends the name of a file with many finished runs; see `fedeas.runs.packed`."""
LOCK = ".lock"
MARKS = ("config.json", ROUNDS, "summary.json")
"""Files that show that a folder is a run directory, damaged or not."""
REMEDY = "restore it from a copy, or remove the run's folder to run it again"

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Amount = Annotated[Number, Field(ge=0)]
Share = Annotated[Amount, Field(le=1)]


class Seconds(BaseModel):
    """Seconds of a run by kind."""

    generate: Number
    train: Number
    total: Number


class Summary(BaseModel):
    """The measures that tables and charts take from a run's summary; None if a number was not measured."""

    accuracy: Share
    final: Share
    peak: Share
    total: Amount
    generated: Amount
    steps: Number | None
    samples: Number | None
    rounds_to_threshold: Number | None
    gamma_hat: Number | None
    imbalance_removed: Number | None
    window: list[Annotated[int, Field(strict=True, ge=1)]]
    seconds: Seconds
    seen: Answer = Answer.CLEAN

    @field_validator("window")
    @classmethod
    def _check_window(cls, window: list[int]) -> list[int]:
        if len(window) != 2 or window != sorted(window):
            raise ValueError("give the first and the last of some rounds")
        return window


class UsedGenerator(NamedTuple):
    """The generator of a run: a hash of weights and settings, and a description."""

    fingerprint: str
    description: str


@dataclass(frozen=True)
class Run:
    """One run directory."""

    path: Path
    config: RunConfig

    @property
    def finished(self) -> bool:
        """Whether the run is finished."""
        return (self.path / "summary.json").is_file()

    @cached_property
    def method(self) -> str:
        """The same for all seeds of a method, whatever version of data, weights or code they used."""
        return self.config.unpinned.method

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that determines the result."""
        return self.config.fingerprint

    @cached_property
    def seed(self) -> int:
        """The seed."""
        return self.config.seed

    @property
    def content(self) -> ContentConfig:
        """Digests of data, weights and code."""
        return self.config.content

    @property
    def checkpoint(self) -> Path:
        """Path of the checkpoint, which holds the state of server and clients."""
        return self.path / "checkpoint.safetensors"

    def summary(self) -> Record:
        """The measures; only for a finished run."""
        return read_record(self.path / "summary.json", REMEDY)

    @property
    def seen(self) -> str:
        """A note if the run's generator was made from images that it tests on, or may have been; else empty."""
        return Answer(self.summary().get("seen", Answer.CLEAN)).note if self.finished else ""

    def environment(self) -> Record:
        """Versions, device and threads of the latest start."""
        path = self.path / "env.json"
        return read_record(path, REMEDY) if path.exists() else {}

    def generator(self) -> UsedGenerator | None:
        """The generator; None if the run generated nothing or its Flower nodes did."""
        path = self.path / "generator.json"
        if not path.exists():
            return None
        content = read_record(path, REMEDY)
        if missing := set(UsedGenerator._fields) - content.keys():
            raise damaged(path, f"{', '.join(sorted(missing))} is missing", REMEDY)
        return UsedGenerator(*(str(content[name]) for name in UsedGenerator._fields))

    @property
    def has_rounds(self) -> bool:
        """Whether its rounds are recorded; they may have been left out where many runs are packed."""
        return True

    def rounds(self) -> list[Record]:
        """The records in all complete lines of ``rounds.jsonl``; a cut-off line is ignored."""
        path = self.path / ROUNDS
        found = read_lines(path, self._lines(), REMEDY)
        return complete(path, found, self.summary().get("rounds", 0) if self.finished else 0)

    def _lines(self) -> list[bytes]:
        path = self.path / ROUNDS
        return read_bytes(path).split(b"\n")[:-1] if path.exists() else []

    def to_frame(self) -> Any:
        """The rounds as a pandas DataFrame: accuracy, losses, steps, images, and seconds by kind."""
        pandas = import_pandas("to_frame")
        rows = [{**each, **{f"{name} s": spent for name, spent in each["seconds"].items()}} for each in self.rounds()]
        frame = pandas.DataFrame(rows).drop(columns=["clients", "missing", "images", "seconds"], errors="ignore")
        return frame.set_index("round") if rows else frame

    def _repr_html_(self) -> str:
        """The run in a notebook: its settings and what it has reached."""
        reached = f"accuracy {self.summary()['accuracy']:.2%}" if self.finished else "not finished"
        facts = {
            "run": self.path.name, "policy": self.config.policy, "algorithm": self.config.algorithm,
            "rounds": f"{len(self.rounds())} of {self.config.rounds.total}",
            "result": f"{reached}; {self.seen}".strip("; "),
        }  # fmt: skip
        rows = (f"<tr><th>{for_html(name)}</th><td>{for_html(value)}</td></tr>" for name, value in facts.items())
        return f"<table>{''.join(rows)}</table>"

    def noted_images(self) -> list[Record]:
        """The notes of `note_images` since the first start of the run."""
        return self._images.read()

    def note_images(self, note: Record) -> None:
        """Record how many images of some clients were in the bank, before the others are made."""
        with self._writing():
            self._images.add(note)

    @property
    def _images(self) -> Journal:
        return Journal(self.path / "images.jsonl", REMEDY)

    def check(self) -> None:
        """Read everything but the tensors of the checkpoint; an `InputError` names the first file that is damaged."""
        self.environment(), self.generator(), self.rounds(), self.noted_images()
        if self.finished:
            self.check_summary()
        if self.has_allocation:
            self.allocation()
        if self.finished or not self.checkpoint.exists():
            return
        try:
            with self.checkpoint.open("rb") as file:  # its length is compared with its header; its tensors are not read
                header, start = read_header(file)
                ends = [entry["data_offsets"][1] for name, entry in header.items() if name != METADATA]
                if file.seek(0, os.SEEK_END) != start + max(ends, default=0):
                    raise ValueError("its length differs from what its header says")
        except OSError as error:
            raise unreadable(self.checkpoint, error) from None
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise damaged(self.checkpoint, error, "remove this file to start the run again") from None

    def check_summary(self) -> None:
        """Refuse a summary without the measures that tables and charts use, or with one that cannot be right."""
        content = self.summary()
        try:
            Summary.model_validate(content)
        except ValidationError as error:
            first = error.errors()[0]
            name, wanted = str(first["loc"][0]), first["msg"].removeprefix("Value error, ")
            problem = f"{name} is {content[name]!r}: {wanted}" if name in content else f"{name} is missing"
            raise damaged(self.path / "summary.json", problem, REMEDY) from None

    def append_round(self, record: Record) -> None:
        """Add the line of a round."""
        with self._writing():
            append_line(self.path / ROUNDS, line_of(record))

    def keep_rounds(self, count: int) -> None:
        """Drop the records after the checkpoint, complete or not: these rounds will be done again."""
        path, lines = self.path / ROUNDS, self._lines()[:count]
        complete(path, read_lines(path, lines, REMEDY), count)
        with self._writing(), written_whole(path) as part:
            part.write_bytes(b"".join(line + b"\n" for line in lines))

    def save_allocation(self, counts: LabelCounts, allocation: Allocation) -> None:
        """Save the counts and the plan."""
        names = {"clients": counts.clients, "classes": counts.classes}
        given = {key: np.array(value) for key, value in names.items() if value is not None}
        with self._writing():
            write_arrays(self.path / "allocation.npz", counts=counts.n, allocation=allocation.n, **given)

    @property
    def has_allocation(self) -> bool:
        """Whether counts and plan are saved; they are not if the counts stayed with the clients."""
        return (self.path / "allocation.npz").exists()

    @property
    def is_kept(self) -> bool:
        """Whether this is a small copy of a finished run, with neither plan nor checkpoint."""
        return False

    def allocation(self) -> tuple[LabelCounts, Allocation]:
        """The counts and the plan."""
        path = self.path / "allocation.npz"
        if not self.has_allocation:
            raise InputError(f"{path}: no such file; {REMEDY}")
        counts, allocation = read_arrays(path, ("counts", "allocation"), REMEDY)
        clients, classes = (read_optional_array(path, name, REMEDY) for name in ("clients", "classes"))
        try:
            table = LabelCounts(counts, clients, classes)
            return table, Allocation(allocation, self.config.policy).named_as(table)
        except FedEASError as error:
            raise damaged(path, error, REMEDY) from None

    @property
    def is_outdated(self) -> bool:
        """Whether the name of its weights or generator stands for other content now; not if nothing has that name."""
        config, then = self.config, self.content
        try:
            weights = model_weights(config.model.weights)
            now = content_digest(config.generator, config.data.dataset)
            pairs = (then.weights, weights_digest(weights) if weights else ""), (then.generator, now)
        except InputError:
            return False
        return any(old and new and old != new for old, new in pairs)

    def write_json(self, name: str, content: Record) -> None:
        """Write ``config.json``, ``env.json`` or ``summary.json``, whole or not at all."""
        with self._writing():
            write_record(self.path / name, content)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out while this one works on the run; the lock ends with the process."""
        with locked(self.path / LOCK, f"{self.path}: another process is working on this run; wait for it"):
            yield

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except FedEASError as error:
            raise RunError(f"{error}; rounds recorded so far are kept") from None


def complete(path: Path, records: list[Record], expected: int) -> list[Record]:
    """The records of rounds in a file; refused if one is missing, at the end or between others."""
    if len(records) < expected:
        raise damaged(path, f"{len(records)} of {expected} rounds are there", REMEDY)
    for number, record in enumerate(records, 1):
        if record.get("round", number) != number:
            raise damaged(path, f"line {number} is of round {record['round']}", REMEDY)
    return records


class RunStore:
    """A folder of run directories."""

    def __init__(self, root: PathLike = "runs") -> None:
        self.root = Path(root)

    def at(self, config: RunConfig) -> Run:
        """The run of this config, which need not exist; nothing is created."""
        return Run(self.root / config.directory, config)

    def open(self, config: RunConfig) -> Run:
        """The run of this config: new, interrupted or finished."""
        run = self.at(config)
        make_folder(run.path)
        if not (run.path / "config.json").exists():
            run.write_json("config.json", config.model_dump(mode="json"))
        elif (there := read_run(run.path)).config.fingerprint != config.fingerprint:
            raise InputError(f"{run.path}: holds another run; move it away")
        elif there.config.is_old and not there.finished:
            raise InputError(f"{run.path}: version 0.1 began this run, and this version cannot resume it; move it away")
        return run

    def folders(self) -> list[Path]:
        """The run directories below the folder, damaged or not, by name."""
        return sorted({path.parent for name in MARKS for path in self.root.glob(f"*/{name}")})

    def all(self) -> list[Run]:
        """Every run below the folder, by name; one that is damaged is left out with a warning."""
        return sound_runs(self.folders())


def read_run(path: PathLike) -> Run:
    """The run in this directory."""
    file = Path(path) / "config.json"
    try:
        return Run(Path(path), recorded_config(parsed(file, file.read_bytes(), REMEDY)))
    except (FileNotFoundError, NotADirectoryError):
        holds = f"; it holds some: {path}/*" if any(Path(path).glob("*/config.json")) else ""
        raise InputError(f"{path}: not a run directory, config.json is missing{holds}") from None
    except OSError as error:
        raise unreadable(file, error) from None
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{file}: not a config of this version ({str(error).splitlines()[0]})") from None


def sound_runs(paths: Iterable[Path], check: Callable[[Run], object] = Run.check) -> list[Run]:
    """The runs in these directories; one that is damaged, or does not pass the check, is left out with a warning."""
    found = []
    for path in paths:
        try:
            run = read_run(path)
            check(run)
        except InputError as error:
            log.warning("left out: %s", error)
        else:
            found.append(run)
    return found


def trained(record: Record) -> list[int]:
    """The clients that took part in a round and replied."""
    return sorted(set(record["clients"]) - set(record.get("missing", ())))
