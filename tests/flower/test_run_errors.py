"""An error of a run's server reaches the operator as one line with its exit code."""

import logging

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedeas[flower]'", exc_type=ImportError)

from flower.grids import StraightGrid
from flwr.app import Context, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from fedeas.config import load_config
from fedeas.core.errors import InputError, RunError
from fedeas.flower.app import server
from fedeas.flower.operator import RunStatus, told_in_one_line

CLIENTS = 2
SETTINGS = load_config(
    None, [f"partition.clients={CLIENTS}", "rounds.total=1", "engine.timeout=0.1", "engine.name=flower"]
).model_dump_json()


@pytest.fixture(autouse=True)
def loggers():
    """What the server sets is for a process of its own."""
    before = {name: (logging.getLogger(name).level, logging.getLogger(name).propagate) for name in ("flwr", "fedeas")}
    handlers = list(logging.getLogger("fedeas").handlers)
    yield
    logging.getLogger("fedeas").handlers = handlers
    for name, (level, propagate) in before.items():
        logging.getLogger(name).setLevel(level)
        logging.getLogger(name).propagate = propagate


def refusal(folder, grid, **given):
    """The error with which the server's part of a run ends, as the operator's command reads it."""
    asked = {"settings": SETTINGS, "runs": str(folder / "runs"), **given}
    with pytest.raises(RuntimeError) as ended:
        server(grid, Context(1, 1, {}, RecordDict(), asked))
    return RunStatus(1, "finished:failed", f"ServerApp failed with exception: {ended.value}").error


@pytest.mark.parametrize(
    ("node_config", "off", "given", "message"),
    [
        ({}, {1}, {}, r"clients \[1\] did not come within 0.1 s; start their nodes"),
        ({"share-count": True}, set(), {}, "unknown share-count"),
        ({"device": "cuda:1"}, set(), {}, "client 0 .*the node's device 'cuda:1'.*CUDA_VISIBLE_DEVICES=1"),
        ({}, set(), {"members": '{"0": 7}'}, "no node is registered for client 1"),
        ({}, set(), {"settings": '{"of_the_future": 1}'}, "of_the_future"),
        ({}, set(), {"settings": SETTINGS.replace('"digits"', '"npz:nowhere.npz"')}, "nowhere.npz"),
    ],
    ids=["missing node", "node config", "device", "unlisted key", "other version", "no data"],
)
def test_a_run_that_cannot_begin_ends_with_one_line_and_exit_code_2(tmp_path, node_config, off, given, message):
    error = refusal(tmp_path, StraightGrid(tmp_path, CLIENTS, off=off, node_config=node_config), **given)
    with pytest.raises(RunError, match=message):
        raise error
    assert error.exit_code == InputError.exit_code
    assert "\n" not in str(error)


def test_a_full_disk_of_the_server_is_told_with_its_exit_code():
    with pytest.raises(RuntimeError) as ended, told_in_one_line():
        raise OSError(28, "No space left on device", "rounds.jsonl")
    error = RunStatus(1, "finished:failed", str(ended.value)).error
    assert error.exit_code == 3
    assert "rounds.jsonl" in str(error)


def test_other_exceptions_are_left_to_flower():
    with pytest.raises(ZeroDivisionError), told_in_one_line():
        _ = 1 / 0
    assert RunStatus(1, "finished:failed", "ServerApp failed with exception: division by zero").error is None


@given(st.text(min_size=1))
def test_messages_arrive_as_they_were_but_in_one_line(text):
    with pytest.raises(RuntimeError) as ended, told_in_one_line():
        raise InputError(text)
    assert str(RunStatus(1, "finished:failed", f"before {ended.value}").error).split() == text.split()
