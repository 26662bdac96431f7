"""Over a real TLS connection: nothing is sent to a server whose certificate has expired."""

import os
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedeas[flower]'")

from expired import expire

from deploy.flower.certificates import Certificates
from deploy.flower.one_machine import make_key
from deploy.flower.programs import environment, flwr, free_port, program
from fedeas import InputError

REFUSAL = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.fixture
def made(tmp_path):
    found = Certificates(tmp_path / "keys")
    found.make()
    return found


@pytest.fixture(params=[None, "server.pem", "ca.pem"])
def expired(request, made):
    """Which certificate has expired: none, the server's or the authority's."""
    if request.param is not None:
        expire(made.folder / request.param, made.authority_key)
    return request.param is not None


@contextmanager
def listening(made):
    """A server with this certificate that refuses every request; give its address and what it has heard."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.server, made.server_key)
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as door:

        def serve():
            with suppress(OSError):
                while True:
                    client, _ = door.accept()
                    with client, suppress(OSError), context.wrap_socket(client, server_side=True) as safe:
                        heard.append(safe.recv(4096))
                        safe.sendall(REFUSAL)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{door.getsockname()[1]}", heard


def test_a_node_tells_nothing_to_a_server_with_an_expired_certificate(tmp_path, made, expired):
    make_key(tmp_path / "node")
    with listening(made) as (address, heard):
        command = [program("flower-supernode"), "--superlink", address, "--root-certificates", str(made.authority)]
        command += ["--auth-supernode-private-key", str(tmp_path / "node"), "--max-retries", "1"]
        command += ["--isolation", "process", "--port", str(free_port())]
        done = subprocess.run(command, env=environment(FLWR_HOME=str(tmp_path)), capture_output=True, text=True)
    assert done.returncode
    assert bool(heard) != expired, done.stderr


def test_an_operator_tells_nothing_to_a_server_with_an_expired_certificate(tmp_path, made, expired):
    with listening(made) as (address, heard):
        (tmp_path / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "{address}"\n'
            f'root-certificates = "{made.authority}"\n'
        )
        with pytest.raises(InputError):
            flwr("supernode", "list", home=tmp_path)
    assert bool(heard) != expired


def test_a_server_with_an_expired_certificate_does_not_start(tmp_path, made):
    expire(made.server, made.authority_key)
    command = [sys.executable, "-m", "deploy.flower", "server", "--keys", str(made.folder)]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True)
    assert done.returncode == InputError.exit_code
    assert done.stderr.startswith(f"error: {made.server}: it has expired")
