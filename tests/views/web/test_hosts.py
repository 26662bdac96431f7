"""The planner answers only its own pages, under the names that it was started for."""

import base64
import os
import socket
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("streamlit", reason="streamlit is missing: pip install 'fedeas[web]'")

from views.web.browser import served
from waiting import LIMIT

from fedeas.views.web.serving import hosts_of

PATHS = (
    "/",
    "/_stcore/health",
    "/_stcore/metrics",
    "/_stcore/host-config",
    "/_stcore/upload_file/a/b",
    "/media/x",
    "/no",
)
SOCKET = "/_stcore/stream"
EVIL = (
    "evil.example",
    "127.0.0.1.evil.example",
    "localhost.evil",
    "evil.example@localhost",
    "[::2]",
    "",
    "localhost, evil",
)


def asked(address, path, host, origin=None):
    """Status and headers of the answer to a request for a path or a WebSocket, with this host and origin."""
    place = urlsplit(address)
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}", "Connection: close"]
    lines += [] if origin is None else [f"Origin: {origin}"]
    if path == SOCKET:
        key = base64.b64encode(os.urandom(16)).decode()
        lines[2:3] = ["Upgrade: websocket", "Connection: Upgrade", f"Sec-WebSocket-Key: {key}",
                      "Sec-WebSocket-Version: 13", "Sec-WebSocket-Protocol: streamlit"]  # fmt: skip
    with socket.create_connection((place.hostname, place.port), timeout=LIMIT) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        answer = b""
        while b"\r\n\r\n" not in answer and (more := connection.recv(4096)):
            answer += more
    head = answer.decode("latin-1").partition("\r\n\r\n")[0].lower()
    return int(head.split()[1]), head


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planner")
    with served(folder / "runs", folder / "log.txt") as found:
        yield found


@given(path=st.sampled_from((*PATHS, SOCKET)), evil=st.sampled_from(EVIL), with_port=st.booleans(), data=st.data())
@settings(max_examples=150, deadline=None)
def test_foreign_hosts_and_origins_are_refused_on_every_path(address, path, evil, with_port, data):
    port = urlsplit(address).port
    foreign = f"{evil}:{port}" if with_port else evil
    host, origin = data.draw(st.sampled_from([
        (foreign, f"http://{foreign}"), (foreign, None), (f"localhost:{port}", f"http://{foreign}"),
        (f"localhost:{port}", "null"), (f"localhost:{port}", f"http://localhost:{port + 1}"),
        (f"localhost:{port}", f"http://127.0.0.1:{port}"), (f"127.0.0.1:{port}", "http://localhost"),
    ]))  # fmt: skip
    assert asked(address, path, host, origin)[0] in (400, 403)  # 400: the server cannot read the request


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "[::1]", "LOCALHOST."])
def test_own_names_are_answered_and_no_page_may_be_framed_elsewhere(address, path, name):
    host = f"{name}:{urlsplit(address).port}"
    for origin in (None, f"http://{host}"):
        status, head = asked(address, path, host, origin)
        assert status != 403
        assert "content-security-policy: frame-ancestors 'self'" in head
    assert asked(address, SOCKET, host, f"http://{host}")[0] == 101


def test_a_page_for_everyone_answers_to_its_own_names():
    assert socket.gethostname() in hosts_of("0.0.0.0")
    assert "*" not in hosts_of("0.0.0.0")
    assert hosts_of("10.0.0.7")[-1] == "10.0.0.7"
    assert hosts_of("fe80::1")[-1] == "fe80::1"
