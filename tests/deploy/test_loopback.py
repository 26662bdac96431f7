"""A deployment of two nodes, as it runs, is attacked, loses a node and is taken down."""

import base64
import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedeas[flower]'")

import psutil
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_private_key
from flower.absences import run_with_absences
from flower.deployments import deployed
from flower.gated_runs import assert_same
from waiting import wait_until

from deploy.flower.one_machine import make_key
from deploy.flower.programs import environment, flwr, free_port, program
from fedeas import InputError
from fedeas.config import load_config
from fedeas.core.errors import RunError
from fedeas.federation.run import identified
from fedeas.runs.store import RunStore

APP = Path(__file__).parent / "app"
PLACE = 'a "quoted" one'
PROTOBUF = {"content-type": "application/protobuf", "accept": "application/protobuf"}
RUN = ["partition.clients=2", "rounds.participation=1.0", "rounds.total=2", "train.epochs=1", "train.lr=0.05",
       "engine.threads=1", "policy=fedeas(beta=2)"]  # fmt: skip


@pytest.mark.slow  # Flower starts a process for each message
def test_the_life_of_a_deployment(tmp_path, subtests, monkeypatch):
    """One test for all, since the start takes most of the time."""
    settings = {"place": PLACE}
    with deployed(tmp_path, 2, settings, with_modules(APP), ["--app", str(APP)]) as deployment:
        monkeypatch.setenv("FLWR_HOME", str(deployment.folder))
        heard = ask_the_nodes(deployment, "who fail")
        with subtests.test("messages reach all nodes, with their settings, each in a process of its own"):
            check_the_settings(deployment, heard[0])
        with subtests.test("an exception comes back in words"):
            assert all("on purpose" in error for error in errors(heard[1]))
            assert len(errors(heard[1])) == 2
        with subtests.test("a failed run is told with its reason"):
            check_a_failure(deployment)
        with subtests.test("nobody else takes a node's tasks or the server's"):
            check_the_secrets(deployment)
        with subtests.test("a client's host cannot start a run"):
            check_a_client_is_no_operator(deployment)
        with subtests.test("nodes load no other app, whoever started it"):
            check_a_hostile_app(deployment, tmp_path)
        with subtests.test("an unknown key, no key and no TLS are refused"):
            check_intruders(deployment, tmp_path / "stranger")
        with subtests.test("an old request of a node is refused"):
            check_a_replay(deployment)
        with subtests.test("a second node with the same key is refused"):
            check_a_double(deployment)
        with subtests.test("a withdrawn key is refused"):
            check_a_withdrawn_key(deployment)
        with subtests.test("the end leaves nothing"):
            check_the_end(deployment)


@pytest.mark.slow
def test_a_run_equals_the_local_one(tmp_path):
    config, store = load_config(None, RUN), RunStore(tmp_path / "flower")
    with deployed(tmp_path / "deployment", 2) as deployment:
        shown = []
        given = {"settings": config.model_dump_json(), "runs": str(store.root)}
        assert deployment.run(None, given, shown.append).completed, shown[-30:]
        assert any("round 2 of 2" in line for line in shown)
    run = store.open(identified(config))
    assert all("missing" not in record for record in run.rounds())
    assert_same(run, run_with_absences(tmp_path / "local", RUN, {}))


