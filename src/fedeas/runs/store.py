"""Run directories: config, records of rounds, checkpoint and summary of a run.

``runs/<label>-<fingerprint8>/`` holds ``config.json``, ``env.json``, ``generator.json``, ``allocation.npz``,
``rounds.jsonl`` (a line for each round, appended as it ends), ``images.jsonl`` (how many images were in the bank when
clients first asked), ``checkpoint.safetensors`` and ``summary.json``, which is written last: its presence means *done*.
Each holds the run's fingerprint, most of them as ``run``, so that a file of another run is noticed.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import BaseModel, Field, ValidationError, field_validator

from fedeas.config.run import RunConfig, recorded_config
from fedeas.config.sections import ContentConfig
from fedeas.core.deadline import seconds_left
from fedeas.core.errors import FedEASError, InputError, RunError, log
from fedeas.core.files import PathLike, make_folder
from fedeas.core.locks import is_held, locked
from fedeas.core.provenance import Answer
from fedeas.core.records import (
    Journal,
    damaged,
    is_there,
    matching,
    parsed,
    read_arrays,
    read_record,
    unreadable,
    write_arrays,
    write_record,
)
from fedeas.core.records import Record as Record
from fedeas.core.weight_files import description, model_weights, weights_digest
from fedeas.generators.kinds import content_digest
from fedeas.planning.counts import Allocation, LabelCounts, import_pandas

ROUNDS = "rounds.jsonl"
RUN = "run"  # the key of the run's fingerprint in each of its files
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


class RunState(StrEnum):
    """What a run is doing."""

    RUNNING = "running"
    STOPPED = "stopped"
    FINISHED = "finished"


@dataclass(frozen=True)
class RunProgress:
    """State of a run, its rounds so far, when it last wrote something, and the seconds left if that can be said."""

    state: RunState
    rounds: int
    total: int
    changed: datetime
    seconds_left: float | None


@dataclass(frozen=True)
class Run:
    """One run directory."""

    path: Path
    config: RunConfig
    unnamed: set[str] = field(default_factory=set, init=False, repr=False, compare=False)
    """Files that were read and do not name their run, as those of earlier versions."""

    @property
    def unverified(self) -> str:
        """A note if a file that was read does not name its run, and may be another run's; else empty."""
        return ", unverified" if self.unnamed else ""

    @property
    def finished(self) -> bool:
        """Whether the run is finished."""
        return is_there(self.path / "summary.json")

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
        found = self._record("summary")
        if found is None:
            raise InputError(f"{self.path}: not finished, so that it has no summary; finish it with `fedeas run`")
        return found

    @property
    def seen(self) -> str:
        """A note if the run's generator was made from images that it tests on, or may have been; else empty."""
        return Answer(self.summary().get("seen", Answer.CLEAN)).note if self.finished else ""

    def environment(self) -> Record:
        """Versions, device and threads of the latest start."""
        return self._record("env") or {}

    def generator(self) -> UsedGenerator | None:
        """The generator; None if the run generated nothing or its Flower nodes did."""
        content = self._record("generator")
        if content is None:
            return None
        if missing := set(UsedGenerator._fields) - content.keys():
            raise damaged(self.path / "generator.json", f"{', '.join(sorted(missing))} is missing", REMEDY)
        return UsedGenerator(*(str(content[name]) for name in UsedGenerator._fields))

    def _record(self, name: str) -> Record | None:
        path = self.path / f"{name}.json"
        return self._own(path.name, read_record(path, REMEDY)) if is_there(path) else None

    def _own(self, name: str, record: Record) -> Record:
        """A record of one of the run's files without the name of its run; refuse the record of another run."""
        before = record.get("fingerprint") if name == "summary.json" else None  # how version 0.1 named the run
        self._check_owner(name, record.pop(RUN, before))
        return record

    def _check_owner(self, name: str, owner: str | None) -> None:
        if owner is None:
            self.unnamed.add(name)
        elif owner != self.fingerprint:
            raise InputError(f"{self.path / name}: belongs to another run than config.json beside it; {REMEDY}")

    def check_can_resume(self) -> None:
        """Refuse a run that version 0.1 made, or with a file that does not name its run."""
        if self.config.is_old or self.unnamed:
            began = "version 0.1" if self.config.is_old else "an earlier version"
            raise InputError(f"{self.path}: {began} began this run, and this version cannot resume it; move it away")

    @property
    def has_rounds(self) -> bool:
        """Whether its rounds are recorded; they may have been left out where many runs are packed."""
        return True

    def rounds(self) -> list[Record]:
        """The records in ``rounds.jsonl``; a cut-off line is ignored."""
        done = self.summary().get("rounds", 0) if self.finished else 0
        return complete(self.path / ROUNDS, [self._own(ROUNDS, each) for each in self._rounds.read()], done)

    @property
    def _rounds(self) -> Journal:
        return Journal(self.path / ROUNDS, REMEDY)

    def progress(self) -> RunProgress:
        """How far this run is. It is running if a process holds its lock."""
        records, total = self.rounds(), self.config.rounds.total
        working = RunState.RUNNING if not self.finished and is_held(self.path / LOCK) else RunState.STOPPED
        left = 0.0 if self.finished else seconds_left(records, total)
        files = [file for name in MARKS if is_there(file := self.path / name)] or [self.path.parent]  # of packed runs
        changed = datetime.fromtimestamp(max(file.stat().st_mtime for file in files))
        return RunProgress(RunState.FINISHED if self.finished else working, len(records), total, changed, left)

    def to_frame(self) -> Any:
        """The rounds as a pandas DataFrame: accuracy, losses, steps, images, and seconds by kind."""
        pandas = import_pandas("to_frame")
        rows = [{**each, **{f"{name} s": spent for name, spent in each["seconds"].items()}} for each in self.rounds()]
        frame = pandas.DataFrame(rows).drop(columns=["clients", "missing", "images", "seconds"], errors="ignore")
        return frame.set_index("round") if rows else frame

    def noted_images(self) -> list[Record]:
        """The notes of `note_images` since the first start of the run."""
        return [self._own("images.jsonl", each) for each in self._images.read()]

    def note_images(self, note: Record) -> None:
        """Record how many images of some clients were in the bank, before the others are made."""
        with self._writing():
            self._images.add({**note, RUN: self.fingerprint})

    @property
    def _images(self) -> Journal:
        return Journal(self.path / "images.jsonl", REMEDY)

    def check(self) -> None:
        """Read all but the checkpoint's tensors; an `InputError` names the first damaged file, or another run's."""
        self.environment(), self.generator(), self.rounds(), self.noted_images()
        if self.has_allocation:
            self.allocation()
        if self.finished:
            self.check_summary()
        if is_there(self.checkpoint):
            try:
                about = description(self.checkpoint)  # its length is compared with its header; its tensors are not read
            except InputError as error:
                purpose = "" if self.finished else " to start the run again"
                raise InputError(f"{error}; remove this file{purpose}") from None
            self._check_owner(self.checkpoint.name, about.get("fingerprint"))

    def check_summary(self) -> None:
        """Refuse a summary without the measures that tables and charts use, or with one that cannot be right."""
        check_measures(self.path / "summary.json", self.summary())

    def append_round(self, record: Record) -> None:
        """Add the line of a round."""
        with self._writing():
            self._rounds.add({**record, RUN: self.fingerprint})

    def keep_rounds(self, count: int) -> None:
        """Drop the records after the checkpoint, complete or not: these rounds will be done again."""
        complete(self.path / ROUNDS, [self._own(ROUNDS, each) for each in self._rounds.read(count)], count)
        self.check_can_resume()
        with self._writing():
            self._rounds.keep(count)

    def save_allocation(self, counts: LabelCounts, allocation: Allocation) -> None:
        """Save the counts and the plan."""
        names = {"clients": counts.clients, "classes": counts.classes}
        given = {key: np.array(value) for key, value in names.items() if value is not None}
        given[RUN] = np.array(self.fingerprint)
        with self._writing():
            write_arrays(self.path / "allocation.npz", counts=counts.n, allocation=allocation.n, **given)

    @property
    def has_allocation(self) -> bool:
        """Whether counts and plan are saved; they are not if the counts stayed with the clients."""
        return is_there(self.path / "allocation.npz")

    @property
    def is_kept(self) -> bool:
        """Whether this is a small copy of a finished run, with neither plan nor checkpoint."""
        return False

    def allocation(self) -> tuple[LabelCounts, Allocation]:
        """The counts and the plan."""
        path = self.path / "allocation.npz"
        if not self.has_allocation:
            raise InputError(f"{path}: no such file; {REMEDY}")
        own = "clients", "classes", RUN
        counts, allocation, *names, owner = read_arrays(path, ("counts", "allocation"), REMEDY, own)
        self._check_owner(path.name, None if owner is None else str(owner))
        try:
            table = LabelCounts(counts, *names)
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
            write_record(self.path / name, {**content, RUN: self.fingerprint})

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


