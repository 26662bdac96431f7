"""Which paths pass the SuperLink's two ports, and what reaches a stock SuperLink behind them."""

import asyncio
import posixpath
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedeas[flower]'")

import httpx

from deploy.flower import doors
from deploy.flower.keys import make_certificates
from deploy.flower.stock_superlink import UNAVAILABLE, handed_on

NODES, OPERATOR = 8000, 8001


async def answer_all(scope, receive, send):
    await doors.answer(send, 200)


def status(port, sent, app=answer_all):
    """What a request at this port gets; the scope is as uvicorn makes it."""
    got, path = [], {"path": unquote(sent), "raw_path": sent.encode()}

    async def send(message):
        got.append(message)

    scope = {"type": "http", "method": "POST", "server": ("10.0.0.1", port), "query_string": b"", "headers": [], **path}
    asyncio.run(doors.two_doors(app, NODES)(scope, None, send))
    return got[0]["status"]


@pytest.mark.parametrize("path", ["/v1/control/start-run", "/v1/runtime/acquire-task", "/docs", "/", "//v1/fleet/x",
                                  "/v1/control/../fleet/x", "/V1/fleet/x"])  # fmt: skip
def test_the_nodes_port_serves_nodes_alone(path):
    assert status(NODES, path) == doors.REFUSED


def test_each_interface_has_its_port():
    assert status(NODES, "/v1/fleet/pull-messages") == 200
    assert status(OPERATOR, "/v1/control/start-run") == 200
    assert status(OPERATOR, "/openapi.json") == 200
    assert status(OPERATOR, "/v1/fleet/pull-messages") == doors.REFUSED


def normal_form(path):
    """The path in which a program may end up that decodes, takes backslashes for slashes and resolves dots."""
    while (decoded := unquote(path)) != path:
        path = decoded
    return posixpath.normpath("/" + path.replace("\\", "/").lstrip("/"))


PIECES = st.sampled_from(["v1", "fleet", "control", "start-run", ".", "..", "...", "", "/", "//", "\\", "%2e", "%2E%2e",
                          "%2f", "%5c", "%252e%252e", "%25252f", ";", "?", "%3f", "#", "%00", "%0d%0a"])  # fmt: skip


DOORS = st.sampled_from([(NODES, "/v1/fleet/"), (OPERATOR, "/v1/control/")])


@given(DOORS, st.lists(PIECES, max_size=8).map("".join) | st.text(max_size=20))
@example((NODES, "/v1/fleet/"), "../control/start-run")
@example((NODES, "/v1/fleet/"), "%2e%2e/control/start-run")
@example((OPERATOR, "/v1/control/"), "../fleet/pull-messages")
def test_no_path_that_could_lead_elsewhere_passes_a_port(door, tail):
    port, start = door
    if status(port, start + tail) == 200:
        assert normal_form(start + tail) == start + tail


def test_a_path_that_was_sent_in_another_form_is_refused():
    assert status(NODES, "/v1/%66leet/pull-messages") == doors.REFUSED


# ---- a stock SuperLink behind the doors


@pytest.fixture
def stock(tmp_path, monkeypatch):
    """Send a path to the nodes' port; return the status, and the paths that were asked for behind the doors."""
    reached = []

    async def note(client, request, **_):
        reached.append(request.url.raw_path)
        raise httpx.ConnectError("nothing listens there")

    monkeypatch.setattr(httpx.AsyncClient, "send", note)
    app = handed_on(("127.0.0.1", 1), make_certificates(tmp_path).authority, "the key")
    return lambda sent: (status(NODES, sent, app), reached)


@pytest.mark.parametrize(
    "target",
    [
        "/v1/control/start-run",
        "/v1/fleet/../control/start-run",
        "/v1/fleet/x/../../control/start-run",
        "/v1/fleet/./../control/start-run",
        "/v1/fleet//../../control/start-run",
        "/v1/fleet/%2e%2e/control/start-run",
        "/v1/fleet/..%2fcontrol/start-run",
        "/v1/fleet/%252e%252e/control/start-run",
        "/v1/fleet/..\\control/start-run",
        "/v1/fleet/..;/control/start-run",
        "https://server/v1/fleet/../control/start-run",
    ],
)
def test_nobody_gets_from_the_nodes_port_to_the_operators_paths(stock, target):
    assert stock(target) == (doors.REFUSED, [])


def test_nodes_reach_the_superlink_behind_the_doors(stock):
    assert stock("/v1/fleet/pull-messages") == (UNAVAILABLE, [b"/v1/fleet/pull-messages"])
