"""The file that lists what runs of a deployment on one machine."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from deploy.flower.processes import Process
from fedeas.core.errors import InputError
from fedeas.core.records import damaged, read_record, write_record

DAMAGED = "end what runs by hand and remove it"


@dataclass(frozen=True)
class Node:
    """A registered node; `process` is None if it was never started."""

    name: str
    id: int
    process: Process | None = None


@dataclass(frozen=True)
class DeploymentRecord:
    """The ports, and the processes that were started, as listed in the file."""

    port: int
    operator_port: int
    superlink: Process | None = None
    nodes: tuple[Node, ...] = ()

    @property
    def processes(self) -> list[Process]:
        """All processes, nodes first: they sign off at the SuperLink while it still runs."""
        found = [*(node.process for node in self.nodes), self.superlink]
        return [process for process in found if process is not None]

    @classmethod
    def read(cls, path: Path) -> DeploymentRecord:
        """Read the file; a damaged one is an error, because what runs is then unknown."""
        if not path.exists():
            raise InputError(f"{path.parent}: no deployment; start one with `fedeas flower up --folder {path.parent}`")
        try:
            return TypeAdapter(cls).validate_python(read_record(path, DAMAGED))
        except ValidationError as error:
            raise damaged(path, error, DAMAGED) from None

    def write(self, path: Path) -> None:
        """Write the file."""
        write_record(path, asdict(self))