def check_measures(path: Path, content: Record) -> None:
    """Refuse the content of a summary if a measure is missing or cannot be right."""
    try:
        Summary.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        name, wanted = str(first["loc"][0]), first["msg"].removeprefix("Value error, ")
        raise damaged(path, f"{name} is {content.get(name, 'missing')!r}: {wanted}", REMEDY) from None


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
        make_folder(run.path, self.root)
        if not is_there(run.path / "config.json"):
            run.write_json("config.json", config.model_dump(mode="json"))
        elif (there := read_run(run.path)).config.fingerprint != config.fingerprint:
            raise InputError(f"{run.path / 'config.json'}: this folder holds another run; move it away")
        elif not there.finished:
            if not there.config.is_old:
                there.check()
            there.check_can_resume()
        return run

    def folders(self) -> list[Path]:
        """The run directories below the folder, damaged or not, by name."""

        def is_run(path: Path) -> bool:
            try:
                return any(is_there(path / name) for name in MARKS)
            except InputError:
                return True  # what reads it says why it cannot be read

        return [*filter(is_run, matching(self.root, "*"))]

    def all(self) -> list[Run]:
        """Every run below the folder, by name; one that is damaged is left out with a warning."""
        return sound_runs(self.folders())


def read_run(path: PathLike) -> Run:
    """The run in this directory."""
    file = Path(path) / "config.json"
    try:
        content = parsed(file, file.read_bytes(), REMEDY)
        owner = content.pop(RUN, None)
        run = Run(Path(path), recorded_config(content))
        vars(run).update({} if owner is None else {"fingerprint": owner})  # as it was when the run began
        return run
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
