"""One SuperNode with its executor: ``python -m deploy.flower.node``.

It is ``flower-supernode`` with an executor that runs the installed FedEAS and no app that a run brings along, and that
alone can take the node's tasks. There are two executors:

- ``fork`` imports torch once instead of for each message. With it, the node asks for work several times a second, a
  crash is reported at once, and a killed node can reconnect at once. It needs a Flower version that `internals` knows.
- ``flower`` is Flower's own (`stock_executor.py`). It works with every version, and takes its place otherwise.

The node keeps two files beside its key: ``KEY.running``, locked while it runs, with its id at the SuperLink, and
``KEY.secret``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from deploy.flower import internals
from deploy.flower.app import Bundle
from deploy.flower.environment import program_main
from deploy.flower.executor import READY
from deploy.flower.keys import write_secret
from deploy.flower.processes import free_port
from deploy.flower.stock_executor import start_stock_executor
from fedeas.core.errors import FedEASError, InputError, RunError
from fedeas.core.locks import locked
from fedeas.flower.node_settings import read_node_config

EXECUTOR = "deploy.flower.executor"
FORK, FLOWER = "fork", "flower"
POLL = 0.1  # shortest pause between two questions for a message, in seconds
RETRIES = 20  # then the node ends; by default Flower never stops trying
Started = subprocess.Popen[bytes]
ABSENCE = 2.0
"""Seconds that a killed node stays offline, so that a waiting server learns that its messages are lost."""


@dataclass(frozen=True)
class NodeOptions:
    """The options on a node's command line, and the loopback address at which its executor reaches it."""

    runtime: str
    superlink: str
    root_certificate: Path
    key: Path
    node_config: str
    health: str | None
    executor: str | None
    limit: float | None
    app: Path | None
    preload: list[str]

    @property
    def secret(self) -> Path:
        """The file with the secret that node and executor share."""
        return self.key.with_name(f"{self.key.name}.secret")

    def flower_arguments(self) -> list[str]:
        """The command line of flower-supernode."""
        host, _, port = self.runtime.rpartition(":")
        given = {
            "--superlink": self.superlink,
            "--root-certificates": self.root_certificate,
            "--auth-supernode-private-key": self.key,
            "--max-retries": RETRIES,
            "--host": host,
            "--port": port,
            "--isolation": "process",
            "--superexec-auth-secret-file": self.secret,
            **({"--node-config": self.node_config} if self.node_config else {}),
            **({"--health-server-address": self.health} if self.health else {}),
        }
        return [str(part) for pair in given.items() for part in pair]

    def executor_command(self, ready: int) -> list[str]:
        """The command of the executor; the executor writes to the file descriptor `ready` when it is ready."""
        limit = [] if self.limit is None else ["--limit", str(self.limit)]
        app = [] if self.app is None else ["--app", str(self.app)]
        own = ["--runtime", self.runtime, "--secret", str(self.secret), *limit, *app, "--parent-pid", str(os.getpid())]
        return [sys.executable, "-m", EXECUTOR, *own, "--ready-fd", str(ready), "--preload", *self.preload]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a node until it is told to end."""
    try:
        settings = NodeOptions(f"127.0.0.1:{free_port()}", **vars(_parser().parse_args(arguments)))
        with _alone(settings.key) as memory:
            _serve(settings, memory)
    except FedEASError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _serve(settings: NodeOptions, memory: IO[str]) -> None:
    if settings.app is None and internals.problem("node_config") is None:
        _check_settings(settings.node_config)
    back_at = _sign_off(settings, memory)  # first, so that the absence passes while the executor starts
    write_secret(settings.secret)  # a new one at each start
    settings, executor = _start_executor(settings)
    flower_supernode = program_main("flower-supernode")
    if settings.executor == FORK:
        _quicken()
        _forget_ended_runs()
        _keep_id(memory)
    threading.Thread(target=_supervise, args=(settings, executor), daemon=True).start()
    time.sleep(max(0.0, back_at - time.monotonic()))
    sys.argv = ["flower-supernode", *settings.flower_arguments()]
    flower_supernode()


def _check_settings(node_config: str) -> None:
    """Refuse to start with settings or own data with which every run would be refused."""
    from deploy.flower.internals.node_config import parse_node_config
    from fedeas.data.one_part import load_own

    _, own = read_node_config(parse_node_config(node_config))
    if own.data:
        load_own(own.data, own.data_root)


def _quicken() -> None:
    """Make the node ask for work several times a second, if the installed Flower allows it."""
    problem = internals.problem("polling")
    if problem is None:
        from deploy.flower.internals.polling import quicken

        problem = quicken(POLL)
    if problem is not None:
        print(f"{problem}; the node asks for work every few seconds", flush=True)


def _forget_ended_runs() -> None:
    """Make the node forget a message whose run ends while it is fetched, if the installed Flower allows it."""
    problem = internals.problem("receiving")
    if problem is None:
        from deploy.flower.internals.receiving import forget_ended_runs

        problem = forget_ended_runs()
    if problem is not None:
        print(f"{problem}; start the node again if it answers late after a run has ended early", flush=True)


def _keep_id(memory: IO[str]) -> None:
    """Keep the node's id for the next start, which may have to sign this node off."""
    if internals.problem("sign_off") is None:
        from deploy.flower.internals.sign_off import keep_node_id

        keep_node_id(memory)


