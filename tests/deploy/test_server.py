"""Who may do what at the SuperLink's two ports."""

import asyncio
import base64
import hashlib
import threading

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedeas[flower]'")

import httpx

from deploy.flower import doors, server
from deploy.flower.client_keys import bind_client, changing_client_keys, nodes_of, read_client_keys
from deploy.flower.connection import Connection
from deploy.flower.internals.superlink import NodeStatus
from deploy.flower.internals.superlink_app import OperatorOnly
from deploy.flower.keys import (
    make_certificates,
    make_node_key,
    make_operator_key,
    public_bytes,
    read_operator_key,
)
from deploy.flower.operator import admit
from deploy.flower.stock_superlink import UNAVAILABLE, handed_on
from fedeas.cli import main
from fedeas.core.errors import InputError

OPERATOR = 8001


@pytest.mark.parametrize("given", [[], [("token", "")], [("token", "another")], [("token", b"another")],
                                   [("token", "the key"), ("token", "the key")]])  # fmt: skip
def test_only_the_operators_key_opens(given):
    plugin = OperatorOnly("the key")
    assert plugin.validate_tokens_in_metadata(given) == (False, None)
    accepted, account = plugin.validate_tokens_in_metadata([("token", "the key")])
    assert accepted
    assert account is not None
    assert plugin.refresh_tokens([("token", "the key")]) == (None, None)


@pytest.mark.parametrize(
    ("path", "keys", "expected"),
    [
        ("/v1/fleet/pull-messages", [], UNAVAILABLE),
        ("/v1/control/start-run", ["Bearer the key"], UNAVAILABLE),
        ("/v1/control/start-run", [], 401),
        ("/v1/control/start-run", ["Bearer another"], 401),
        ("/v1/control/start-run", ["Bearer the key", "Bearer the key"], 401),
        ("/v1/runtime/acquire-task", ["Bearer the key"], doors.REFUSED),
        ("/docs", ["Bearer the key"], doors.REFUSED),
    ],
)
def test_a_stock_superlink_gets_requests_of_nodes_and_of_the_operator_alone(tmp_path, path, keys, expected):
    """Nothing listens behind the doors: what may pass is found to be unavailable."""
    app = handed_on(("127.0.0.1", 1), make_certificates(tmp_path).authority, "the key")

    async def ask():
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://server")
        return await client.post(path, headers=[("Authorization", key) for key in keys])

    assert asyncio.run(ask()).status_code == expected


def test_the_operators_key_is_made_once_and_for_its_owner_alone(tmp_path):
    path = make_operator_key(tmp_path / "operator.key")
    key = read_operator_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_operator_key(make_operator_key(path)) == key
    path.write_text("short\n")
    with pytest.raises(InputError, match="no operator's key"):
        read_operator_key(path)


def test_a_server_without_certificates_says_how_to_make_them(tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        server.main(["--certificates", str(tmp_path), "--key", str(tmp_path / "operator.key")])
    assert stopped.value.code == 2
    assert "fedeas flower keys" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "address = 3", "address='a:1'\nkey='k'", "nonsense", "colour = 'red'"])
def test_a_connection_file_that_lacks_something_is_one_line(tmp_path, text):
    path = tmp_path / "connection.toml"
    path.write_text(text)
    with pytest.raises(InputError) as told:
        Connection.read(path)
    assert str(told.value).startswith(str(path))
    assert "\n" not in str(told.value)


def test_paths_of_a_connection_are_relative_to_its_file(tmp_path):
    path = tmp_path / "connection.toml"
    path.write_text("address = 'server:8001'\nroot-certificate = 'ca.pem'\nkey = '/keys/operator.key'\n")
    read = Connection.read(path)
    assert read.authority == tmp_path / "ca.pem"
    assert str(read.key) == "/keys/operator.key"
    assert read.clients is None


def test_a_server_that_is_not_there_is_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["flower", "keys", str(tmp_path)])
    (tmp_path / "connection.toml").write_text(
        "address = '127.0.0.1:9'\nroot-certificate = 'ca.pem'\nkey = 'operator.key'\n"
    )
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        main(["flower", "run", "--connection", str(tmp_path / "connection.toml")])
    assert stopped.value.code == 3
    assert capsys.readouterr().err.startswith("error: 127.0.0.1:9: no SuperLink answers there")


# ---- which key is which client


@pytest.fixture
def public_keys(tmp_path):
    return [make_node_key(tmp_path / f"node{index}") for index in range(2)]


def test_a_number_belongs_to_one_key_and_a_key_to_one_number(tmp_path, public_keys):
    path, (first, second) = tmp_path / "clients.toml", [public.read_text() for public in public_keys]
    bind_client(path, 0, first)
    bind_client(path, 0, first)  # again, without harm
    with pytest.raises(InputError, match="client 0 has another key"):
        bind_client(path, 0, second)
    with pytest.raises(InputError, match="clients 0 and 1 have the same key"):
        bind_client(path, 1, first)
    bind_client(path, 1, second)
    assert read_client_keys(path) == {0: first.strip(), 1: second.strip()}


