"""Which node is which client: the operator's list, and who is there."""

import threading

import pytest

from deploy.flower import __main__ as commands
from deploy.flower import clients
from deploy.flower.clients import Clients
from fedeas import InputError


class SuperLink:
    """What `flwr supernode` says of a SuperLink at which keys are registered."""

    def __init__(self):
        self.keys, self.states, self.down = {}, {}, False

    def __call__(self, group, action, *given, home):
        if self.down:
            raise InputError("flwr supernode: connection unavailable")
        if action == "register":
            if given[0] in self.keys.values():
                raise InputError("flwr supernode register: the key is in use")
            node = 2**63 + len(self.keys)
            self.keys[node], self.states[node] = given[0], "registered"
            return {"node-id": node}
        if action == "unregister":
            self.states[int(given[0])] = "unregistered"
        return {"nodes": [{"node-id": str(node), "status": state} for node, state in self.states.items()]}


@pytest.fixture
def superlink(monkeypatch):
    made = SuperLink()
    monkeypatch.setattr(clients, "flwr", made)
    return made


@pytest.fixture
def listed(tmp_path):
    return Clients(tmp_path / "home")


def test_a_number_belongs_to_one_key_and_a_key_to_one_number(listed, superlink):
    assert listed.register("a.pub", 0) == 0
    with pytest.raises(InputError, match="client 0 has a key"):
        listed.register("b.pub", 0)
    with pytest.raises(InputError, match="in use"):
        listed.register("a.pub", 1)
    listed.register("b.pub", 5)
    assert listed.read() == {0: 2**63, 5: 2**63 + 1}
    assert list(superlink.keys.values()) == ["a.pub", "b.pub"]


def test_without_a_number_keys_are_clients_in_the_order_in_which_they_come(listed, superlink):
    assert [listed.register(key) for key in ("a.pub", "b.pub", "c.pub")] == [0, 1, 2]
    listed.unregister(1)
    assert listed.register("d.pub") == 1


def test_a_withdrawn_key_is_neither_listed_nor_registered(listed, superlink):
    listed.register("a.pub")
    listed.register("b.pub")
    listed.unregister(0)
    assert listed.states() == {1: "registered"}
    assert superlink.states[2**63] == "unregistered"
    with pytest.raises(InputError, match="there is no client 7; it lists 1"):
        listed.unregister(7)


def test_a_key_that_could_not_be_withdrawn_stays_listed_until_it_is(listed, superlink):
    listed.register("a.pub")
    superlink.down = True
    with pytest.raises(InputError, match="unavailable"):
        listed.unregister(0)
    assert set(listed.read()) == {0}
    superlink.down = False
    listed.unregister(0)
    assert listed.read() == {}


def test_a_node_that_the_superlink_does_not_know_is_named(listed, superlink):
    listed.register("a.pub")
    superlink.states.clear()
    assert listed.states() == {0: "not registered"}


def test_two_commands_that_change_the_list_at_once_wait_for_each_other(listed, superlink):
    other = threading.Thread(target=listed.register, args=("b.pub", 1))
    with listed._changed() as nodes:
        other.start()
        other.join(0.2)  # without a lock it writes the file now
        nodes[0] = 7
    other.join()
    assert set(listed.read()) == {0, 1}


@pytest.mark.parametrize("text", ["nonsense", "a = 1", "0 = 'b'"])
def test_a_list_that_cannot_be_used_is_one_line(listed, text):
    listed.home.mkdir()
    listed.file.write_text(text)
    with pytest.raises(InputError, match="no list of clients") as told:
        listed.read()
    assert "\n" not in str(told.value)


def status():
    with pytest.raises(SystemExit) as stopped:
        commands.main(["status"])
    return stopped.value.code


def test_status_says_who_is_online_and_fails_unless_all_are(listed, superlink, monkeypatch, capsys):
    monkeypatch.setenv("FLWR_HOME", str(listed.home))
    listed.register("a.pub")
    listed.register("b.pub")
    superlink.states |= {2**63: "online", 2**63 + 1: "offline"}
    assert status() == 1
    assert capsys.readouterr().out == "client 0    online\nclient 1    offline\n"
    superlink.states[2**63 + 1] = "online"
    assert status() == 0
