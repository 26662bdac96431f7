"""The folder of a deployment on one machine: certificates, keys, configs, logs, and the file that lists what runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from fedeas.core.files import make_folder, write_bytes
from fedeas.core.records import damaged, read_record, write_record
from fedeas.errors import InputError
from fedeas.flower.deployment.connection import Connection, Scalar, toml_of
from fedeas.flower.deployment.keys import make_certificates, make_node_key, make_operator_key
from fedeas.flower.deployment.processes import Process

DAMAGED = "end what runs by hand and remove it"


@dataclass(frozen=True)
class Node:
    """A registered node; `process` is None if it was never started."""

    name: str
    id: int
    process: Process | None = None


@dataclass(frozen=True)
class State:
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
    def read(cls, path: Path) -> State:
        """Read the file; a damaged one is an error, because what runs is then unknown."""
        try:
            return TypeAdapter(cls).validate_python(read_record(path, DAMAGED))
        except ValidationError as error:
            raise damaged(path, error, DAMAGED) from None


class Layout:
    """The paths in the deployment's `folder`."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()
        self.file = self.folder / "deployment.json"  # lists what runs
        self.connection_file = self.folder / "connection.toml"  # for operators on this machine
        self.clients_file = self.folder / "clients.toml"  # which key is which client
        self.operator_key = self.folder / "keys" / "operator.key"

    @property
    def connection(self) -> Connection:
        """How an operator on this machine reaches the SuperLink, read from its file."""
        if not self.file.exists():
            raise self._no_deployment()
        return Connection.read(self.connection_file)

    @property
    def state(self) -> State:
        """What was started; `running` tells whether it still runs."""
        if not self.file.exists():
            raise self._no_deployment()
        return State.read(self.file)

    def _no_deployment(self) -> InputError:
        return InputError(f"{self.folder}: no deployment; start one with `fedeas flower up --folder {self.folder}`")

    def key(self, index: int) -> Path:
        """The private key of a node."""
        return self.folder / "keys" / f"node{index}"

    def log(self, name: str) -> Path:
        """The log of ``superlink`` or ``node0``, ``node1`` ..."""
        return self.folder / "logs" / f"{name}.log"

    @property
    def authority(self) -> Path:
        """The certificate of the authority that signed the SuperLink's; made, like the others, if it is missing."""
        return make_certificates(self.folder / "certificates").authority

    def _prepare(self, nodes: int, node_config: Mapping[str, Scalar]) -> None:
        """Make folders, certificates, keys and configuration; existing keys and certificates are kept."""
        if nodes < 1:
            raise InputError(f"{nodes} nodes: at least one is needed")
        for path in (self.folder / "logs", self.folder / "configs"):
            make_folder(path)
        make_operator_key(self.operator_key)
        self.clients_file.unlink(missing_ok=True)  # the keys in this folder are the clients
        for index in range(nodes):
            make_node_key(self.key(index))
            own: dict[str, Scalar] = {
                "partition-id": index,
                "num-partitions": nodes,
                "state-dir": str(self.folder / f"node{index}"),
            }
            make_folder(self.folder / f"node{index}")
            write_bytes(self._node_config(index), toml_of({**own, **node_config}).encode())

    def _node_config(self, index: int) -> Path:
        return self.folder / "configs" / f"node{index}.toml"

    def _write(self, state: State) -> None:
        write_record(self.file, asdict(state))

    def _write_connection(self, port: int) -> None:
        """Tell operators on this machine where the SuperLink is, and with which keys."""
        connection = Connection(f"127.0.0.1:{port}", self.authority, self.operator_key, self.clients_file)
        connection.write(self.connection_file)