@contextmanager
def _alone(key: Path) -> Iterator[IO[str]]:
    """Open and lock the file with the node's id: two nodes with one key would replace each other in turn."""
    path = key.with_name(f"{key.name}.running")
    if not key.exists():
        raise InputError(f"{key}: no such key; make one with `fedeas flower keys`")
    with locked(path, f"{key}: a node with this key is running already; end it first"), path.open("r+") as memory:
        yield memory


def _sign_off(settings: NodeOptions, memory: IO[str]) -> float:
    """Tell the SuperLink that the former node has ended, if it counts as online; return when ours may connect."""
    memory.seek(0)
    former = memory.read().strip()
    if settings.executor == FLOWER or not former.isdigit() or internals.problem("sign_off") is not None:
        return 0.0
    from deploy.flower.internals.sign_off import sign_off

    gone = sign_off(settings.superlink, settings.root_certificate, settings.key, int(former))
    return time.monotonic() + ABSENCE if gone else 0.0


def _start_executor(settings: NodeOptions) -> tuple[NodeOptions, Started]:
    """Start the executor that `settings` name, by default the one that forks where it can; return which, and it."""
    if settings.executor != FLOWER:
        process, problem = _start_forking(settings)
        if problem is None:
            return replace(settings, executor=FORK), process
        if settings.executor == FORK:
            raise InputError(f"{problem}; leave --executor out to use Flower's own executor")
        print(f"{problem}; messages are handled by Flower's own executor, which is slower", flush=True)
    stock = start_stock_executor(settings.runtime, settings.secret, Bundle.of(settings.app))
    return replace(settings, executor=FLOWER), stock


def _start_forking(settings: NodeOptions) -> tuple[Started, str | None]:
    """Start the executor that forks and wait until it is ready; return also why it cannot be used, if it cannot.

    A node without an executor would accept messages and never answer.
    """
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as ready:
        try:
            process = subprocess.Popen(settings.executor_command(writer), stdin=subprocess.DEVNULL, pass_fds=(writer,))
        finally:
            os.close(writer)
        said = ready.read()
    if said == READY:
        return process, None
    process.wait()
    if not said:
        raise RunError("the executor could not start; the reason is above")
    return process, said.decode()


def _supervise(settings: NodeOptions, executor: Started) -> None:
    """Start the executor again whenever it ends, for example after running out of memory."""
    while True:
        code = executor.wait()
        print(f"the executor ended with code {code}; starting another", flush=True)
        time.sleep(1)
        with contextlib.suppress(FedEASError, OSError):  # without memory or descriptors none starts: try again
            _, executor = _start_executor(settings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m deploy.flower.node", description=__doc__.partition("\n")[0])
    parser.add_argument("--superlink", required=True, help="Address of the SuperLink, as host:port.")
    parser.add_argument("--root-certificate", required=True, type=Path, help="The authority's certificate, ca.pem.")
    parser.add_argument("--key", required=True, type=Path, help="Private key of this node.")
    parser.add_argument(
        "--node-config", default="", help="TOML scalars, as 'partition-id=0 name=\"a\"', or a .toml file."
    )
    parser.add_argument("--health", help="Address at which `fedeas flower health` asks, as 127.0.0.1:9101.")
    parser.add_argument(
        "--executor", choices=[FORK, FLOWER], help="By default fork, or flower if Flower's version is not known."
    )
    parser.add_argument("--limit", type=float, help="fork: kill the work on a message after this many seconds.")
    parser.add_argument("--app", type=Path, help="Folder of the only app to run; FedEAS by default.")
    parser.add_argument("--preload", nargs="*", default=[], help="fork: modules to import before the app.")
    return parser


if __name__ == "__main__":
    main()
