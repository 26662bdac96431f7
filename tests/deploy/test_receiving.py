"""What is left on a node of a message that it could not fetch."""

import inspect
import time

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedeas[flower]'")

from flwr.app import Metadata, RecordDict
from flwr.app.message.message import make_message
from flwr.common.constant import Status
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.object_store.in_memory_object_store import InMemoryObjectStore
from flwr.supercore.run import Run, RunNotRunningException
from flwr.supernode import start_client_internal
from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState

from deploy.flower.internals.receiving import FETCHES, forget_ended_runs

RUN = 7


class Server:
    """Has one message for the node; one of its interfaces says that the run has ended."""

    def __init__(self, ended=None):
        about = Metadata(RUN, "", 0, 1, "", "", time.time(), 60.0, "train")
        self.message = make_message(about, RecordDict())
        about.__dict__["_message_id"] = self.message.object_id  # as the server does
        self.ended = ended

    def receive(self):
        return self.message, get_object_tree(self.message)

    def pull_object(self, run, name):
        self._check("pull_object")
        return get_all_nested_objects(self.message)[name].deflate()

    def confirm_message_received(self, run, name):
        self._check("confirm_message_received")

    def _check(self, interface):
        if interface == self.ended:
            raise RunNotRunningException


def ask(server):
    """A node that has asked the server once for a message: its state, its objects, and the run it would work for."""
    objects = InMemoryObjectStore()
    state = InMemoryNodeState(objects)
    state.set_node_id(1)
    state.store_run(Run.create_empty(RUN))
    run = start_client_internal._pull_and_store_message(
        state=state, object_store=objects, node_config={}, receive=server.receive, get_run=None, get_fab=None,
        pull_object=server.pull_object, confirm_message_received=server.confirm_message_received, trusted_entities=None,
    )  # fmt: skip
    return state, objects, run


def open_tasks(state):
    return [task for task in state.get_tasks() if task.status.status != Status.FINISHED]


@pytest.fixture
def mended(monkeypatch):
    name = "_pull_and_store_message"
    monkeypatch.setattr(start_client_internal, name, getattr(start_client_internal, name))  # and back after the test
    assert forget_ended_runs() is None


@pytest.mark.parametrize("interface", FETCHES)
def test_nothing_is_left_of_a_message_whose_run_ends_while_it_is_fetched(mended, interface):
    state, objects, run = ask(Server(ended=interface))
    assert run is None
    assert not open_tasks(state)
    assert not state.msg_store
    assert not objects.store


@pytest.mark.usefixtures("mended")
def test_a_message_is_fetched_as_before():
    server = Server()
    state, objects, run = ask(server)
    assert run == RUN
    assert len(open_tasks(state)) == 1
    assert list(state.msg_store) == [server.message.metadata.message_id]
    assert set(objects.store) == set(get_all_nested_objects(server.message))


def test_flower_itself_leaves_a_task_behind():
    """If this fails, Flower does the removal itself, and the module under test can go."""
    state, _, run = ask(Server(ended="pull_object"))
    assert run is None
    assert open_tasks(state)


def test_a_node_of_flower_that_looks_different_is_left_unchanged(monkeypatch):
    def other(state):
        """Another signature."""

    monkeypatch.setattr(start_client_internal, "_pull_and_store_message", other)
    assert "not as expected" in forget_ended_runs()
    assert list(inspect.signature(start_client_internal._pull_and_store_message).parameters) == ["state"]
