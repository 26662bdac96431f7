"""A whole deployment on this machine, on loopback, with the same security as between machines."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

from deploy.flower.certificates import Certificates
from deploy.flower.clients import Clients
from deploy.flower.programs import end, environment, free_port, program
from fedeas import InputError

PATIENCE = 300.0
"""Seconds to wait for a program to be ready or to end; only a hang takes this long."""

Started = subprocess.Popen[bytes]


class OneMachine:
    """A server and nodes in `folder`, which run during a ``with`` block.

    The operator's FLWR_HOME is `folder`. Existing keys and certificates are kept.
    """

    def __init__(
        self, folder: Path, nodes: int, settings: Mapping[str, str | int | float | bool], options: Sequence[str] = ()
    ) -> None:
        self.folder = folder.absolute()
        self.count = nodes
        self.settings = settings
        self.options = options
        self.port, self.operator_port = free_port(), free_port()
        self.made = Certificates(self.folder / "keys")
        self.clients = Clients(self.folder)
        self.server: Started | None = None
        self.nodes: dict[int, Started] = {}

    def __enter__(self) -> OneMachine:
        with ExitStack() as started:
            started.callback(self.stop)
            self._prepare()
            self.start_server()
            for index in range(self.count):
                self.clients.register(self.key(index).with_suffix(".pub"), index)
            for index in range(self.count):
                self.start_node(index)
            self.await_nodes()
            started.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def key(self, index: int) -> Path:
        """The private key of a node."""
        return self.folder / "keys" / f"node{index}"

    def log(self, name: str) -> Path:
        """The log of ``server`` or ``node0``, ``node1`` ..."""
        return self.folder / "logs" / f"{name}.log"

    @property
    def ended(self) -> str | None:
        """The first program that has ended by itself."""
        running = {"server": self.server, **{f"node{index}": node for index, node in self.nodes.items()}}
        return next((name for name, each in running.items() if each is not None and each.poll() is not None), None)

    def start_server(self) -> None:
        """Start the server and wait until it listens."""
        ports = ["--port", str(self.port), "--operator-port", str(self.operator_port)]
        own = ["--host", "127.0.0.1", "--keys", str(self.made.folder), "--database", str(self.folder / "superlink.db")]
        self.server = self._start("server", ["server", *own, *ports])
        for port in (self.port, self.operator_port):
            self._await_port(port)

    def start_node(self, index: int) -> None:
        """Start a node; it is online a few seconds later."""
        own = ["--superlink", f"127.0.0.1:{self.port}", "--root-certificate", str(self.made.authority)]
        own += ["--key", str(self.key(index)), "--settings", str(self.folder / f"node{index}.toml")]
        self.nodes[index] = self._start(f"node{index}", ["node", *own, *self.options])

    def await_nodes(self) -> None:
        """Wait until all nodes are online."""
        deadline = time.monotonic() + PATIENCE
        while set(self.clients.states().values()) != {"online"}:
            self._check(deadline)

    def stop(self) -> None:
        """End everything, nodes first: they sign off at the SuperLink while it still runs."""
        for node in self.nodes.values():
            node.terminate()
        for process in [*self.nodes.values(), *([self.server] if self.server else [])]:
            end(process, PATIENCE)
            kill_group(process)

    def _prepare(self) -> None:
        if self.count < 1:
            raise InputError(f"{self.count} nodes: at least one is needed")
        self.made.make()
        (self.folder / "logs").mkdir(exist_ok=True)
        for name in ("clients.toml", "superlink.db"):  # the keys in this folder are the clients
            (self.folder / name).unlink(missing_ok=True)
        (self.folder / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{self.operator_port}"\n'
            f"root-certificates = {json.dumps(str(self.made.authority))}\n"
        )
        for index in range(self.count):
            if not self.key(index).exists():
                make_key(self.key(index))
            state = str(self.folder / "state" / str(index))
            own = {"partition-id": index, "num-partitions": self.count, "state-dir": state, **self.settings}
            lines = (f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in own.items())
            (self.folder / f"node{index}.toml").write_text("".join(lines))

    def _start(self, name: str, command: Sequence[str]) -> Started:
        """Start a program with its own home: Flower unpacks apps there, and two at once would collide."""
        surroundings = environment(FLWR_HOME=str(self.folder / "homes" / name))
        surroundings.setdefault("OMP_NUM_THREADS", "1")  # several nodes share the cores of one machine
        with self.log(name).open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "deploy.flower", *command], env=surroundings, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def _await_port(self, port: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return
            self._check(deadline)
            time.sleep(0.1)

    def _check(self, deadline: float) -> None:
        """Refuse to wait for a program that has ended, or any longer."""
        name = self.ended
        if name is not None or time.monotonic() > deadline:
            what = f"is not ready after {PATIENCE:g} s" if name is None else "ended"
            log = self.log(name or "server")
            end_of_log = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise InputError(f"{name or 'the deployment'} {what}; the end of {log}:\n{end_of_log}")


def make_key(path: Path) -> None:
    """Make a node's key; the public key is in the .pub file beside it."""
    command = [program("ssh-keygen"), "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-C", path.name, "-f", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise InputError(f"{path}: {done.stderr.strip() or done.stdout.strip()}")


def kill_group(process: Started) -> None:
    """Kill a program and all that it started, at once."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
