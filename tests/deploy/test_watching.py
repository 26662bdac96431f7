"""How services are watched: lines of JSON, health, and who is there."""

import json
import os
import signal
import subprocess
import sys

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedeas[flower]'")

from flwr.supercore.grpc_health import run_health_server_grpc_no_tls

from deploy.flower import server
from deploy.flower.client_keys import bind_client, read_client_keys
from deploy.flower.connection import Connection
from deploy.flower.internals.superlink import NodeStatus
from deploy.flower.json_lines import NOT_FOUND, as_json, run
from deploy.flower.keys import make_certificates, make_node_key, public_bytes
from deploy.flower.operator import client_states, withdraw
from deploy.flower.processes import free_port
from fedeas.cli import main
from fedeas.core.errors import InputError, RunError


def lines(*command):
    """What a command prints, as objects, and its exit code."""
    shown = []
    code = run(command, "test", shown.append)
    return [json.loads(line) for line in shown], code


@pytest.mark.parametrize(
    ("line", "level", "message"),
    [
        ("error: keys: no such file", "error", "keys: no such file"),
        ("\x1b[92mINFO \x1b[0m:      Starting Flower SuperNode", "info", "Starting Flower SuperNode"),
        ("WARNING :   late", "warning", "late"),
        ("2026-01-31T12:00:00Z ERROR [uvicorn.error] no", "error", "[uvicorn.error] no"),
        ("2026-01-31 12:00:00,123 INFO [flwr] yes", "info", "[flwr] yes"),
        ("errors are rare: none today", "info", "errors are rare: none today"),
        ("round 1 of 3, accuracy 12.0%", "info", "round 1 of 3, accuracy 12.0%"),
    ],
)
def test_a_level_at_the_beginning_becomes_a_field(line, level, message):
    told = json.loads(as_json(line, "node"))
    assert (told["level"], told["message"], told["service"]) == (level, message, "node")


@pytest.mark.parametrize("text", ["", "a\nb", '"', "\x00\x07", "\ud800", "error:", "{}", "\x1b[2J", "é 漢字"])
def test_every_line_becomes_one_line_of_json(text):
    made = as_json(text, "node")
    assert "\n" not in made
    assert json.loads(made)["level"] in {"info", "error"}


def test_both_outputs_of_a_program_and_its_children_are_caught():
    told, code = lines("sh", "-c", "echo one; echo error: two >&2; (echo three); exit 7")
    assert [(each["level"], each["message"]) for each in told] == [("info", "one"), ("error", "two"), ("info", "three")]
    assert code == 7


def test_a_program_that_does_not_exist_is_told():
    told, code = lines("/no/such/program")
    assert code == NOT_FOUND
    assert [each["level"] for each in told] == ["error"]


def test_a_signal_goes_to_the_program():
    command = ["-m", "deploy.flower.json_lines", "--service", "test", "--"]
    script = "trap 'echo ended; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    process = subprocess.Popen([sys.executable, *command, "sh", "-c", script], stdout=subprocess.PIPE, text=True)
    assert json.loads(process.stdout.readline())["message"] == "ready"
    os.kill(process.pid, signal.SIGTERM)
    rest, _ = process.communicate()
    assert json.loads(rest.splitlines()[-1])["message"] == "ended"
    assert process.returncode == 3


def test_a_child_can_see_that_the_program_has_ended():
    """As Flower's helpers do, which print and end when their parent is gone."""
    told, _ = lines(
        "sh", "-c", "parent=$$; (while kill -0 $parent 2>/dev/null; do sleep 0.05; done; echo seen) & exit 0"
    )
    assert [each["message"] for each in told] == ["seen"]


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return stopped.value.code, printed.out + printed.err


def test_health_is_asked_and_its_absence_told(capsys):
    address = f"127.0.0.1:{free_port()}"
    served = run_health_server_grpc_no_tls(address)  # as the SuperLink and nodes do
    assert call(capsys, "flower", "health", address)[0] == 0
    served.stop(None).wait()
    code, said = call(capsys, "flower", "health", address)
    assert code == 3
    assert said.startswith(f"error: {address}: no answer")


def test_a_folder_for_metrics_must_exist(tmp_path, capsys):
    made = make_certificates(tmp_path)
    place = tmp_path / "nowhere" / "fedeas.prom"
    with pytest.raises(SystemExit) as stopped:
        server.main(["--certificates", str(made.authority.parent), "--key", "k", "--metrics", str(place)])
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith(f"error: {place}: the folder")


class Listed:
    """A SuperLink at which some keys are registered."""

    def __init__(self, path, keys):
        self.connection = Connection("127.0.0.1:1", path, path, path)
        self.states = {100 + index: NodeStatus("online", "", key) for index, key in enumerate(keys)}

    def nodes(self):
        return dict(self.states)

    def unregister(self, node_id):
        del self.states[node_id]


@pytest.fixture
def listed(tmp_path):
    """Two clients, of which the SuperLink knows the first."""
    public = [make_node_key(tmp_path / f"node{client}") for client in range(2)]
    for client, path in enumerate(public):
        bind_client(tmp_path / "clients.toml", client, path.read_text())
    return Listed(tmp_path / "clients.toml", [public_bytes(public[0])])


def test_the_state_of_each_client_is_known(listed):
    assert client_states(listed) == {0: "online", 1: "not registered"}


def test_a_withdrawn_key_is_neither_listed_nor_registered(listed, tmp_path):
    path, other = listed.connection.clients, make_node_key(tmp_path / "other")
    withdraw(listed, 0)
    assert not listed.states
    assert set(read_client_keys(path)) == {1}
    bind_client(path, 0, other.read_text())
    assert client_states(listed)[0] == "not registered"
    with pytest.raises(InputError, match="there is no client 7"):
        withdraw(listed, 7)


def test_a_key_that_could_not_be_withdrawn_stays_listed_until_it_is(listed, monkeypatch):
    path = listed.connection.clients

    def fail(superlink, node_id):
        raise RunError("no SuperLink answers")

    with monkeypatch.context() as while_down:
        while_down.setattr(Listed, "unregister", fail)
        with pytest.raises(RunError, match="no SuperLink"):
            withdraw(listed, 0)
        assert set(read_client_keys(path)) == {0, 1}
    withdraw(listed, 0)
    withdraw(listed, 1)  # the SuperLink does not know this key
    assert not listed.states
    assert not read_client_keys(path)
