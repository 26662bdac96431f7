"""A deployment of two nodes, as it runs, is attacked, loses a node and is taken down."""

import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedeas[flower]'")

import httpx
import psutil
from flower.deployments import deployed
from flwr.proto.fleet_pb2 import ActivateNodeRequest, RegisterNodeFleetRequest
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from waiting import wait_until

from deploy.flower import node
from deploy.flower.app import Bundle
from deploy.flower.internals.superlink import SuperLink
from deploy.flower.keys import make_node_key, make_operator_key, public_bytes, read_node_key
from deploy.flower.loopback import Loopback
from fedeas.core.errors import InputError, RunError

APP = Path(__file__).parent / "app"
SHORT = 1.0  # seconds that a message may take at a node where an app is to hang
PLACE = 'a "quoted" one'


def test_the_life_of_a_deployment(tmp_path, subtests, capsys):
    """One test for all, since the start takes most of the time."""
    options = ["--app", str(APP), "--preload", "colorsys"]
    with deployed(tmp_path, 2, {"place": PLACE}, with_modules(APP), options) as deployment:
        with subtests.test("all are online and written down"):
            check_the_file(deployment)
        heard = ask_the_nodes(deployment, "who who fail die who")
        with subtests.test("messages reach all nodes, with their settings"):
            check_the_settings(deployment, heard[0])
        with subtests.test("preloaded modules and the app are imported once"):
            check_the_processes([heard[0], heard[1], heard[-1]])
        with subtests.test("an exception comes back in words"):
            assert errors(heard[2]) == ["<class 'ValueError'>:<'on purpose'>"] * 2
        with subtests.test("an app that dies is reported"):
            assert errors(heard[3]) == ["The process of the app ended with exit code 17."] * 2
        with subtests.test("a killed node is accepted again"):
            check_a_restart(deployment)
        with subtests.test("an app that hangs is killed and reported; a failed run is told with its reason"):
            check_a_hang_and_a_failure(deployment)
        with subtests.test("nobody else takes a node's tasks"):
            check_the_secret(deployment)
        with subtests.test("a client's host cannot start a run"):
            check_a_client_is_no_operator(deployment, tmp_path / "stranger.key")
        with subtests.test("nodes run no other app, whoever started it"):
            check_a_hostile_app(deployment, tmp_path)
        with subtests.test("intruders are refused"):
            check_intruders(deployment, tmp_path / "stranger")
        with subtests.test("an old request of a node is refused"):
            check_a_replay(deployment)
        with subtests.test("a withdrawn key is refused"):
            check_a_withdrawn_key(deployment, tmp_path / "withdrawn")
        with subtests.test("a second node with the same key is refused"):
            check_a_double(deployment, capsys)
        with subtests.test("down from another process leaves nothing"):
            check_the_end(deployment)


