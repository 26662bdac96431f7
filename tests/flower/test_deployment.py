"""A real deployment on loopback, with TLS and a key for each node, gives the same result as one process."""

import importlib.util

import psutil
import pytest
from flower.absences import run_with_absences
from flower.gated_runs import Gates, Started, assert_same, gated_deployment
from waiting import LIMIT, wait_until

from fedeas.runs.store import RunStore

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("flwr") is None, reason="needs Flower: pip install 'fedeas[flower]'"
)

NODES = 2
BASE = [f"partition.clients={NODES}", "rounds.participation=1.0", "rounds.total=3", "train.epochs=1", "train.lr=0.05",
        "engine.threads=1", "algorithm=scaffold", "policy=fedeas(beta=2)", "engine.min_share=0.5",
        f"engine.timeout={LIMIT / 2}"]  # fmt: skip


@pytest.fixture(scope="module")
def gates(tmp_path_factory):
    return Gates(tmp_path_factory.mktemp("gates"))


@pytest.fixture(scope="module")
def loopback(tmp_path_factory, gates):
    with gated_deployment(tmp_path_factory.mktemp("deployment"), NODES, gates) as deployment:
        yield deployment


@pytest.mark.slow  # tests/flower/test_engine.py misses clients without processes of their own
def test_a_killed_node_is_missing_until_it_returns(loopback, gates, tmp_path):
    store = RunStore(tmp_path / "flower")
    gates.close("client1-2", "server-2")
    started = Started(loopback, store, BASE)
    started.wait_for(gates, "client1-2")  # in the middle of its work
    loopback.kill_node(1)
    gates.open("client1-2")
    loopback.restart_node(1)
    started.wait_for(gates, "server-2")
    gates.open("server-2")
    assert started.wait().completed, started.log[-30:]
    run = store.open(started.config)
    assert [record.get("missing") for record in run.rounds()] == [None, [1], None]
    assert any("client 1" in line for line in started.log)
    assert_same(run, run_with_absences(tmp_path / "local", BASE, {1: {1}}))


def kill_server(loopback):
    """Kill the process of the run's server, which Flower starts out of sight."""
    superlink = psutil.Process(loopback.server.pid)
    servers = [each for each in superlink.children(recursive=True) if "flwr-serverapp" in command_of(each)]
    assert servers
    for process in servers:
        process.kill()
    wait_until(lambda: all(map(has_ended, servers)))


def command_of(process):
    """The command line; "" for a process that has ended, such as the server of an earlier run."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def has_ended(process):
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE  # Flower does not reap them


@pytest.mark.slow  # tests/flower/test_engine.py kills a server without processes of its own
def test_a_killed_server_resumes_where_it_was(loopback, gates, tmp_path):
    overrides, store = [*BASE, "seed=1"], RunStore(tmp_path / "flower")
    gates.close("client0-2")
    first = Started(loopback, store, overrides)
    first.wait_for(gates, "client0-2")  # in the middle of a round: other clients may be further than the server
    kill_server(loopback)
    gates.open("client0-2")
    assert len(store.at(first.config).rounds()) == 1
    second = Started(loopback, store, overrides)
    assert second.wait().completed, second.log[-30:]
    run = store.open(first.config)
    assert [record["round"] for record in run.rounds()] == [1, 2, 3]
    assert_same(run, run_with_absences(tmp_path / "local", overrides, {}))


@pytest.mark.slow  # the last test, since it ends the deployment
def test_the_superlink_ends_though_somebody_follows_a_run_whose_server_is_dead(loopback, gates, tmp_path):
    gates.close("client0-1")
    started = Started(loopback, RunStore(tmp_path / "flower"), [*BASE, "seed=2"])
    started.wait_for(gates, "client0-1")
    kill_server(loopback)
    gates.open("client0-1")
    assert loopback.operator.unfinished_runs()
    loopback.stop()
    assert loopback.server.returncode == 0  # by itself: nobody had to kill it
