"""Which requests pass nginx, which stands before the SuperLink."""

import posixpath
import re
import shutil
import socket
import ssl
import subprocess
import threading
from contextlib import suppress
from urllib.parse import unquote

import pytest
from flower.deployments import need_nginx
from hypothesis import example, given
from hypothesis import strategies as st

from deploy.flower.certificates import Certificates
from deploy.flower.programs import free_port, program
from deploy.flower.server import Server

REACHED = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
REFUSED = (400, 404)


def answer_all(door, heard):
    """Answer each request; note its first line."""
    with suppress(OSError):
        while True:
            client, _ = door.accept()
            with suppress(OSError), client:
                heard.append(client.recv(65536).split(b"\r\n")[0])
                client.sendall(REACHED)


@pytest.fixture(scope="module")
def nginx(tmp_path_factory):
    """Send a path to the nodes' port; return the status, and what came through."""
    need_nginx()
    folder, heard = tmp_path_factory.mktemp("nginx"), []
    made = Certificates(folder)
    made.make()
    inside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    inside.load_cert_chain(made.server, made.server_key)
    outside = ssl.create_default_context(cafile=made.authority)
    with inside.wrap_socket(socket.create_server(("127.0.0.1", 0)), server_side=True) as door:
        threading.Thread(target=answer_all, args=(door, heard), daemon=True).start()
        server = Server(made, "127.0.0.1", free_port(), door.getsockname()[1])
        (folder / "nginx.conf").write_text(server.nginx(folder))
        command = [program("nginx"), "-e", "stderr", "-c", str(folder / "nginx.conf")]
        process = subprocess.Popen(command)

        def ask(target, method=b"POST"):
            heard.clear()
            plain = connected(server.port, process)
            with outside.wrap_socket(plain, server_hostname="localhost") as connection:
                connection.sendall(method + b" " + target.encode() + b" HTTP/1.1\r\nHost: server\r\n"
                                   b"Content-Length: 0\r\nConnection: close\r\n\r\n")  # fmt: skip
                found = re.match(rb"HTTP/1.1 (\d+)", connection.recv(65536))
            return int(found[1]) if found else None, list(heard)

        try:
            yield ask
        finally:
            process.terminate()
            process.wait()


def connected(port, process):
    while process.poll() is None:
        with suppress(ConnectionRefusedError):
            return socket.create_connection(("127.0.0.1", port))
    raise AssertionError("nginx ended")


def test_nodes_reach_the_superlink(nginx):
    assert nginx("/v1/fleet/pull-messages") == (200, [b"POST /v1/fleet/pull-messages HTTP/1.1"])


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/docs",
        "/openapi.json",
        "//v1/fleet/x",
        "/V1/fleet/x",
        "/v1/fleet/",
        "/v1/control/start-run",
        "/v1/control/register-node",
        "/v1/runtime/acquire-task",
        "/v1/control/../fleet/x",
        "/v1/fleet/../control/start-run",
        "/v1/fleet/x/../../control/start-run",
        "/v1/fleet/./../control/start-run",
        "/v1/fleet//../../control/start-run",
        "/v1/fleet/%2e%2e/control/start-run",
        "/v1/fleet/..%2fcontrol/start-run",
        "/v1/fleet/%252e%252e/control/start-run",
        "/v1/fleet/..\\control/start-run",
        "/v1/fleet/..;/control/start-run",
        "/v1/%66leet/pull-messages",
        "https://server/v1/fleet/../control/start-run",
        "https://server/v1/control/start-run",
    ],
)
def test_nobody_gets_from_the_nodes_port_to_the_operators_paths(nginx, target):
    status, heard = nginx(target)
    assert status in REFUSED
    assert heard == []


def normal_form(path):
    """The path in which a program may end up that decodes, takes backslashes for slashes and resolves dots."""
    while (decoded := unquote(path)) != path:
        path = decoded
    return posixpath.normpath("/" + path.replace("\\", "/").lstrip("/"))


PIECES = st.sampled_from(["v1", "fleet", "control", "start-run", ".", "..", "...", "", "/", "//", "\\", "%2e", "%2E%2e",
                          "%2f", "%5c", "%252e%252e", "%25252f", ";", "?", "%3f", "#", "%00", "%0d%0a"])  # fmt: skip
PRINTABLE = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20)


@given(st.lists(PIECES, max_size=8).map("".join) | PRINTABLE)
@example("../control/start-run")
@example("%2e%2e/control/start-run")
def test_no_path_that_could_lead_elsewhere_passes(nginx, tail):
    status, heard = nginx(f"/v1/fleet/{tail}")
    if status not in REFUSED:
        assert normal_form(f"/v1/fleet/{tail}") == f"/v1/fleet/{tail}"
        assert len(heard) == 1


def test_what_comes_after_a_request_in_one_connection_is_checked_too(nginx):
    hidden = "/v1/fleet/x HTTP/1.1\r\nHost: server\r\nContent-Length: 0\r\n\r\nPOST /v1/control/start-run"
    _, heard = nginx(hidden)
    assert not any(b"control" in line for line in heard)


def test_nginx_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name, path: None)
    with pytest.raises(Exception, match="apt-get install nginx"):
        program("nginx")
