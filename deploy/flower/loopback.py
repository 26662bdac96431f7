"""A whole deployment on one machine: a SuperLink and its nodes, with the same security as between machines.

It has TLS with its own authority, nodes are identified by keys, and runs are started with the operator's key;
everything listens on 127.0.0.1. One file in the folder lists all processes, so that another process can check or stop
them, even if the one that started them is gone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from deploy.flower import processes
from deploy.flower.client_keys import bind_client
from deploy.flower.connection import Connection, Scalar, toml_of
from deploy.flower.deployment_record import DeploymentRecord, Node
from deploy.flower.environment import environment
from deploy.flower.internals.superlink import NodeStatus, SuperLink
from deploy.flower.keys import make_certificates, make_node_key, make_operator_key, public_bytes
from deploy.flower.processes import Process
from fedeas.core.errors import InputError, RunError
from fedeas.core.files import make_folder, write_bytes

PATIENCE = 300.0
"""Seconds to wait for a process to be ready. If it ends, that is noticed at once: only a hang takes this long."""


class Loopback:
    """The deployment in `folder`, running or not; several objects, in any process, may use one folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()
        self.file = self.folder / "deployment.json"  # lists what runs
        self.connection_file = self.folder / "connection.toml"  # for operators on this machine
        self.clients_file = self.folder / "clients.toml"  # which key is which client
        self.operator_key = self.folder / "keys" / "operator.key"

    @property
    def connection(self) -> Connection:
        """How an operator on this machine reaches the SuperLink, read from its file."""
        DeploymentRecord.read(self.file)  # an error if nothing was started
        return Connection.read(self.connection_file)

    @property
    def state(self) -> DeploymentRecord:
        """What was started; `running` tells whether it still runs."""
        return DeploymentRecord.read(self.file)

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

    @property
    def superlink(self) -> SuperLink:
        """The SuperLink, for requests to it."""
        return SuperLink(self.connection)

    @property
    def nodes_address(self) -> str:
        """Where nodes reach the SuperLink."""
        return f"127.0.0.1:{self.state.port}"

    @property
    def running(self) -> bool:
        """Whether any of its processes is alive."""
        return self.file.exists() and any(process.alive for process in self.state.processes)

    def up(self, nodes: int, node_config: Mapping[str, Scalar], options: Sequence[str] = ()) -> None:
        """Start everything and wait until all nodes are online; after an error nothing is left running.

        Each node gets partition-id, num-partitions, state-dir and `node_config`, and `options` on its command line.
        """
        if self.running:
            raise InputError(f"{self.folder}: runs already; first `fedeas flower down --folder {self.folder}`")
        self.down()  # a leftover file may name daemons whose children still run
        self._prepare(nodes, node_config)
        state = DeploymentRecord(processes.free_port(), processes.free_port())
        state.write(self.file)
        address = f"127.0.0.1:{state.operator_port}"
        Connection(address, self.authority, self.operator_key, self.clients_file).write(self.connection_file)
        try:
            self._start_superlink()
            for index in range(nodes):
                self._register(index)
            before = self.superlink.nodes()
            for index in range(nodes):
                self._start_node(index, options)
            for index in range(nodes):
                self._await_node(index, before)
        except BaseException:
            self.down()
            raise

    def down(self) -> int:
        """End all processes, also those that another process started; return how many daemons were alive."""
        if not self.file.exists():
            return 0
        state = self.state
        alive = sum(process.alive for process in state.processes)
        processes.end([node.process for node in state.nodes if node.process is not None])
        processes.end([state.superlink] if state.superlink else [])
        self.file.unlink()
        return alive

    def status(self) -> dict[str, str]:
        """The status of each process by name: online, offline, ... or ended."""
        state = self.state
        up = state.superlink is not None and state.superlink.alive and self.superlink.answers()
        known = self.superlink.nodes() if up else {}
        seen = {"superlink": "online" if up else "ended"}
        for node in state.nodes:
            alive = node.process is not None and node.process.alive
            seen[node.name] = "ended" if not alive else known[node.id].status if node.id in known else "unreachable"
        return seen

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

    def _start_superlink(self) -> None:
        state = self.state
        command = [sys.executable, "-m", "deploy.flower.server", "--host", "127.0.0.1"]
        command += ["--port", str(state.port), "--operator-port", str(state.operator_port)]
        command += ["--certificates", str(self.authority.parent), "--key", str(self.operator_key)]
        command += ["--database", str(self.folder / "superlink.db")]
        process = self._start("superlink", command)
        replace(state, superlink=process).write(self.file)
        self._await("superlink", process, self.superlink.answers)

    def _register(self, index: int) -> None:
        name, public = f"node{index}", make_node_key(self.key(index))
        known_as = self.superlink.register(public_bytes(public), name)
        bind_client(self.clients_file, index, public.read_text())
        node = Node(name, known_as)
        replace(self.state, nodes=(*self.state.nodes, node)).write(self.file)

    def _start_node(self, index: int, options: Sequence[str]) -> None:
        state = self.state
        command = [sys.executable, "-m", "deploy.flower.node", "--superlink", self.nodes_address]
        command += ["--root-certificate", str(self.authority), "--key", str(self.key(index))]
        command += ["--node-config", str(self._node_config(index)), *options]
        process = self._start(state.nodes[index].name, command)
        nodes = list(state.nodes)
        nodes[index] = replace(nodes[index], process=process)
        replace(state, nodes=tuple(nodes)).write(self.file)

    def _await_node(self, index: int, before: Mapping[int, NodeStatus]) -> None:
        """Wait until the node has come online again: a killed node still counts as online for a while."""
        node, superlink = self.state.nodes[index], self.superlink
        assert node.process is not None

        def has_come() -> bool:
            return superlink.online_since(node.id) not in (None, before[node.id].activated)

        self._await(node.name, node.process, has_come)

    def _start(self, name: str, command: Sequence[str]) -> Process:
        """Start a process with its own home: Flower unpacks apps there, and two at once would collide."""
        home = self.folder / "homes" / name
        make_folder(home)
        return processes.start(command, self.log(name), environment(home), self.folder)

    def _await(self, name: str, process: Process, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not ready():
            late = time.monotonic() > deadline
            if late or not process.alive:
                what = f"is not ready after {PATIENCE:g} s" if late else "ended"
                raise RunError(f"{name} {what}; the end of {self.log(name)}:\n{processes.tail(self.log(name))}")
            time.sleep(0.1)
