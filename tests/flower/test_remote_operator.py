"""A SuperLink on one address, its operator on another: `fedeas flower run` with a connection file."""

import subprocess
import sys
from contextlib import contextmanager

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedeas[flower]'", exc_type=ImportError)

import torch
from safetensors.torch import load_file
from waiting import LIMIT, wait_until

from deploy.flower import processes
from deploy.flower.environment import environment
from fedeas.config import load_config
from fedeas.federation.run import execute
from fedeas.runs.store import RunStore

SERVER = "127.0.0.2"
RUN = ["partition.clients=1", "rounds.total=2", "rounds.participation=1.0", "train.epochs=1", "engine.threads=1"]


class Sites:
    """The server's folder and the operator's, which has copies of what the operator needs."""

    def __init__(self, folder):
        self.server, self.operator, self.node = folder / "server", folder / "operator", folder / "node"
        self.ports = processes.free_port(), processes.free_port()
        for place in (self.operator, self.node):
            place.mkdir()

    def fedeas(self, *arguments, folder=None):
        """Run a command of the operator; return its exit code, output and errors."""
        done = subprocess.run(
            [sys.executable, "-m", "fedeas", "flower", *map(str, arguments)],
            cwd=folder or self.operator, env=environment(self.operator), capture_output=True, text=True, timeout=LIMIT,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    def prepare(self):
        """What the docs say: certificates on the server, a key on the node, a connection file at the operator's."""
        assert self.fedeas("keys", self.server, "--host", SERVER)[0] == 0
        for name in ("ca.pem", "operator.key"):
            (self.operator / name).write_bytes((self.server / name).read_bytes())
        (self.node / "ca.pem").write_bytes((self.server / "ca.pem").read_bytes())
        (self.operator / "connection.toml").write_text(
            f'address = "{SERVER}:{self.ports[1]}"\nroot-certificate = "ca.pem"\nkey = "operator.key"\n'
            'clients = "clients.toml"\n'
        )
        assert self.fedeas("node-key", "key", folder=self.node)[0] == 0
        (self.operator / "key.pub").write_bytes((self.node / "key.pub").read_bytes())

    @contextmanager
    def superlink(self):
        own = ["--certificates", self.server, "--key", self.server / "operator.key", "--host", SERVER]
        own += ["--operator-host", SERVER, "--port", self.ports[0], "--operator-port", self.ports[1]]
        own += ["--database", self.server / "superlink.db"]
        with self.service("server", self.server, own):
            wait_until(lambda: self.fedeas("status", "--connection", "connection.toml")[0] == 0)
            yield

    @contextmanager
    def service(self, module, folder, own):
        command = [sys.executable, "-m", f"deploy.flower.{module}", *map(str, own)]
        process = processes.start(command, folder / "log", environment(folder / "home"), folder)
        try:
            yield
        finally:
            processes.end([process])


@pytest.mark.slow
def test_an_operator_elsewhere_starts_runs_and_hears_refusals_in_one_line(tmp_path, subtests):
    sites = Sites(tmp_path)
    sites.prepare()
    to_server = ("--connection", "connection.toml")
    run = ("run", *RUN, *to_server, "--runs", tmp_path / "runs")
    with sites.superlink():
        with subtests.test("no client is listed"):
            code, _, said = sites.fedeas(*run)
            assert (code, said.count("\n")) == (2, 1)
        assert sites.fedeas("register", "key.pub", "--client", 0, *to_server)[0] == 0
        with subtests.test("the node is missing"):
            code, shown, said = sites.fedeas(*run, "engine.timeout=1")
            assert (code, said.count("\n")) == (2, 1)
            assert said.startswith("error: clients [0] did not come within 1 s")
            assert "Traceback" not in shown
            assert said.strip() not in shown
        own = ["--superlink", f"{SERVER}:{sites.ports[0]}", "--root-certificate", "ca.pem", "--key", "key"]
        own += ["--node-config", 'partition-id=0 num-partitions=1 state-dir="state"']
        with sites.service("node", sites.node, own):
            sites.fedeas("status", *to_server, "--wait", 300)
            code, shown, said = sites.fedeas(*run)
            assert code == 0, (shown, said)
    [found], local = RunStore(tmp_path / "runs").all(), execute(load_config(None, RUN), RunStore(tmp_path / "local"))
    weights, expected = load_file(found.checkpoint), load_file(local.checkpoint)
    assert all(torch.equal(weights[name], expected[name]) for name in expected if name.startswith("server/"))
