"""Lines of JSON, for systems that collect logs."""

import json
import os
import signal
import subprocess
import sys

import pytest

from deploy.flower.json_lines import NOT_FOUND, as_json, run


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