def with_modules(folder):
    """The environment in which Python finds the modules in this folder, too."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}


def ask_the_nodes(deployment, steps, app=APP):
    """What the server of the app heard, step by step."""
    out = deployment.folder / "heard.json"
    outcome = deployment.run(app, {"out": str(out), "steps": steps})
    assert outcome.completed, deployment.log("server").read_text()[-3000:]
    return json.loads(out.read_text())


def check_the_settings(deployment, step):
    settings = [json.loads(answer["node config"]) for answer in step["answers"]]
    settings.sort(key=lambda config: config["partition-id"])
    shared = {"num-partitions": 2, "place": PLACE}
    states = [str(deployment.folder / "state" / str(index)) for index in range(2)]
    assert settings == [{"partition-id": index, "state-dir": states[index], **shared} for index in range(2)]
    assert {answer["node id"] for answer in step["answers"]} == set(deployment.clients.read().values())
    assert len({answer["pid"] for answer in step["answers"]}) == 2


def check_a_failure(deployment):
    shown, out = [], deployment.folder / "failed.json"
    outcome = deployment.run(APP, {"out": str(out), "steps": "give-up"}, show=shown.append)
    assert outcome.status == "finished:failed"
    assert not outcome.completed
    assert "given up on purpose" in outcome.details
    assert any("given up on purpose" in line for line in shown)


def post(address, path, authority=None, headers=None, content=b""):
    """The status that a request gets."""
    if authority is None:
        connection = HTTPConnection(address)
    else:
        connection = HTTPSConnection(address, context=ssl.create_default_context(cafile=authority))
    try:
        connection.request("POST", path, content, {**PROTOBUF, **(headers or {})})
        return connection.getresponse().status
    finally:
        connection.close()


def runs(process, name):
    return name in " ".join(process.cmdline())


def option(process, name):
    """The value of an option in the command line of a process."""
    command = process.cmdline()
    return command[command.index(name) + 1]


def check_the_secrets(deployment):
    [executor] = [each for each in psutil.Process(deployment.nodes[0].pid).children() if runs(each, "flower-superexec")]
    runtime = option(executor, "--runtime-api-address")
    secret = Path(option(executor, "--superexec-auth-secret-file"))
    assert secret.stat().st_mode & 0o777 == 0o600
    assert post(runtime, "/v1/runtime/acquire-task") == 401
    operator = f"127.0.0.1:{deployment.operator_port}"
    assert post(operator, "/v1/runtime/acquire-task", deployment.made.authority) == 401


def check_a_client_is_no_operator(deployment):
    """The nodes' port knows no runs, and the operator's port is not there for other hosts."""
    nodes = f"127.0.0.1:{deployment.port}"
    for path in ("control/start-run", "control/register-node", "runtime/acquire-task", ""):
        assert post(nodes, f"/v1/{path}", deployment.made.authority) == 404
    assert post(nodes, "/v1/fleet/pull-messages", deployment.made.authority) == 401
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", deployment.operator_port))
    assert deployment.operator.unfinished_runs() == []
    with pytest.raises(RunError, match="not found"):
        deployment.operator.status(99)


def check_a_hostile_app(deployment, folder):
    """Flower unpacks an app of the same name with other code, and the nodes refuse to load it."""
    hostile, trace = folder / "hostile", folder / "trace"
    shutil.copytree(APP, hostile, ignore=shutil.ignore_patterns("__pycache__"))
    with (hostile / "probe.py").open("a") as file:
        file.write(f"\nimport sys\nif 'flwr-serverapp' not in ' '.join(sys.argv): Path({str(trace)!r}).touch()\n")
    [heard] = ask_the_nodes(deployment, "who", hostile)
    assert len(errors(heard)) == 2
    assert all("this node runs tests/probe 0.1.0 only" in error for error in errors(heard))
    assert not trace.exists()


@contextmanager
def another_node(deployment, key, *options):
    """Flower's SuperNode as an intruder starts it; give its process."""
    certificates = () if "--insecure" in options else ("--root-certificates", str(deployment.made.authority))
    keys = () if key is None else ("--auth-supernode-private-key", str(key))
    command = [program("flower-supernode"), "--superlink", f"127.0.0.1:{deployment.port}", *certificates, *keys]
    command += ["--max-retries", "1", "--isolation", "process", "--port", str(free_port()), *options]
    surroundings = environment(FLWR_HOME=str(deployment.folder / "homes" / "intruder"))
    process = subprocess.Popen(command, env=surroundings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def check_refused(deployment, key, *options):
    with another_node(deployment, key, *options) as intruder:
        said, _ = intruder.communicate(timeout=300)
        assert intruder.returncode, said
        assert "SuperNode ID" not in said


def check_intruders(deployment, key):
    make_key(key)
    check_refused(deployment, key)
    check_refused(deployment, None)
    check_refused(deployment, None, "--insecure")
    listed = flwr("supernode", "list", home=deployment.folder)["nodes"]
    assert {int(node["node-id"]) for node in listed} == set(deployment.clients.read().values())


def signed(key, at):
    """The headers with which a node signs a request."""
    private = load_ssh_private_key(key.read_bytes(), None)
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signature = private.sign(at.isoformat().encode(), ec.ECDSA(hashes.SHA256()))
    texts = {"flwr-public-key": public, "flwr-signature": signature}
    return {"flwr-timestamp": at.isoformat(), **{name: base64.b64encode(text).decode() for name, text in texts.items()}}


def heartbeat(node):
    """The message with which a node says that it is there, in protobuf."""
    number = bytearray()
    while node > 127:
        number.append(node & 127 | 128)
        node >>= 7
    number = b"\x08" + bytes([*number, node])
    return b"\x0a" + bytes([len(number)]) + number + b"\x11" + struct.pack("<d", 30.0)


def check_a_replay(deployment):
    """What a node signed, sent again by somebody who has recorded it."""
    address, now = f"127.0.0.1:{deployment.port}", datetime.now(UTC)
    beat = heartbeat(deployment.clients.read()[0])

    def send(key, at):
        return post(address, "/v1/fleet/send-node-heartbeat", deployment.made.authority, signed(key, at), beat)

    assert send(deployment.key(0), now) == 200
    assert send(deployment.key(0), now - timedelta(hours=1)) == 401
    assert send(deployment.key(1), now) == 401  # another node's heartbeat


def check_a_double(deployment):
    check_refused(deployment, deployment.key(0))
    assert deployment.clients.states() == {0: "online", 1: "online"}


def check_a_withdrawn_key(deployment):
    deployment.clients.unregister(1)
    wait_until(lambda: deployment.nodes[1].poll() is not None)  # the node is cut off
    check_refused(deployment, deployment.key(1))
    with pytest.raises(InputError):
        deployment.clients.register(deployment.key(1).with_suffix(".pub"), 1)
    assert deployment.clients.states() == {0: "online"}


def check_the_end(deployment):
    everything = [each for process in [deployment.server, deployment.nodes[0]] for each in children(process.pid)]
    assert len(everything) >= 5  # nginx, the SuperLink, a node, and their executors
    deployment.stop()
    wait_until(lambda: not any(map(exists, everything)))


def errors(step):
    return [answer["error"] for answer in step["answers"] if "error" in answer]


def children(pid):
    return psutil.Process(pid).children(recursive=True)


def exists(process):
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