def with_modules(folder):
    """The environment in which Python finds the modules in this folder, too."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}


def test_a_superlink_that_cannot_start_is_reported_with_its_log_and_leaves_nothing(tmp_path, monkeypatch):
    (tmp_path / "uvicorn.py").write_text("raise ImportError('no such server')")
    monkeypatch.setenv(*with_modules(tmp_path).popitem())
    broken = Loopback(tmp_path)
    with pytest.raises(RunError, match="no such server") as told:
        broken.up(1, {})
    assert str(told.value).startswith("superlink ended; the end of")
    assert not broken.file.exists()


@pytest.mark.slow
def test_a_node_that_cannot_start_is_reported_with_its_log_and_leaves_nothing(tmp_path):
    broken = Loopback(tmp_path)
    with pytest.raises(RunError, match="No module named 'no_such_module'") as told:
        broken.up(1, {}, ["--preload", "no_such_module"])
    assert str(told.value).startswith("node0 ended; the end of")
    assert not broken.file.exists()


def check_the_file(deployment):
    assert deployment.status() == {"superlink": "online", "node0": "online", "node1": "online"}
    written = json.loads(deployment.file.read_text())
    assert [node["name"] for node in written["nodes"]] == ["node0", "node1"]
    assert all(exists(each["pid"]) for each in [written["superlink"], *(node["process"] for node in written["nodes"])])


def check_a_restart(deployment):
    """From now on this node has a limit; earlier, a busy machine might have taken longer for honest work."""
    known = deployment.state.nodes[1]
    executor = children(known.process.pid)
    assert executor
    os.kill(known.process.pid, signal.SIGKILL)  # the node alone: its executor must notice by itself
    wait_until(lambda: not any(map(exists, executor)))
    deployment.start_node(1, "--limit", str(SHORT))
    assert deployment.status()["node1"] == "online"
    assert int((deployment.folder / "keys" / "node1.running").read_text()) == known.id


def ask_the_nodes(deployment, steps):
    """What the server of the app heard, step by step."""
    out = deployment.folder / "heard.json"
    outcome = deployment.run(APP, {"out": str(out), "steps": steps}, show=lambda line: None)
    assert outcome.completed, deployment.log("superlink").read_text()[-3000:]
    return json.loads(out.read_text())


def check_the_settings(deployment, step):
    settings = [json.loads(answer["node config"]) for answer in step["answers"]]
    settings.sort(key=lambda config: config["partition-id"])
    folders = [str(deployment.folder / f"node{i}") for i in range(2)]
    shared = {"num-partitions": 2, "place": PLACE}
    assert settings == [{"partition-id": i, "state-dir": folders[i], **shared} for i in range(2)]
    assert {answer["node id"] for answer in step["answers"]} == {node.id for node in deployment.state.nodes}


def check_the_processes(steps):
    answers = [answer for step in steps for answer in step["answers"]]
    assert len(answers) == 6
    assert all(answer["preloaded"] and answer["imported in"] == answer["parent"] for answer in answers)
    assert len({answer["pid"] for answer in answers}) == 6
    assert len({answer["parent"] for answer in answers}) == 2


def check_a_hang_and_a_failure(deployment):
    shown, out = [], deployment.folder / "hang.json"
    outcome = deployment.run(APP, {"out": str(out), "steps": "hang give-up"}, show=shown.append)
    [heard] = json.loads(out.read_text())
    assert errors(heard) == [f"The process of the app ran past the limit of {SHORT:g} s."]
    assert len(heard["answers"]) == 2
    assert outcome.status == "finished:failed"
    assert not outcome.completed
    assert "given up on purpose" in outcome.details
    assert any("given up on purpose" in line for line in shown)


def check_the_secret(deployment):
    [executor] = psutil.Process(deployment.state.nodes[0].process.pid).children()
    command = executor.cmdline()
    check_tasks_need_the_secret(command[command.index("--runtime") + 1], None)


def check_tasks_need_the_secret(address, authority):
    version = RuntimeVersionHttpInterceptor(component_name="SuperExec")
    connection = RuntimeHttpClient.from_server_address(address, authority is None, authority, [version])
    with connection as intruder, pytest.raises(httpx.HTTPStatusError) as refused:
        intruder.AcquireTask(AcquireTaskRequest(supported_task_types=["flwr-clientapp", "flwr-serverapp"]))
    assert refused.value.response.status_code == 401


def check_a_client_is_no_operator(deployment, key):
    """The nodes' port knows no runs; the operator's port wants the key, and its tasks another secret."""
    knocks = [(deployment.nodes_address, path, 404) for path in ("control/start-run", "runtime/acquire-task", "")]
    knocks += [(deployment.superlink.address, f"control/{name}", 401) for name in ("start-run", "register-node")]
    knocks += [(deployment.superlink.address, "fleet/activate-node", 404)]
    headers = {"content-type": "application/x-protobuf", "accept": "application/x-protobuf"}
    with httpx.Client(verify=ssl.create_default_context(cafile=deployment.authority), trust_env=False) as client:
        for address, path, status in knocks:
            answer = client.post(f"https://{address}/v1/{path}", content=b"", headers=headers)
            assert answer.status_code == status, (address, path, answer.text)
    check_tasks_need_the_secret(deployment.superlink.address, deployment.authority.read_bytes())
    make_operator_key(key)
    stranger = SuperLink(replace(deployment.connection, key=key))
    with pytest.raises(InputError, match="has another key"):
        stranger.start_run(Bundle.of(APP), {})
    with pytest.raises(InputError, match="give the operator's port"):
        SuperLink(replace(deployment.connection, address=deployment.nodes_address)).run_status(99)
    with pytest.raises(InputError, match="knows no run 99"):
        deployment.superlink.run_status(99)
    assert not deployment.superlink.unfinished_runs()


def check_a_hostile_app(deployment, folder):
    """An app of the same name with other code; the nodes do not run it, even if the operator starts it."""
    hostile, trace = folder / "hostile", folder / "trace"
    shutil.copytree(APP, hostile, ignore=shutil.ignore_patterns("__pycache__"))
    with (hostile / "probe.py").open("a") as file:
        file.write(f"\nif 'flwr-serverapp' not in ' '.join(sys.argv): Path({str(trace)!r}).touch()\n")
    out = deployment.folder / "hostile.json"
    outcome = deployment.run(hostile, {"out": str(out), "steps": "who"}, show=lambda line: None)
    assert outcome.completed, outcome.details
    [heard] = json.loads(out.read_text())
    assert len(errors(heard)) == 2
    assert all(error.startswith("this node runs tests/probe 0.1.0 only") for error in errors(heard))
    assert not trace.exists()


def check_intruders(deployment, key):
    """One with an unregistered key, one without a key, and one without TLS."""
    public, private = public_bytes(make_node_key(key)), read_node_key(key)
    signed = [NodeAuthHttpInterceptor(private, private.public_key())]
    activate, register = ActivateNodeRequest(public_key=public), RegisterNodeFleetRequest(public_key=public)
    with at_the_nodes_port(deployment, signed) as fleet, pytest.raises(httpx.HTTPStatusError):
        fleet.ActivateNode(activate)
    with at_the_nodes_port(deployment, []) as fleet:
        for ask in (lambda: fleet.RegisterNode(register), lambda: fleet.ActivateNode(activate)):
            with pytest.raises(httpx.HTTPStatusError):
                ask()
    with at_the_nodes_port(deployment, signed, tls=False) as fleet, pytest.raises(httpx.TransportError):
        fleet.ActivateNode(activate)
    assert len(deployment.superlink.nodes()) == 2


class SignedEarlier(NodeAuthHttpInterceptor):
    """Sends what a node signed some seconds ago, as somebody who has recorded it would."""

    def __init__(self, private, seconds):
        super().__init__(private, private.public_key())
        self.signed_at = datetime.now(UTC) - timedelta(seconds=seconds)

    def intercept(self, context, call_next):
        with patch("flwr.supernode.node_auth_http_interceptor.now", lambda: self.signed_at):
            return super().intercept(context, call_next)


def check_a_replay(deployment):
    private, node_id = read_node_key(deployment.key(0)), deployment.state.nodes[0].id
    beat = SendNodeHeartbeatRequest(node=Node(node_id=node_id), heartbeat_interval=30)
    with at_the_nodes_port(deployment, [SignedEarlier(private, 0)]) as fleet:
        assert fleet.SendNodeHeartbeat(beat).success
    late = at_the_nodes_port(deployment, [SignedEarlier(private, 3600)])
    with late as fleet, pytest.raises(httpx.HTTPStatusError) as refused:
        fleet.SendNodeHeartbeat(beat)
    assert refused.value.response.status_code == 401


def check_a_withdrawn_key(deployment, key):
    public, private = public_bytes(make_node_key(key)), read_node_key(key)
    activate = ActivateNodeRequest(public_key=public, heartbeat_interval=30)
    node_id = deployment.superlink.register(public, "withdrawn")
    with at_the_nodes_port(deployment, [NodeAuthHttpInterceptor(private, private.public_key())]) as fleet:
        assert fleet.ActivateNode(activate).node_id == node_id
        deployment.superlink.unregister(node_id)
        with pytest.raises(httpx.HTTPStatusError):
            fleet.ActivateNode(activate)
    with pytest.raises(InputError):
        deployment.superlink.register(public, "again")
    assert node_id not in deployment.superlink.nodes()


def at_the_nodes_port(deployment, interceptors, tls=True):
    """A connection as a node makes it."""
    version = RuntimeVersionHttpInterceptor(component_name="SuperNode")
    certificate = deployment.authority.read_bytes() if tls else None
    return FleetHttpClient.from_server_address(
        deployment.nodes_address, not tls, certificate, interceptors=[version, *interceptors]
    )


def check_a_double(deployment, capsys):
    key = deployment.key(0)
    own = ["--superlink", deployment.nodes_address, "--key", str(key), "--root-certificate", str(deployment.authority)]
    with pytest.raises(SystemExit) as refused:
        node.main(own)
    assert refused.value.code == 2
    assert capsys.readouterr().err.strip() == f"error: {key}: a node with this key is running already; end it first"
    assert deployment.status()["node0"] == "online"


def check_the_end(deployment):
    started = deployment.state.processes
    everything = [pid for process in started for pid in (process.pid, *children(process.pid))]
    assert len(everything) == 6  # the SuperLink and its helper, two nodes and their executors
    command = [sys.executable, "-m", "fedeas", "flower", "down", "--folder", str(deployment.folder)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "3 processes ended" in ended.stdout
    assert not deployment.file.exists()
    assert not any(process.alive for process in started)
    wait_until(lambda: not any(map(exists, everything)))


def errors(step):
    return [answer["error"] for answer in step["answers"] if "error" in answer]


def children(pid):
    return [child.pid for child in psutil.Process(pid).children()]


def exists(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
