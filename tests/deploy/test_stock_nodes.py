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
from flower.deployments import deployed
from flower.gated_runs import assert_same
from waiting import wait_until

from deploy.flower.environment import environment, program
from deploy.flower.internals.superlink import SuperLink
from deploy.flower.keys import make_operator_key
from deploy.flower.operator import members
from deploy.flower.processes import free_port
from fedeas.config import load_config
from fedeas.core.errors import InputError
from fedeas.federation.run import identified
from fedeas.runs.store import RunStore

PROBE = Path(__file__).parent / "app"
BASE = ["partition.clients=2", "rounds.participation=1.0", "rounds.total=2", "train.epochs=1", "train.lr=0.05",
        "engine.threads=1", "policy=fedeas(beta=2)"]  # fmt: skip


UNKNOWN_VERSION = """
from importlib import metadata
known = metadata.version
metadata.version = lambda name: "1.99.0" if name == "flwr" else known(name)
"""
MISSING_NAMES = """
import sys
for part in ("executor", "superlink_app"):
    sys.modules[f"deploy.flower.internals.{part}"] = None
"""


def beginning_with(script, folder):
    """The environment in which every Python process begins with this script."""
    (folder / "sitecustomize.py").write_text(script)
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}


def check_the_logs(deployment):
    """Each process says once that it uses Flower's own programs."""
    said = {name: deployment.log(name).read_text() for name in ("superlink", "node0", "node1")}
    assert {name: text.count("Flower's own") for name, text in said.items()} == dict.fromkeys(said, 1)


@pytest.mark.slow  # Flower starts a process for each message, which imports torch
def test_a_run_with_an_unknown_version_of_flower_equals_the_local_one(tmp_path):
    surroundings = beginning_with(UNKNOWN_VERSION, tmp_path)
    with deployed(tmp_path / "deployment", 2, environment=surroundings) as deployment:
        check_a_hostile_app(deployment, tmp_path)
        with plain_node(deployment, 1):
            check_a_run(deployment, tmp_path)
        check_the_logs(deployment)


@pytest.mark.slow
def test_without_private_names_of_flower_messages_still_arrive_and_the_operators_key_is_needed(tmp_path):
    surroundings, out, shown = beginning_with(MISSING_NAMES, tmp_path), tmp_path / "heard.json", []
    with deployed(tmp_path / "deployment", 2, environment=surroundings, options=["--app", str(PROBE)]) as deployment:
        assert deployment.run(PROBE, {"out": str(out), "steps": "who who"}, shown.append).completed, shown
        steps = json.loads(out.read_text())
        assert [sum("node id" in answer for answer in step["answers"]) for step in steps] == [2, 2]
        assert shown
        make_operator_key(tmp_path / "stranger.key")
        stranger = SuperLink(replace(deployment.connection, key=tmp_path / "stranger.key"))
        with pytest.raises(InputError, match="has another key"):
            stranger.nodes()
        check_the_logs(deployment)


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
        surroundings = environment(deployment.folder / "homes" / "plain")
        node = subprocess.Popen(command, env=surroundings, stdout=log, stderr=log)
        try:
            wait_until(lambda: deployment.superlink.online_since(node_id))
            yield
        finally:
            node.terminate()
            node.wait()


def check_a_run(deployment, folder):
    store = RunStore(folder / "flower")
    settings = load_config(None, BASE).model_dump_json()
    given = {"settings": settings, "runs": str(store.root), "members": members(deployment.superlink)}
    shown = []
    assert deployment.run(None, given, shown.append).completed, shown[-30:]
    run = store.open(identified(load_config(None, BASE)))
    assert all("missing" not in record for record in run.rounds())
    assert_same(run, run_with_absences(folder / "local", BASE, {}))
