"""Nodes that use nothing of Flower but its public programs take part in runs, and load no other app either."""

import json
import os
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedeas[flower]'")

from flower.absences import run_with_absences
from flower.gated_runs import assert_same
from waiting import wait_until

from fedeas.config import load_config
from fedeas.errors import InputError
from fedeas.federation.run import identified
from fedeas.flower.deployment.environment import environment, program
from fedeas.flower.deployment.internals.superlink import SuperLink
from fedeas.flower.deployment.keys import make_operator_key
from fedeas.flower.deployment.loopback import deployed
from fedeas.flower.deployment.operator import members
from fedeas.flower.deployment.processes import free_port
from fedeas.runs.store import RunStore

PROBE = Path(__file__).parent / "app"
BASE = ["partition.clients=2", "rounds.participation=1.0", "rounds.total=2", "train.epochs=1", "train.lr=0.05",
        "engine.threads=1", "policy=fedeas(beta=2)"]  # fmt: skip


def without(part, folder):
    """The environment in which a part of `internals` cannot be imported, as if a name of Flower were missing."""
    (folder / "sitecustomize.py").write_text(
        f"import sys; sys.modules['fedeas.flower.deployment.internals.{part}'] = None"
    )
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}


@pytest.mark.slow  # Flower starts a process for each message, which imports torch
def test_a_run_on_nodes_without_our_executor_equals_the_local_one(tmp_path):
    with deployed(tmp_path / "deployment", 2, extra_environment=without("executor", tmp_path)) as deployment:
        check_a_hostile_app(deployment, tmp_path)
        with plain_node(deployment, 1):
            check_a_run(deployment, tmp_path)
        said = [deployment.log(f"node{index}").read_text() for index in range(2)]
        assert [text.count("Flower's own executor") for text in said] == [1, 1]


@pytest.mark.slow
def test_a_stock_superlink_behind_our_doors_serves_nodes_and_asks_for_the_operators_key(tmp_path):
    surroundings = without("superlink_app", tmp_path)
    surroundings["PYTHONPATH"] += os.pathsep + str(PROBE)
    out = tmp_path / "heard.json"
    with deployed(tmp_path / "deployment", 2, app=PROBE, extra_environment=surroundings) as deployment:
        shown = []
        assert deployment.run(PROBE, {"out": str(out), "steps": "who"}, shown.append).completed, shown
        assert sum("node id" in answer for answer in json.loads(out.read_text())[0]["answers"]) == 2
        assert shown
        make_operator_key(tmp_path / "stranger.key")
        stranger = SuperLink(replace(deployment.connection, key=tmp_path / "stranger.key"))
        with pytest.raises(InputError, match="has another key"):
            stranger.nodes()
        assert deployment.log("superlink").read_text().count("Flower's own SuperLink") == 1


def check_a_hostile_app(deployment, folder):
    """Flower unpacks it, and the nodes refuse to load it."""
    hostile, trace, out = folder / "hostile", folder / "trace", folder / "heard.json"
    shutil.copytree(PROBE, hostile, ignore=shutil.ignore_patterns("__pycache__"))
    with (hostile / "probe.py").open("a") as file:
        file.write(f"\nif 'flwr-serverapp' not in ' '.join(sys.argv): Path({str(trace)!r}).touch()\n")
    outcome = deployment.run(hostile, {"out": str(out), "steps": "who"}, show=lambda line: None)
    assert outcome.completed, outcome.details
    assert out.read_text().count("this node runs fedeas/fedeas") == 2
    assert list((deployment.folder / "homes" / "node0").rglob("probe.py"))
    assert not trace.exists()


@contextmanager
def plain_node(deployment, index):
    """`flower-supernode` as it comes, in the place of one of our nodes."""
    deployment.stop_node(index)
    command = [program("flower-supernode"), "--superlink", deployment.nodes_address]
    command += ["--root-certificates", str(deployment.authority), "--max-retries", "20"]
    command += ["--auth-supernode-private-key", str(deployment.key(index))]
    command += ["--node-config", str(deployment.folder / "configs" / f"node{index}.toml")]
    command += ["--host", "127.0.0.1", "--port", str(free_port())]
    node_id = deployment.state.nodes[index].id
    with (deployment.folder / "plain.log").open("wb") as log:
        surroundings = environment(deployment.folder / "homes" / "plain", deployment.extra_environment)
        node = subprocess.Popen(command, env=surroundings, stdout=log, stderr=log)
        try:
            wait_until(lambda: deployment.superlink.online_since(node_id))
            yield
        finally:
            node.terminate()
            node.wait()


def check_a_run(deployment, folder):
    store = RunStore(folder / "flower")
    given = {"overrides": json.dumps(BASE), "runs": str(store.root), "members": members(deployment.superlink)}
    shown = []
    assert deployment.run(None, given, shown.append).completed, shown[-30:]
    run = store.open(identified(load_config(None, BASE)))
    assert all("missing" not in record for record in run.rounds())
    assert_same(run, run_with_absences(folder / "local", BASE, {}))
