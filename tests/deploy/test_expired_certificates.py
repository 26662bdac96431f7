"""Over a real TLS connection: nothing is sent to a server whose certificate has expired."""

import socket
import ssl
import threading
from contextlib import contextmanager, suppress

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedeas[flower]'")

from deploy.flower import keys, server
from deploy.flower.connection import Connection
from deploy.flower.internals.sign_off import sign_off
from deploy.flower.internals.superlink import SuperLink
from deploy.flower.keys import make_certificates, make_node_key, make_operator_key
from fedeas.core.errors import FedEASError, InputError

REFUSAL = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
AN_HOUR_AGO = -1 / 24  # days


@pytest.fixture(params=["nothing", "SERVER_DAYS", "AUTHORITY_DAYS"])
def expired(request, monkeypatch):
    """Which certificate has expired: none, the server's or the authority's."""
    if request.param != "nothing":
        monkeypatch.setattr(keys, request.param, AN_HOUR_AGO)
    return request.param != "nothing"


@contextmanager
def listening(made):
    """A server with this certificate that refuses every request; give its address and what it has heard."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.server, made.server_key)
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as door:

        def serve():
            client, _ = door.accept()
            with client, suppress(ssl.SSLError, ConnectionError), context.wrap_socket(client, server_side=True) as safe:
                heard.append(safe.recv(4096))
                safe.sendall(REFUSAL)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{door.getsockname()[1]}", heard
        thread.join()


def test_a_node_tells_nothing_to_a_server_with_an_expired_certificate(tmp_path, expired):
    made = make_certificates(tmp_path)
    make_node_key(tmp_path / "node")
    with listening(made) as (address, heard):
        assert not sign_off(address, made.authority, tmp_path / "node", 1)
    assert bool(heard) != expired


def test_an_operator_tells_nothing_to_a_server_with_an_expired_certificate(tmp_path, expired):
    made, key = make_certificates(tmp_path), make_operator_key(tmp_path / "operator.key")
    with listening(made) as (address, heard), pytest.raises(FedEASError) as told:
        SuperLink(Connection(address, made.authority, key)).nodes()
    assert bool(heard) != expired
    assert ("certificate has expired" in str(told.value)) == expired


def test_a_server_with_an_expired_certificate_does_not_start(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(keys, "SERVER_DAYS", AN_HOUR_AGO)
    make_certificates(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        server.main(["--certificates", str(tmp_path), "--key", str(make_operator_key(tmp_path / "operator.key"))])
    assert stopped.value.code == InputError.exit_code
    assert "server.pem: expired on" in capsys.readouterr().err