@pytest.mark.parametrize("text", ["0 = 'ssh-rsa nonsense'", "a = 'b'", "0 = 3", "nonsense"])
def test_a_list_of_clients_that_cannot_be_used_is_one_line(tmp_path, text):
    path = tmp_path / "clients.toml"
    path.write_text(text)
    with pytest.raises(InputError) as told:
        read_client_keys(path)
    assert str(told.value).startswith(str(path))
    assert "\n" not in str(told.value)


class Registered:
    """A SuperLink at which these keys are registered."""

    def __init__(self, keys):
        self.keys = keys

    def nodes(self):
        return {100 + index: NodeStatus("online", "", key) for index, key in enumerate(self.keys)}


def test_nodes_are_found_by_their_keys(tmp_path, public_keys):
    path = tmp_path / "clients.toml"
    for client, public in enumerate(reversed(public_keys)):
        bind_client(path, client, public.read_text())
    keys = read_client_keys(path)
    assert nodes_of(path, keys, Registered(map(public_bytes, public_keys))) == {0: 101, 1: 100}
    with pytest.raises(InputError, match="does not know the key of client 0"):
        nodes_of(path, keys, Registered([public_bytes(public_keys[0])]))


class Open(Registered):
    """A SuperLink that registers keys."""

    def __init__(self, clients):
        super().__init__([])
        self.connection = Connection("127.0.0.1:1", clients, clients, clients)

    def register(self, key, name):
        self.keys.append(key)
        return 99 + len(self.keys)


def test_without_a_number_keys_are_clients_in_the_order_in_which_they_come(tmp_path, public_keys):
    superlink, asked = Open(tmp_path / "clients.toml"), []

    def confirm(number, fingerprint):
        return not asked.append((number, fingerprint))

    assert [admit(superlink, public, None, confirm) for public in public_keys] == [(0, 100), (1, 101)]
    assert [number for number, _ in asked] == [0, 1]
    assert admit(superlink, public_keys[1], None, confirm)[0] == 1  # again: it keeps its number
    kinds = [public.read_text().split() for public in public_keys]
    digests = [hashlib.sha256(base64.b64decode(content)).digest() for _, content, *_ in kinds]
    assert [base64.b64decode(fingerprint.removeprefix("SHA256:") + "=") for _, fingerprint in asked[:2]] == digests


def test_a_number_that_is_free_again_is_the_next(tmp_path, public_keys):
    path, superlink = tmp_path / "clients.toml", Open(tmp_path / "clients.toml")
    bind_client(path, 1, public_keys[0].read_text())
    assert admit(superlink, public_keys[1], None, lambda *_: True)[0] == 0


def test_what_is_not_confirmed_is_not_registered(tmp_path, public_keys):
    superlink = Open(tmp_path / "clients.toml")
    with pytest.raises(InputError, match="not confirmed"):
        admit(superlink, public_keys[0], None, lambda *_: False)
    assert not superlink.keys
    assert not (tmp_path / "clients.toml").exists()


def test_a_number_that_another_command_takes_during_the_confirmation_is_not_given_twice(tmp_path, public_keys):
    path, (first, second), asked = tmp_path / "clients.toml", public_keys, []

    def confirm(number, fingerprint):
        bind_client(path, 0, first.read_text())
        return not asked.append(number)

    assert admit(Open(path), second, None, confirm)[0] == 1
    assert asked == [0, 1]
    assert set(read_client_keys(path)) == {0, 1}


def test_two_commands_that_change_the_list_at_once_wait_for_each_other(tmp_path, public_keys):
    path, (first, second) = tmp_path / "clients.toml", [public.read_text() for public in public_keys]
    other = threading.Thread(target=bind_client, args=(path, 1, second))
    with changing_client_keys(path) as keys:
        other.start()
        other.join(0.2)  # without a lock it writes the file now
        keys[0] = first
    other.join()
    assert set(read_client_keys(path)) == {0, 1}


def test_a_key_that_the_superlink_refuses_is_not_listed(tmp_path, public_keys):
    class Refusing(Open):
        def register(self, key, name):
            raise InputError("this key was withdrawn")

    with pytest.raises(InputError, match="was withdrawn"):
        admit(Refusing(tmp_path / "clients.toml"), public_keys[0], 0, None)
    assert not (tmp_path / "clients.toml").exists()


def test_a_number_that_the_operator_gives_needs_no_confirmation(tmp_path, public_keys):
    assert admit(Open(tmp_path / "clients.toml"), public_keys[0], 5, None) == (5, 100)


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.2", "127.0.0.2:8001"),
        ("0.0.0.0", "127.0.0.1:8001"),
        ("::", "[::1]:8001"),
        ("fd00::1", "[fd00::1]:8001"),
    ],
)
def test_the_server_reaches_itself_where_it_listens(host, address):
    assert server._reached_at(host, OPERATOR) == address
