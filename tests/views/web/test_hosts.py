"""The planner answers a WebSocket only under the names that it was started for."""

import base64
import os
import socket
from urllib.parse import urlsplit

import pytest

pytest.importorskip("streamlit", reason="streamlit is missing: pip install 'fedeas[web]'")

from views.web.browser import served
from waiting import LIMIT

from fedeas.views.web.serving import hosts_of


def asked(address, host):
    """The status of a WebSocket that a page at this host asks for."""
    place = urlsplit(address)
    key = base64.b64encode(os.urandom(16)).decode()
    lines = [
        "GET /_stcore/stream HTTP/1.1",
        f"Host: {host}",
        f"Origin: http://{host}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Protocol: streamlit",
    ]
    with socket.create_connection((place.hostname, place.port), timeout=LIMIT) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        return int(connection.recv(100).split()[1])


def test_a_foreign_name_with_its_own_origin_is_refused(tmp_path):
    with served(tmp_path / "runs", tmp_path / "log.txt") as address:
        port = urlsplit(address).port
        assert asked(address, f"127.0.0.1:{port}") == asked(address, f"localhost:{port}") == 101
        for host in ("evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", "localhost.evil"):
            assert asked(address, host) == 403


def test_a_page_for_everyone_answers_to_its_own_names():
    assert socket.gethostname() in hosts_of("0.0.0.0")
    assert "*" not in hosts_of("0.0.0.0")
    assert hosts_of("10.0.0.7")[-1] == "10.0.0.7"
    assert hosts_of("fe80::1")[-1] == "fe80::1"
