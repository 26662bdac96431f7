"""A real deployment on loopback, with TLS and a key for each node, computes what one process computes."""

import importlib.util
import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest
import torch
from flower.absences import run_with_absences
from safetensors.torch import load_file

from fedeas.config import load_config
from fedeas.run import identified
from fedeas.store import RunStore

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("flwr") is None, reason="needs Flower: pip install 'fedeas[flower]'"),
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds the server's process in /proc"),
]

NODES = 3
BASE = [f"partition.clients={NODES}", "rounds.participation=1.0", "train.epochs=5", "train.lr=0.05", "engine.threads=1",
        "algorithm=scaffold", "policy=fedeas(beta=2)", "engine.timeout=100", "engine.min_share=0.6"]  # fmt: skip


@pytest.fixture(scope="module")
def loopback(tmp_path_factory):
    from fedeas.deployment.loopback import Loopback

    own = Loopback(tmp_path_factory.mktemp("deployment"))
    own.up(NODES)
    yield own
    own.down()


class Started:
    """A run on the deployment, in the background."""

    def __init__(self, loopback, store, overrides):
        from fedeas.deployment.app import write_app

        self.config = identified(load_config(None, overrides))
        self.log, self.outcome, self.failure = [], None, None
        given = {"config": "", "overrides": json.dumps(overrides), "runs": str(store.root), "data-root": ""}

        def work():
            try:
                self.outcome = loopback.run(write_app(loopback.folder / "app"), given, self.log.append)
            except Exception as error:
                self.failure = error

        self.rounds = store.at(self.config).path / "rounds.jsonl"
        self.thread = threading.Thread(target=work, daemon=True)  # of a killed server nobody hears the end
        self.thread.start()

    def wait_for_round(self, number):
        end = time.monotonic() + 90
        while not self.rounds.exists() or len(self.rounds.read_text().splitlines()) < number:
            assert self.thread.is_alive(), (self.failure, self.log[-30:])
            assert time.monotonic() < end, self.log[-30:]
            time.sleep(0.02)

    def wait(self):
        self.thread.join(150)
        assert not self.thread.is_alive(), self.log[-30:]
        return self.outcome


def assert_same(one, other):
    arrays = [{name: tensor for name, tensor in load_file(run.checkpoint).items() if name.startswith("server/")}
              for run in (one, other)]  # fmt: skip
    assert arrays[0].keys() == arrays[1].keys()
    assert all(torch.equal(arrays[0][name], arrays[1][name]) for name in arrays[0])


def test_a_node_that_is_killed_is_missing_until_it_comes_back(loopback, tmp_path):
    overrides, store = [*BASE, "rounds.total=5"], RunStore(tmp_path / "flower")
    started = Started(loopback, store, overrides)
    started.wait_for_round(1)
    loopback.kill_node(1)
    restart = threading.Thread(target=loopback.start_node, args=(1, 120.0))
    restart.start()
    started.wait_for_round(2)
    signal_server(loopback, signal.SIGSTOP)  # however slow the machine, the run is not over before the node is back
    restart.join(120)
    signal_server(loopback, signal.SIGCONT)
    assert started.wait().completed, started.log[-30:]
    run = store.open(started.config)
    missing = {record["round"] - 1: record["missing"] for record in run.rounds() if "missing" in record}
    assert missing  # it was in the middle of its work
    assert set(map(tuple, missing.values())) == {(1,)}
    assert "missing" not in run.rounds()[-1]
    assert any("client 1" in line for line in started.log)
    assert_same(run, run_with_absences(tmp_path / "local", overrides, missing))


def signal_server(loopback, number):
    """Reach the process of the run's server, which Flower starts out of sight."""
    mine = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if is_server(path, loopback.folder)]
    assert mine
    for pid in mine:
        os.kill(pid, number)


def is_server(cmdline, folder):
    try:
        ours = str(folder).encode() in (cmdline.parent / "environ").read_bytes()
        return ours and b"flwr-serverapp" in cmdline.read_bytes()
    except OSError:  # it ended meanwhile
        return False


def test_a_server_that_is_killed_goes_on_where_it_was(loopback, tmp_path):
    overrides, store = [*BASE, "rounds.total=4", "seed=1"], RunStore(tmp_path / "flower")
    first = Started(loopback, store, overrides)
    first.wait_for_round(2)
    signal_server(loopback, signal.SIGKILL)
    assert len(first.rounds.read_text().splitlines()) < 4
    second = Started(loopback, store, overrides)
    assert second.wait().completed, second.log[-30:]
    assert len(first.rounds.read_text().splitlines()) == 4
    assert_same(store.open(first.config), run_with_absences(tmp_path / "local", overrides, {}))
